"""Arguments of a tool or prompt on the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from mcptrio._schema.shape import kind_of
from mcptrio.cli.exit_codes import UsageError

MAX_LEVELS: Final = 2
"""How deep nested alternatives of a schema are followed, which may refer to themselves."""
MAX_OPTIONS: Final = 20
"""How many alternatives are looked at on each level."""
_MAX_REFERENCES: Final = 20
_OPEN: Final = frozenset({"patternProperties", "allOf", "anyOf", "oneOf", "$ref"})
"""Keywords of a schema that may allow other arguments than its properties."""
_PLAIN: Final = frozenset({"integer", "number", "boolean", "null", "array", "object"})


def read_object(text: str | None) -> dict[str, Any] | None:
    """Read the object of `--args`: JSON, `@FILE` with JSON, or `@-` for standard input; None without the option.

    Raises:
        UsageError: it is not a JSON object.
    """
    if text is None:
        return None
    try:
        if text == "@-":
            data = sys.stdin.buffer.read()
        else:
            data = Path(text[1:]).read_bytes() if text.startswith("@") else text.encode()
        value = msgspec.json.decode(data)
    except OSError as error:
        raise UsageError(f"--args {text}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(f"--args is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError('--args must be a JSON object: {"name": "value"}')
    return value


def read_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """Read the pairs of `--arg name=value`.

    Raises:
        UsageError: one has another form, or a name comes twice.
    """
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(f"--arg {pair}: write name=value")
        if not _is_text(pair):
            raise UsageError(f"--arg {name}: the value is not valid UTF-8")
        if name in found:
            raise UsageError(f'--arg {name} is given twice; write a list as JSON: --arg \'{name}=["a", "b"]\'')
        found[name] = value
    return found


def _is_text(text: str) -> bool:
    try:
        return bool(text.encode())
    except UnicodeEncodeError:  # surrogates stand for bytes that are not UTF-8
        return False


def typed(texts: Mapping[str, str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Convert texts to the types in a tool's input schema: `days=3` becomes a number if the schema says so.

    Raises:
        UsageError: a text cannot be converted, or the tool has no such argument.
    """
    properties = schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    if known and not _may_have_more(schema):
        _refuse_unknown(texts, known)
    return {name: _typed(name, text, known.get(name), schema) for name, text in texts.items()}


def _may_have_more(schema: Mapping[str, Any]) -> bool:
    return schema.get("additionalProperties", False) is not False or not _OPEN.isdisjoint(schema)


def _refuse_unknown(texts: Mapping[str, str], known: Mapping[str, Any]) -> None:
    # A schema without `additionalProperties` allows more, but servers ignore it: a name with a typo would be lost.
    for name in texts:
        if name not in known:
            raise UsageError(f"--arg {name}: no such argument; there are: {', '.join(known)}")


def _typed(name: str, text: str, schema: Any, root: Mapping[str, Any]) -> Any:
    kinds = _kinds(schema, root) if isinstance(schema, Mapping) else frozenset()
    if kinds == {"string"}:
        return text
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        if kinds and kinds <= _PLAIN:
            raise UsageError(f"--arg {name}={text}: expected {' or '.join(sorted(kinds))}") from None
        return text
    fits = kind_of(value) in kinds or (kind_of(value) == "integer" and "number" in kinds)
    return text if "string" in kinds and not fits else value


def _kinds(schema: Mapping[str, Any], root: Mapping[str, Any], level: int = 0) -> frozenset[str]:
    """Return the types that a schema allows, as far as it states them; empty means any."""
    schema = resolve(schema, root)
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return frozenset(kind_of(value) for value in values) if isinstance(values, list) else frozenset()
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset({kind})
    if isinstance(kind, list):
        return frozenset(kind)
    options = schema.get("anyOf") or schema.get("oneOf")
    if not isinstance(options, list) or not 0 < len(options) <= MAX_OPTIONS or level == MAX_LEVELS:
        return frozenset()
    found = [_kinds(one, root, level + 1) if isinstance(one, Mapping) else frozenset() for one in options]
    return frozenset().union(*found) if all(found) else frozenset()


def resolve(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow the reference of a schema inside `root`; one that leads nowhere, or in a circle, becomes `{}`."""
    for _ in range(_MAX_REFERENCES):
        reference = schema.get("$ref")
        if reference is None:
            return schema
        found: Any = root
        for step in str(reference).removeprefix("#").split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")  # RFC 6901
            found = found.get(name) if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping) or not str(reference).startswith("#"):
            break
        schema = found
    return {}


def as_texts(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Convert the arguments of a prompt to text, the only type that prompts accept."""
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in arguments.items()
    }
