"""Prompts: declared from functions whose parameters are the arguments, filled in on request."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from msgspec import field

from mcptrio import types
from mcptrio._eras.shape import lower_content, trim
from mcptrio._peer.era import Era
from mcptrio._schema.build import ArgumentFaults
from mcptrio._struct import Entity
from mcptrio._wire.objects.converter import unstructure
from mcptrio.errors import INVALID_PARAMS, DeclarationError, MCPError, UrlElicitationRequired
from mcptrio.server.context import Context
from mcptrio.server.features.functions import Function, declare, for_revision, function_name, require_function
from mcptrio.server.features.lists import list_page
from mcptrio.server.features.media_files import names_files, read_files
from mcptrio.server.features.options import check_options
from mcptrio.server.features.result_fields import ResultFields
from mcptrio.server.features.scopes import declared_scopes, is_visible, require_scopes
from mcptrio.server.registry import Registry, check_name

if TYPE_CHECKING:
    from mcptrio.types import (
        GetPromptParams,
        GetPromptResult,
        Icon,
        ListPromptsParams,
        Prompt,
    )


class PromptEntry(Entity):
    prompt: Prompt
    function: Function
    completers: dict[str, Function] = field(default_factory=dict)
    visible: Callable[[Context], bool] | None = None
    scopes: tuple[str, ...] = ()
    wire: dict[str, Any] = field(default_factory=dict)
    waits: bool = False
    """Whether its function has ever waited, see `lending`."""


class PromptOptions(TypedDict, total=False):
    """Options of a prompt."""

    name: str
    """The name that clients use; default: the name of the function."""
    title: str
    """A display name for users."""
    description: str
    """The purpose of the prompt; default: the docstring."""
    icons: Sequence[Icon]
    """Icons that hosts may show."""
    meta: Mapping[str, Any]
    """The prompt's `_meta`, for extensions or for your own host."""
    visible: Callable[[Context], bool]
    """Predicate that decides for each request whether the caller may see and get the prompt; not async. If it raises,
    the prompt is hidden and the log says why."""
    scopes: Sequence[str]
    """Scopes the caller must hold; ignored if callers are not authenticated."""
    runs: Literal["trio", "asyncio"]
    """The event loop that the async function runs in: `"trio"` (default), or `"asyncio"` for a function that awaits
    asyncio libraries. Its context works there too."""


def declare_prompt(fn: Callable[..., Any], names: Mapping[str, Any], **options: Unpack[PromptOptions]) -> PromptEntry:
    """Make a prompt from a function.

    Raises:
        DeclarationError: the function or an option cannot be used; the text says how to fix it.
    """
    require_function("prompt", fn)
    name = check_name("prompt", options.get("name") or function_name(fn))
    check_options(options, PromptOptions.__annotations__, kind="prompt", name=name)
    try:
        function = declare(fn, runs=options.get("runs"), names=names)
        if not _gives_messages(returns := function.signature.returns):
            raise DeclarationError(
                f"it returns {getattr(returns, '__name__', returns)}, which has no messages; return a str, a Message, "
                "or a list of these"
            )
    except DeclarationError as error:
        raise DeclarationError(f"prompt {name!r}: {error}") from error
    schema = function.signature.input_schema
    required = set(schema.get("required", ()))
    properties: Mapping[str, Any] = schema.get("properties", {})
    arguments = [
        types.PromptArgument(
            name=key,
            title=described.get("title"),
            description=described.get("description"),
            required=key in required,
        )
        for key, described in properties.items()
    ]
    prompt = types.Prompt(
        name=name,
        title=options.get("title"),
        description=options.get("description", function.signature.description),
        arguments=arguments or None,
        icons=options.get("icons"),
        meta=options.get("meta"),
    )
    entry = PromptEntry(
        prompt=prompt,
        function=function,
        visible=options.get("visible"),
        scopes=declared_scopes(options.get("scopes") or ()),
        wire=unstructure(prompt),
    )
    for key, described in properties.items():
        values = described.get("enum")
        if values:  # a Literal or an Enum completes itself
            entry.completers[key] = _fixed([str(v) for v in values])
    return entry


def _gives_messages(annotation: Any) -> bool:
    """Return whether values of a return annotation can become the messages of a prompt."""
    if annotation in (inspect.Signature.empty, Any, object, str):
        return True
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _gives_messages(args[0])
    if origin in (typing.Union, UnionType):
        return all(_gives_messages(arg) for arg in args)
    cls = origin or annotation
    if not isinstance(cls, type):
        return True  # an alias or a type variable, known at run time only
    if issubclass(cls, list | tuple) or cls in (Sequence, Iterable, Collection):
        return all(_gives_messages(arg) for arg in args if arg is not ...)
    known = (types.GetPromptResult, types.PromptMessage, types.Message, *typing.get_args(types.ContentLike))
    return issubclass(cls, tuple(one for one in known if isinstance(one, type)))


def _fixed(values: Sequence[str]) -> Function:
    def complete(prefix: str) -> list[str]:
        return [value for value in values if value.startswith(prefix)]

    return declare(complete, inline=True)


def _shown(era: Era, wire: Mapping[str, Any]) -> dict[str, Any]:
    shown = trim(era, "prompt", wire)
    if "arguments" in shown:
        shown["arguments"] = [trim(era, "argument", argument) for argument in shown["arguments"]]
    return shown


class Prompts(Entity):
    """The prompts of a server."""

    result_fields: ResultFields
    page_size: int | None = None
    registry: Registry[PromptEntry] = field(default_factory=lambda: Registry("prompt"))

    def list_all(self, ctx: Context, params: ListPromptsParams) -> Any:
        return list_page(ctx, self.registry, params.cursor, self.page_size, self.result_fields, _shown, kind="prompts")

    async def get(self, ctx: Context, params: GetPromptParams) -> Any:
        entry = self.registry.get(params.name)
        if entry is None or not is_visible(entry, ctx):
            raise MCPError(INVALID_PARAMS, f"unknown prompt: {params.name[:200]!r}")
        require_scopes(ctx, entry.scopes)
        try:
            kwargs = entry.function.signature.bind_text(params.arguments or {})
        except ArgumentFaults as error:
            raise MCPError(INVALID_PARAMS, "\n".join(error.faults)) from None
        try:
            value = await entry.function(ctx, kwargs)
        except UrlElicitationRequired as error:
            raise for_revision(error, ctx) from None
        if names_files(value):
            value = await read_files(value, ctx)
        wire = unstructure(prompt_result(entry.prompt, value))
        era = ctx._call.start.era
        for message in wire["messages"]:
            message["content"] = lower_content(era, [message["content"]])[0]
        return wire


def prompt_result(prompt: Prompt, value: Any) -> GetPromptResult:
    """Convert the return value of a prompt function: a text, a message, or several of either."""
    if isinstance(value, types.GetPromptResult):
        return value
    values = value if isinstance(value, list | tuple) else [value]
    messages = []
    for item in values:
        if isinstance(item, types.PromptMessage):
            messages.append(item)
        elif isinstance(item, types.Message):
            messages.append(item.to_prompt_message())
        elif isinstance(item, types.ContentLike):
            messages.append(types.user(item).to_prompt_message())
        else:
            raise ValueError(
                f"prompt {prompt.name!r} returned a value of type {type(item).__name__}; "
                "return a text, a Message, or a list of these"
            )
    return types.GetPromptResult(description=prompt.description, messages=messages)
