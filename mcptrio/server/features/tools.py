"""Tools: declared from functions, listed in pages, called with checked arguments."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack

import msgspec
import trio
from msgspec import field

from mcptrio import types
from mcptrio._actors.extension import Around
from mcptrio._eras.shape import lower_content, trim
from mcptrio._schema.build import ArgumentFaults, OutputSchema, dump, output_schema
from mcptrio._struct import Entity, Options
from mcptrio._wire.converter import unstructure, write_fields
from mcptrio.errors import (
    INVALID_PARAMS,
    CapabilityMissing,
    DeclarationError,
    LinkClosed,
    McpError,
    Overloaded,
    RequestTimeout,
    ToolError,
)
from mcptrio.server.context import Context
from mcptrio.server.features.headers import header_marks
from mcptrio.server.features.hints import Hints
from mcptrio.server.features.invoke import Function, declare, function_name
from mcptrio.server.features.media import names_files, read_files
from mcptrio.server.features.scopes import caller_of, declared_scopes, page_key, require, shown_to
from mcptrio.server.registry import Registry, check_name
from mcptrio.types.base import as_optional_tuple

if TYPE_CHECKING:
    from mcptrio._actors.call import Call
    from mcptrio._actors.rates import Rates
    from mcptrio.types import (
        CallToolParams,
        Icon,
        ListToolsParams,
    )

logger = logging.getLogger("mcptrio.tools")


def is_content(annotation: Any) -> bool:
    if not isinstance(annotation, type) or not issubclass(annotation, types.Record):
        return False
    return issubclass(annotation, (*_content_classes(), types.CallToolResult))


@cache
def _content_classes() -> tuple[type, ...]:
    """Imported when a tool gives back a `Record`: most give text, or data of their own."""
    return (*types.CONTENT_BY_TYPE.values(), types.UnknownContent, types.Image, types.Audio, types.Link)


class ToolEntry(Entity):
    """A tool as it is listed, and how to call it."""

    name: str
    function: Function
    wire: dict[str, Any]
    """What is listed."""
    output: OutputSchema | None = None
    check_arguments: Any = None
    """A `Checker` for an input schema that was written by hand."""
    check_result: Any = None
    timeout: float | None = None
    serial: bool = False
    limiter: trio.CapacityLimiter | None = None
    visible: Callable[[Context], bool] | None = None
    scopes: tuple[str, ...] = ()
    rates: Rates | None = None
    requires: tuple[str, ...] = ()
    replay: bool = False
    headers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """`x-mcp-header` marks: the header's name -> the path of the argument that it repeats."""
    around: Around | None = None
    """How an extension runs it."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """The options that belong to extensions."""


class ToolOptions(Options, total=False):
    """What can be said of a tool beside its function."""

    name: str
    """What clients call it by; without it the name of the function."""
    title: str
    """What people see instead of the name."""
    description: str
    """What a model reads to choose it; without it the docstring."""
    read_only: bool
    """It changes nothing, so that a host may call it without asking the person, and a client may repeat it."""
    destructive: bool
    """It may destroy something, so that a host asks the person first; False says that it only adds."""
    idempotent: bool
    """Calling it again with the same arguments changes nothing more."""
    open_world: bool
    """It touches things outside the server."""
    timeout: float
    """Seconds without progress after which a call is ended, instead of `Limits.call_timeout`; the hard limit grows
    with it."""
    serial: bool
    """One call at a time in each session."""
    limit: int
    """So many calls at a time in the whole server, e.g. as many as a database has connections."""
    inline: bool
    """A quick plain function that never blocks: called directly instead of in a thread."""
    input_schema: Mapping[str, Any]
    """A schema written by hand; the function then takes the arguments as one object."""
    output_schema: Mapping[str, Any]
    """What its structured result looks like; without it the return annotation says so."""
    icons: Sequence[Icon]
    """Pictures that hosts may show beside it."""
    meta: Mapping[str, Any]
    """The `_meta` that clients get with it, for what an extension or a host of your own looks for."""
    visible: Callable[[Context], bool]
    """Who sees it and may call it, decided for each request."""
    scopes: Sequence[str]
    """What a caller must be allowed to, e.g. `["orders:write"]`, where callers are authenticated."""
    rate: float
    """How often one caller may call it, in calls per second; a second's worth may come at once."""
    requires: Sequence[str]
    """Client capabilities that it cannot do without, e.g. `["sampling"]`."""
    replay: bool
    """It may be run again from the top when an answer reaches another process."""
    task: bool | Literal["auto", "later"]
    """It runs as a task (`mcptrio.extensions.tasks`): always, where the client knows tasks, or when it says so."""
    ui: Any
    """What its results are shown with: a `Ui`, or the URI of one (`mcptrio.extensions.apps`)."""


_MAYBE_OBJECT: Final = (dict, type(None))
OWN_OPTIONS: Final = frozenset(ToolOptions.__annotations__) - {"task", "ui"}
"""The options that are not an extension's."""


def declare_tool(fn: Callable[..., Any], names: Mapping[str, Any], **options: Unpack[ToolOptions]) -> ToolEntry:
    """Make a tool of a function; raises `DeclarationError` with a hint if it cannot be one."""
    name = check_name("tool", options.get("name") or function_name(fn))
    inline, input_schema, output = (
        options.get("inline", False),
        options.get("input_schema"),
        options.get("output_schema"),
    )
    checker = check_result = structured = None
    try:
        if input_schema is not None:
            from mcptrio.server.features.by_hand import Checker, by_hand

            checker = Checker(input_schema)
            function = Function(fn, by_hand(fn, input_schema, names), inline)
        else:
            function = declare(fn, inline=inline, names=names)
        if output is not None:
            from mcptrio.server.features.by_hand import Checker

            check_result = Checker(output)
        else:
            structured = output_schema(function.signature.returns, is_content=is_content, names=names)
    except DeclarationError as error:
        raise DeclarationError(f"tool {name!r}: {error}") from error
    schema = function.signature.input_schema
    about = {
        "name": name,
        "input_schema": schema,
        "title": options.get("title"),
        "description": options.get("description", function.signature.description),
        "output_schema": structured.schema if structured is not None else output,
        "annotations": _annotations(options),
        "icons": as_optional_tuple(options.get("icons")),
        "meta": options.get("meta"),
    }
    limit, rate = options.get("limit"), options.get("rate")
    if rate is not None and not rate > 0:
        raise DeclarationError(f"tool {name!r}: rate must be positive, got {rate!r}")
    return ToolEntry(
        name=name,
        function=function,
        wire=write_fields(about),
        output=structured,
        check_arguments=checker,
        check_result=check_result,
        timeout=options.get("timeout"),
        serial=options.get("serial", False),
        limiter=None if limit is None else trio.CapacityLimiter(limit),
        visible=options.get("visible"),
        scopes=declared_scopes(options.get("scopes", ())),
        rates=None if rate is None else _rates(rate),
        requires=tuple(options.get("requires", ())),
        replay=any(options.get(key) for key in ("replay", "read_only", "idempotent")),
        headers=header_marks(name, schema),
    )


def _annotations(options: ToolOptions) -> dict[str, Any] | None:
    annotations = {
        "title": options.get("title"),
        "read_only_hint": options.get("read_only"),
        "destructive_hint": options.get("destructive"),
        "idempotent_hint": options.get("idempotent"),
        "open_world_hint": options.get("open_world"),
    }
    return write_fields(annotations) or None


def usual_call(params: dict[str, Any]) -> CallToolParams | None:
    """Parameters of the shape that nearly all calls have: a name, arguments, and perhaps `_meta`."""
    name, arguments, meta = params.get("name"), params.get("arguments"), params.get("_meta")
    if type(name) is not str or type(arguments) is not dict or len(params) != (2 if meta is None else 3):
        return None
    return types.CallToolParams(name=name, arguments=arguments, meta=meta) if type(meta) in _MAYBE_OBJECT else None


class Tools(Entity):
    """The tools of a server."""

    threads: trio.CapacityLimiter
    hints: Hints
    page_size: int | None = None
    registry: Registry[ToolEntry] = field(default_factory=lambda: Registry("tool"))

    # -- tools/list

    def list_all(self, ctx: Context, params: ListToolsParams) -> Any:
        registry = self.registry
        era = ctx._call.start.era
        key = page_key(ctx, registry)
        if key is False:
            return self._page(ctx, params.cursor, varies=True)
        varies = key is not None
        return registry.cached_page(
            (era.date, params.cursor, key), lambda: self._page(ctx, params.cursor, varies=varies)
        )

    def _page(self, ctx: Context, cursor: str | None, *, varies: bool) -> dict[str, Any]:
        era = ctx._call.start.era
        entries, following = self.registry.page(cursor, self.page_size, shown_to(ctx))
        page: dict[str, Any] = {"tools": [trim(era, "tool", entry.wire) for entry in entries]}
        if following is not None:
            page["nextCursor"] = following
        return self.hints.finish_list("tools", page, era, varies=varies)

    # -- tools/call

    async def call(self, ctx: Context, params: CallToolParams) -> Any:
        entry = self.registry.get(params.name)
        if entry is None or (entry.visible is not None and not entry.visible(ctx)):
            raise McpError(INVALID_PARAMS, f"unknown tool: {params.name!r:.200}")
        if entry.scopes:
            require(ctx, entry)
        if entry.rates is not None:
            _check_rate(entry, entry.rates, ctx)
        arguments = params.arguments if params.arguments is not None else {}
        try:
            if entry.check_arguments is not None:
                faults = entry.check_arguments.faults(arguments, root="arguments")
                if faults:
                    raise ArgumentFaults(tuple(faults))
            kwargs = entry.function.signature.bind(arguments)
        except ArgumentFaults as error:
            text = "\n".join(error.faults)
            if ctx._call.start.era.features.argument_faults_are_results:
                return failed(text)
            raise McpError(INVALID_PARAMS, text) from None
        if entry.requires:
            _require(entry, ctx)
        if entry.around is not None:
            return await entry.around(ctx, partial(self._perform, entry, kwargs))
        return await self._perform(entry, kwargs, ctx)

    async def _perform(self, entry: ToolEntry, kwargs: dict[str, Any], ctx: Context) -> Any:
        if entry.timeout is not None:
            ctx._call.limit(entry.timeout)
        try:
            if entry.limiter is None and not entry.serial:
                value = await entry.function(ctx, kwargs, self.threads)
            else:
                value = await self._one_of_few(entry, ctx, kwargs)
            if type(value) is not str and names_files(value):
                value = await read_files(value, self.threads)
            return result_of(entry, value, ctx)
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001 - answers the peer, or raises again
            return _failure(entry, error, ctx._call)

    async def _one_of_few(self, entry: ToolEntry, ctx: Context, kwargs: dict[str, Any]) -> Any:
        async with AsyncExitStack() as stack:
            if entry.serial:
                locks = ctx._session.data.setdefault("serial tools", {})
                await stack.enter_async_context(locks.setdefault(entry.name, trio.Lock()))
            if entry.limiter is not None:  # second: who waits for a turn in a session must not take a place from others
                await stack.enter_async_context(entry.limiter)
            return await entry.function(ctx, kwargs, self.threads)


def _rates(per_second: float) -> Rates:
    from mcptrio._actors.rates import Rates  # few tools have one

    return Rates(per_second, max(1.0, per_second))


def _check_rate(entry: ToolEntry, rates: Rates, ctx: Context) -> None:
    wait = rates.take(caller_of(ctx), trio.current_time())
    if wait:
        from mcptrio._actors.rates import whole_seconds

        text = f"{entry.name} is called too often"
        raise Overloaded(text, retry_after=whole_seconds(wait), limit="rate", http_status=429)


def _require(entry: ToolEntry, ctx: Context) -> None:
    missing: dict[str, Any] = {name: {} for name in entry.requires if ctx._declared.get(name) is None}
    if missing:
        raise CapabilityMissing(
            f"tool {entry.name!r} needs what the client did not declare: {', '.join(missing)}", required=missing
        )


def _failure(entry: ToolEntry, error: BaseException, call: Call) -> dict[str, Any]:
    """The result of a call that raised `error`; what is no matter of the tool's own is raised again."""
    if isinstance(error, BaseExceptionGroup):
        if error.subgroup(lambda leaf: not isinstance(leaf, Exception)) is not None:
            raise error  # cancellation, or the end of the process
        if len(error.exceptions) == 1:
            return _failure(entry, error.exceptions[0], call)  # a nursery's wrapping
    if isinstance(error, McpError | Overloaded):
        raise error
    if isinstance(error, CapabilityMissing) and call.start.era.features.asks_in_results:
        raise error  # 2026-07-28 basic/index: the client MUST be told in an error of its own
    if isinstance(error, ToolError | CapabilityMissing | RequestTimeout):
        return failed(str(error))
    if isinstance(error, LinkClosed) and call.stopped is not None:
        return failed(str(error))  # its session ended while it asked: no fault of its own, and nobody will read this
    logger.error("tool %r failed", entry.name, exc_info=error)
    return failed("The tool failed. Its log has the details.")


def failed(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": True}


def result_of(entry: ToolEntry, value: Any, ctx: Context) -> Any:
    """A tool's return value as it goes over the wire."""
    era = ctx._call.start.era
    if type(value) is str and entry.output is None and entry.check_result is None:
        return {"content": [{"type": "text", "text": value}]}
    if isinstance(value, types.CallToolResult):
        wire = unstructure(value)
        _check(entry, wire)
    elif entry.output is not None:
        structured = entry.output.structured(value)
        bare = structured["result"] if entry.output.wrap else structured
        if type(value) is not entry.function.signature.returns:  # an instance of it is taken at its word
            _refuse_faults(entry, entry.output.faults(bare))
        wire = {"content": [_as_text(bare)], "structuredContent": structured}
    elif entry.check_result is not None:
        structured = dump(value)
        wire = {"content": [_as_text(structured)], "structuredContent": structured}
        _check(entry, wire)
    else:
        wire = {"content": _blocks(value)}
    wire["content"] = lower_content(era, wire["content"])
    return wire if era.features.structured_output else trim(era, "tool result", wire)


def _check(entry: ToolEntry, wire: Mapping[str, Any]) -> None:
    """server/tools: a server MUST give structured results that conform to the output schema."""
    if entry.check_result is None or wire.get("isError"):
        return
    _refuse_faults(entry, entry.check_result.faults(wire.get("structuredContent"), root="structuredContent"))


def _refuse_faults(entry: ToolEntry, faults: Sequence[str]) -> None:
    if faults:
        raise ValueError(f"tool {entry.name!r} returned what its output schema forbids: {'; '.join(faults)}")


def _blocks(value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    if _is_block(value):
        return [unstructure(types.to_content(value))]
    if isinstance(value, list | tuple) and value and all(_is_block(v) for v in value):
        return [unstructure(types.to_content(v)) for v in value]
    return [_as_text(dump(value))]


def _is_block(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, types.Record) and isinstance(value, _content_classes()))


def _as_text(value: Any) -> dict[str, Any]:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return {"type": "text", "text": text}
