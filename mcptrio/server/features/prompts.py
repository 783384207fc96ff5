"""Prompts: declared from functions whose parameters are the arguments, filled in on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import trio
from msgspec import field

from mcptrio import types
from mcptrio._eras.shape import lower_content, trim
from mcptrio._schema.build import ArgumentFaults
from mcptrio._struct import Entity, Options
from mcptrio._wire.converter import unstructure
from mcptrio.errors import INVALID_PARAMS, DeclarationError, McpError
from mcptrio.server.context import Context
from mcptrio.server.features.hints import Hints
from mcptrio.server.features.invoke import Function, declare, function_name
from mcptrio.server.features.media import names_files, read_files
from mcptrio.server.features.scopes import declared_scopes, page_key, require, shown_to
from mcptrio.server.registry import Registry, check_name

if TYPE_CHECKING:
    from mcptrio.types import (
        GetPromptParams,
        GetPromptResult,
        Icon,
        ListPromptsParams,
        Prompt,
    )

Completer = Callable[..., Any]


class PromptEntry(Entity):
    prompt: Prompt
    function: Function
    completers: dict[str, Function] = field(default_factory=dict)
    visible: Callable[[Context], bool] | None = None
    scopes: tuple[str, ...] = ()
    wire: dict[str, Any] = field(default_factory=dict)


class PromptOptions(Options, total=False):
    """What can be said of a prompt beside its function."""

    name: str
    """What clients ask for it by; without it the name of the function."""
    title: str
    """What people see in the menu instead of the name."""
    description: str
    """What it is for; without it the docstring."""
    icons: Sequence[Icon]
    """Pictures that hosts may show beside it."""
    meta: Mapping[str, Any]
    """The `_meta` that clients get with it, for what an extension or a host of your own looks for."""
    visible: Callable[[Context], bool]
    """Who sees it and may get it, decided for each request."""
    scopes: Sequence[str]
    """What a caller must be allowed to, where callers are authenticated."""


def declare_prompt(fn: Callable[..., Any], names: Mapping[str, Any], **options: Unpack[PromptOptions]) -> PromptEntry:
    """Make a prompt of a function; raises `DeclarationError` with a hint if it cannot be one."""
    name = check_name("prompt", options.get("name") or function_name(fn))
    try:
        function = declare(fn, names=names)
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
        scopes=declared_scopes(options.get("scopes", ())),
        wire=unstructure(prompt),
    )
    for key, described in properties.items():
        values = described.get("enum")
        if values:  # a Literal or an Enum completes itself
            entry.completers[key] = _fixed([str(v) for v in values])
    return entry


def _fixed(values: Sequence[str]) -> Function:
    def complete(prefix: str) -> list[str]:
        return [value for value in values if value.startswith(prefix)]

    return declare(complete, inline=True)


class Prompts(Entity):
    """The prompts of a server."""

    threads: trio.CapacityLimiter
    hints: Hints
    page_size: int | None = None
    registry: Registry[PromptEntry] = field(default_factory=lambda: Registry("prompt"))

    def list_all(self, ctx: Context, params: ListPromptsParams) -> Any:
        registry = self.registry
        key = page_key(ctx, registry)
        if key is False:
            return self._page(ctx, params.cursor, varies=True)
        era = ctx._call.start.era
        varies = key is not None
        return registry.cached_page(
            (era.date, params.cursor, key), lambda: self._page(ctx, params.cursor, varies=varies)
        )

    def _page(self, ctx: Context, cursor: str | None, *, varies: bool) -> dict[str, Any]:
        era = ctx._call.start.era
        entries, following = self.registry.page(cursor, self.page_size, shown_to(ctx))
        prompts = []
        for entry in entries:
            shown = trim(era, "prompt", entry.wire)
            if "arguments" in shown:
                shown["arguments"] = [trim(era, "argument", argument) for argument in shown["arguments"]]
            prompts.append(shown)
        page: dict[str, Any] = {"prompts": prompts}
        if following is not None:
            page["nextCursor"] = following
        return self.hints.finish_list("prompts", page, era, varies=varies)

    async def get(self, ctx: Context, params: GetPromptParams) -> Any:
        entry = self.registry.get(params.name)
        if entry is None or (entry.visible is not None and not entry.visible(ctx)):
            raise McpError(INVALID_PARAMS, f"unknown prompt: {params.name!r:.200}")
        require(ctx, entry)
        try:
            kwargs = entry.function.signature.bind_text(params.arguments or {})
        except ArgumentFaults as error:
            raise McpError(INVALID_PARAMS, "\n".join(error.faults)) from None
        value = await entry.function(ctx, kwargs, self.threads)
        if names_files(value):
            value = await read_files(value, self.threads)
        wire = unstructure(prompt_result(entry.prompt, value))
        era = ctx._call.start.era
        for message in wire["messages"]:
            message["content"] = lower_content(era, [message["content"]])[0]
        return wire


def prompt_result(prompt: Prompt, value: Any) -> GetPromptResult:
    """What a prompt function returned, as the protocol has it: text, a message, or several of either."""
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
            kind = type(item).__name__
            raise ValueError(f"prompt {prompt.name!r} returned a {kind}; return a text, a Message, or a list of these")
    return types.GetPromptResult(description=prompt.description, messages=messages)
