"""Completion in `mcptrio shell`: commands, names, arguments, and values that the server suggests."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Final

from attrs import define, frozen

from mcptrio.cli.arguments import MAX_OPTIONS, resolve
from mcptrio.client.client import Client

COMMANDS: Final = ("call", "read", "prompt", "list", "help", "quit")
_VARIABLE: Final = re.compile(r"\{([A-Za-z0-9_.]+)\}")  # operators such as {?query} are not completed


@define(eq=False, repr=False)
class Completer:
    """Suggestions for the last word of a line. Borrows: the client."""

    client: Client

    async def suggest(self, before: str, word: str) -> list[str]:
        """Return the words that may stand in place of `word`, which comes after `before`.

        Raises:
            MCPTrioError: the server cannot be asked.
        """
        match before.split():
            case []:
                return _starting(word, (f"{command} " for command in COMMANDS))
            case ["call"]:
                return _starting(word, (f"{tool.name} " for tool in await self._list("tools")))
            case ["call", name, *given]:
                schemas = {tool.name: tool.input_schema for tool in await self._list("tools")}
                return _tool_argument(schemas.get(name, {}), given, word)
            case ["prompt"]:
                return _starting(word, (f"{prompt.name} " for prompt in await self._list("prompts")))
            case ["prompt", name, *given]:
                return await self._prompt_argument(name, given, word)
            case ["read"]:
                return await self._uri(word)
        return []

    async def _list(self, kind: str) -> Iterable[Any]:
        offered = getattr(self.client.capabilities, "resources" if kind == "resource_templates" else kind)
        found: Iterable[Any] = () if offered is None else await getattr(self.client, f"list_{kind}")()
        return found

    async def _prompt_argument(self, prompt: str, given: list[str], word: str) -> list[str]:
        name, equals, value = word.partition("=")
        if equals:
            context = dict(pair.partition("=")[::2] for pair in given)
            values = await self._values(prompt, name, value, context)
            return [f"{name}={shlex.quote(one)} " for one in values]
        arguments = {one.name: one.arguments or () for one in await self._list("prompts")}.get(prompt, ())
        return _starting(word, _missing((one.name for one in arguments), given))

    async def _uri(self, word: str) -> list[str]:
        found = [resource.uri for resource in await self._list("resources")]
        for template in await self._list("resource_templates"):
            at = position(template.uri_template, word)
            if at is None:
                continue
            if at.variable is None:
                found.append(word[: at.start] + at.literal)
                continue
            values = await self._values(template.uri_template, at.variable, word[at.start :], at.given)
            found += [word[: at.start] + value + at.literal for value in values]
        return _starting(word, dict.fromkeys(found))

    async def _values(self, ref: str, name: str, value: str, context: Mapping[str, str]) -> Iterable[str]:
        if self.client.capabilities.completions is None:
            return ()
        return (await self.client.complete(ref, name, value, context=context)).values


@frozen
class TemplatePosition:
    """The place in a URI template that a half-written URI ends at: in a variable, or in the literal text."""

    start: int
    """Where the variable or the literal text begins in the URI."""
    literal: str
    """The literal text, or the one after the variable."""
    variable: str | None
    given: Mapping[str, str]
    """The variables before it."""


def position(template: str, uri: str) -> TemplatePosition | None:
    """Return where in a template a half-written URI ends; None if it does not fit."""
    parts = _VARIABLE.split(template)
    literals, variables = parts[::2], parts[1::2]
    at, given = 0, dict[str, str]()
    for literal, variable, following in zip(literals, [*variables, None], [*literals[1:], ""], strict=True):
        if "{" in literal:
            return None
        if literal.startswith(uri[at:]) and (len(literal) > len(uri) - at or variable is None):
            return TemplatePosition(at, literal, None, given)
        if not uri.startswith(literal, at):
            return None
        at += len(literal)
        if variable is None:
            return None  # the URI goes on behind the template
        end = uri.find(following[0], at) if following else -1
        if end < 0:
            return TemplatePosition(at, "" if "{" in following else following, variable, given)
        given[variable] = uri[at:end]
        at = end
    return None


def _tool_argument(schema: Mapping[str, Any], given: list[str], word: str) -> list[str]:
    properties = schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    name, equals, _ = word.partition("=")
    if not equals:
        return _starting(word, _missing(map(str, known), given))
    return _starting(word, (f"{name}={shlex.quote(value)} " for value in _choices(known.get(name), schema)))


def _choices(schema: Any, root: Mapping[str, Any]) -> list[str]:
    """Return the texts that a schema lets choose from."""
    if not isinstance(schema, Mapping):
        return []
    schema = resolve(schema, root)
    if schema.get("type") == "boolean":
        return ["true", "false"]
    if isinstance(values := schema.get("enum"), list):
        return [str(value) for value in values[:MAX_OPTIONS] if value is not None]
    members = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(members, list):
        plain = [one for one in members[:MAX_OPTIONS] if isinstance(one, Mapping) and "anyOf" not in one]
        return [choice for one in plain for choice in _choices(one, root)]
    return []


def _missing(names: Iterable[str], given: Iterable[str]) -> Iterable[str]:
    taken = {pair.partition("=")[0] for pair in given}
    return (f"{name}=" for name in names if name not in taken)


def _starting(word: str, candidates: Iterable[str]) -> list[str]:
    return [one for one in candidates if one.startswith(word)]
