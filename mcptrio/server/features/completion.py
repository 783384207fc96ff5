"""Completion: suggestions for the arguments of prompts and the variables of resource templates."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar

from attrs import evolve

from mcptrio import types
from mcptrio._struct import Entity
from mcptrio.errors import INVALID_PARAMS, DeclarationError, MCPError
from mcptrio.server.context import Context
from mcptrio.server.features.functions import Function, caller_names, declare, function_name
from mcptrio.server.features.prompts import PromptEntry, Prompts
from mcptrio.server.features.resources import ResourceEntry, Resources
from mcptrio.server.features.scopes import is_visible, require_scopes

if TYPE_CHECKING:
    from mcptrio.types import (
        CompleteParams,
        CompleteResult,
        Completion,
    )

MAX_VALUES = 100  # server/utilities/completion: at most 100 values


P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class Completable(Generic[P, R]):
    """The object that `@server.prompt` and `@server.resource` return: callable like the function.

    Its methods declare completion functions and build the URIs of a template.
    """

    __slots__ = ("__wrapped__", "_entry")

    def __init__(self, fn: Callable[P, R], entry: PromptEntry | ResourceEntry) -> None:
        self.__wrapped__ = fn
        self._entry = entry

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.__wrapped__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<{self._kind} {function_name(self.__wrapped__)}>"

    @property
    def _kind(self) -> str:
        return "prompt" if isinstance(self._entry, PromptEntry) else "resource"

    def complete(self, argument: str, *, runs: Literal["trio", "asyncio"] | None = None) -> Callable[[F], F]:
        """Declare the function that completes an argument: `(prefix)`, optionally with `arguments` and a Context.

        `runs` is the event loop of an async function, as in `@server.tool`.
        """
        known = self._arguments()
        if not known:
            raise DeclarationError(f"{self!r} has no arguments to complete")
        if argument not in known:
            raise DeclarationError(f"{self!r} has no argument {argument!r}; it has {', '.join(known)}")

        names = caller_names()

        def decorate(fn: F) -> F:
            self._entry.completers[argument] = _declare_completer(fn, names, runs)
            return fn

        return decorate

    def uri(self, **variables: Any) -> str:
        """Return the URI of the resource, as clients write it: the variables of a template are percent-encoded.

        Raises:
            TypeError: a variable is missing or unknown, or this is a prompt.
        """
        if isinstance(self._entry, PromptEntry):
            raise TypeError(f"{self!r} has no URI")
        template = self._entry.template
        if template is None:
            if variables:
                raise TypeError(f"{self!r} has no variables; its URI is {self._entry.wire['uri']}")
            return str(self._entry.wire["uri"])
        known = set(template.variables)
        if variables.keys() - known or known - template.optional_variables - variables.keys():
            raise TypeError(f"the URI of {self!r} takes the variables of {template.text}: {', '.join(sorted(known))}")
        return template.expand(**variables)

    def _arguments(self) -> tuple[str, ...]:
        if isinstance(self._entry, PromptEntry):
            return tuple(a.name for a in self._entry.prompt.arguments or ())
        return self._entry.template.variables if self._entry.template is not None else ()


def _declare_completer(fn: Callable[..., Any], names: dict[str, Any], runs: str | None) -> Function:
    function = declare(fn, runs=runs, names=names)
    parameters = set(function.signature.input_schema.get("properties", {}))
    if "prefix" not in parameters or parameters - {"prefix", "arguments"}:
        raise DeclarationError(
            f"the completion function {function_name(fn)} takes `prefix: str`, and optionally "
            "`arguments: dict[str, str]` (what is filled in already) and a Context"
        )
    return function


class Completions(Entity):
    """The completion functions of a server."""

    prompts: Prompts
    resources: Resources

    @property
    def any(self) -> bool:
        """Return whether anything can be completed."""
        entries = [*self.prompts.registry, *self.resources.templates]
        return any(entry.completers for entry in entries)

    async def complete(self, ctx: Context, params: CompleteParams) -> CompleteResult:
        entry: PromptEntry | ResourceEntry | None
        if isinstance(params.ref, types.PromptReference):
            entry = self.prompts.registry.get(params.ref.name)
            shown = f"prompt {params.ref.name[:200]!r}"
        else:
            entry = self.resources.templates.get(params.ref.uri) or self.resources.registry.get(params.ref.uri)
            shown = f"resource {params.ref.uri[:200]!r}"
        if entry is None or not is_visible(entry, ctx):
            raise MCPError(INVALID_PARAMS, f"unknown {shown}")
        require_scopes(ctx, entry.scopes)
        function = entry.completers.get(params.argument.name)
        if function is None:
            return types.CompleteResult(completion=types.Completion(values=()))
        kwargs: dict[str, Any] = {"prefix": params.argument.value}
        if "arguments" in function.signature.input_schema["properties"]:
            context = params.context
            kwargs["arguments"] = dict(context.arguments or {}) if context is not None else {}
        value = await function(ctx, kwargs)
        if isinstance(value, types.CompleteResult):
            return evolve(value, completion=_capped(value.completion))
        if isinstance(value, types.Completion):
            return types.CompleteResult(completion=_capped(value))
        values = (value,) if isinstance(value, str) else tuple(str(v) for v in value)
        return types.CompleteResult(
            completion=_capped(types.Completion(values=values, total=len(values), has_more=False))
        )


def _capped(completion: Completion) -> Completion:
    if len(completion.values) <= MAX_VALUES:
        return completion
    return evolve(completion, values=completion.values[:MAX_VALUES], has_more=True)
