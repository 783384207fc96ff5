"""Tools: paginated lists, calls with validated arguments, checked results."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final

import trio
from msgspec import field

from mcptrio import types
from mcptrio._actors.cancellation import split_cancelled
from mcptrio._actors.places import hold_place
from mcptrio._actors.router import asyncio_hint, pass_on_interrupt
from mcptrio._eras.shape import lower_content, trimmed
from mcptrio._schema.build import ArgumentFaults, dump
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import LARGE_MESSAGE, LoneSurrogate, encode_finite, escape_surrogates
from mcptrio._wire.objects.converter import unstructure
from mcptrio.errors import (
    INVALID_PARAMS,
    CapabilityMissing,
    ConnectionLost,
    MCPError,
    Overloaded,
    RequestTimeout,
    ToolError,
    UrlElicitationRequired,
)
from mcptrio.server.context import Context
from mcptrio.server.features.lists import list_page
from mcptrio.server.features.media_files import names_files, read_files
from mcptrio.server.features.result_fields import ResultFields
from mcptrio.server.features.scopes import caller_of, is_visible, require_scopes, session_of
from mcptrio.server.features.tool_declaration import ToolEntry, content_classes
from mcptrio.server.registry import Registry

if TYPE_CHECKING:
    from mcptrio._actors.call import Call
    from mcptrio._actors.rates import Rates
    from mcptrio.types import (
        CallToolParams,
        ListToolsParams,
    )

logger = logging.getLogger("mcptrio.tools")


_MAYBE_OBJECT: Final = (dict, type(None))


def usual_call(params: dict[str, Any]) -> CallToolParams | None:
    """Read parameters of the usual shape (name, arguments, perhaps `_meta`); None for any other shape."""
    name, arguments, meta = params.get("name"), params.get("arguments"), params.get("_meta")
    if type(name) is not str or type(arguments) is not dict or len(params) != (2 if meta is None else 3):
        return None
    return types.CallToolParams(name=name, arguments=arguments, meta=meta) if type(meta) in _MAYBE_OBJECT else None


class Tools(Entity):
    """The tools of a server."""

    result_fields: ResultFields
    page_size: int | None = None
    registry: Registry[ToolEntry] = field(default_factory=lambda: Registry("tool"))

    # -- tools/list

    def list_all(self, ctx: Context, params: ListToolsParams) -> Any:
        return list_page(
            ctx, self.registry, params.cursor, self.page_size, self.result_fields, trimmed("tool"), kind="tools"
        )

    # -- tools/call

    async def call(self, ctx: Context, params: CallToolParams) -> Any:
        entry = self.registry.entries.get(params.name)
        if entry is None or (entry.visible is not None and not is_visible(entry, ctx)):
            raise MCPError(INVALID_PARAMS, f"unknown tool: {params.name[:200]!r}")
        if entry.scopes:
            require_scopes(ctx, entry.scopes)
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
            try:
                kwargs = _read_again(entry, arguments, error)
            except ArgumentFaults as final:
                # From 2025-11-25 on the specification asks for a result; older clients show it to the model as well.
                return failed("\n".join(final.faults))
        if entry.requires:
            _require(entry, ctx)
        if entry.around is not None:
            return await entry.around(ctx, partial(self._perform, entry, kwargs))
        return await self._perform(entry, kwargs, ctx)

    async def _perform(self, entry: ToolEntry, kwargs: dict[str, Any], ctx: Context) -> Any:
        try:
            if entry.limiter is None and not entry.serial:
                if entry.timeout is not None:
                    ctx._call.limit(entry.timeout)
                value = await entry.function(ctx, kwargs)
            else:
                value = await self._one_of_few(entry, ctx, kwargs)
            if type(value) is not str and names_files(value):
                value = await read_files(value, ctx)
            wire = result_of(entry, value, ctx)
            if _is_large(wire, value):  # its conversion took milliseconds, and so does its encoding
                await trio.lowlevel.cancel_shielded_checkpoint()
            return wire if entry.max_result_bytes is None else await _shortened(entry.max_result_bytes, wire, ctx)
        except BaseException as error:  # also SystemExit, and a Cancelled of another task: only this call fails
            if split_cancelled(error)[0] is not None:
                raise
            pass_on_interrupt(error)
            return _failure(entry, error, ctx._call)

    async def _one_of_few(self, entry: ToolEntry, ctx: Context, kwargs: dict[str, Any]) -> Any:
        call = ctx._call
        async with AsyncExitStack() as stack:
            call.scope.deadline = inf  # waiting for a slot has a limit of its own
            with trio.move_on_after(call.soft) as waiting:
                if entry.serial:
                    await stack.enter_async_context(hold_place(call, _serial_place(entry, ctx)))
                if entry.limiter is not None:  # second: a call that waits for its session must not hold a shared slot
                    await stack.enter_async_context(hold_place(call, entry.limiter))
            if waiting.cancelled_caught:
                text = f"tool {entry.name!r} is busy, no slot became free within {call.soft:g} s"
                raise Overloaded(text, retry_after=5, limit="tool")
            call.limit(call.soft if entry.timeout is None else entry.timeout)
            return await entry.function(ctx, kwargs)

    def timed_out(self, call: Call) -> dict[str, Any]:
        """Build the result of a call that timed out. It names the tool, the limit and the setting."""
        name, limits = call.start.params.get("name"), call.session.service.limits
        entry = self.registry.entries.get(name) if type(name) is str else None
        about = f"The tool {name!r:.200} was stopped:"
        if entry is not None and entry.timeout is not None:
            return failed(f"{about} it may take {entry.timeout:g} s (`timeout=` of the tool).")
        if trio.current_time() >= call.hard:
            return failed(f"{about} a call may take {limits.call_timeout_hard:g} s (`Limits.call_timeout_hard`).")
        return failed(f"{about} it made no progress for {limits.call_timeout:g} s (`Limits.call_timeout`).")


def _read_again(entry: ToolEntry, arguments: Mapping[str, Any], first: ArgumentFaults) -> dict[str, Any]:
    """Read arguments leniently after the exact reading failed; raise `ArgumentFaults` if that does not help."""
    if entry.strict:
        raise first
    from mcptrio._schema.lenient import coerced

    exact, arguments = arguments, coerced(entry.function.signature.input_schema, arguments)
    if arguments is exact:
        raise first
    if entry.check_arguments is not None and (faults := entry.check_arguments.faults(arguments, root="arguments")):
        raise ArgumentFaults(tuple(faults))
    return entry.function.signature.bind(arguments)


def _serial_place(entry: ToolEntry, ctx: Context) -> trio.CapacityLimiter:
    """Return the place of a serial tool: one for each session, or for each caller where requests have no session."""
    return ctx._session.runtime.one_at_a_time(entry.name, session_of(ctx) or caller_of(ctx))


def _check_rate(entry: ToolEntry, rates: Rates, ctx: Context) -> None:
    wait = rates.take(caller_of(ctx), trio.current_time())
    if wait:
        from mcptrio._actors.rates import whole_seconds

        text = f"rate limit exceeded for tool {entry.name}"
        raise Overloaded(text, retry_after=whole_seconds(wait), limit="rate", http_status=429)


def _require(entry: ToolEntry, ctx: Context) -> None:
    missing: dict[str, Any] = {name: {} for name in entry.requires if ctx._declared.get(name) is None}
    if missing:
        raise CapabilityMissing(
            f"tool {entry.name!r} requires client capabilities that were not declared: {', '.join(missing)}",
            required=missing,
        )


def _failure(entry: ToolEntry, error: BaseException, call: Call) -> dict[str, Any]:
    """Build the result of a call that raised `error`; re-raise errors that are not the tool's own."""
    if isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        return _failure(entry, error.exceptions[0], call)  # wrapped by a nursery
    if isinstance(error, UrlElicitationRequired) and not call.start.era.features.elicitation_error:
        return failed(f"{error.message}: {' '.join(page['url'] for page in error.elicitations)}")
    if isinstance(error, MCPError | Overloaded):
        raise error
    if isinstance(error, CapabilityMissing) and call.start.era.features.asks_in_results:
        raise error  # 2026-07-28 basic/index: the client MUST get a protocol error
    if isinstance(error, ToolError | CapabilityMissing | RequestTimeout):
        return failed(str(error))
    if isinstance(error, ConnectionLost) and call.stopped is not None:
        return failed(str(error))  # the session ended during an ask: not the tool's fault, and not worth an error log
    why = ": it raised a Cancelled that belongs to another task" if isinstance(error, trio.Cancelled) else ""
    logger.error("tool %r failed%s", entry.name, why or asyncio_hint(error), exc_info=error)
    if isinstance(error, LoneSurrogate):
        return failed(f"tools/call {entry.name!r} failed: {error.reason}")
    return failed("The tool failed. The server log has the details.")


def failed(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": escape_surrogates(text)}], "isError": True}


def result_of(entry: ToolEntry, value: Any, ctx: Context) -> Any:
    """Convert a tool's return value to the wire form."""
    if type(value) is str and entry.output is None and entry.check_result is None:
        return {"content": [{"type": "text", "text": value}]}
    if isinstance(value, types.CallToolResult):
        wire = unstructure(value)
        _check(entry, wire)
    elif entry.output is not None:
        structured = entry.output.structured(value)
        bare = structured["result"] if entry.output.wrap else structured
        if type(value) is not entry.function.signature.returns:  # instances of the annotated class are trusted
            _refuse_faults(entry, entry.output.faults(bare))
        if entry.result == "both":
            wire = {"content": [_as_text(bare)], "structuredContent": structured}
        else:
            wire = _one_form(entry, bare, structured, ctx)
    elif entry.check_result is not None:
        structured = dump(value)
        _check(entry, {"structuredContent": structured})
        wire = _one_form(entry, structured, structured, ctx)
    else:
        wire = {"content": _blocks(value)}
    # Clients of revisions without `structuredContent` ignore it.
    wire["content"] = lower_content(ctx._call.start.era, wire["content"])
    return wire


def _is_large(wire: Mapping[str, Any], value: Any) -> bool:
    """Return whether a typed result is large, by its text. The value of the tool is not needed any more then."""
    if "structuredContent" not in wire or isinstance(value, types.CallToolResult):
        return False  # parts of a `CallToolResult` still belong to the tool, which may change them
    content = wire["content"]
    return bool(content) and len(content[0]["text"]) > LARGE_MESSAGE


def _one_form(entry: ToolEntry, value: Any, structured: Any, ctx: Context) -> dict[str, Any]:
    """Build a result in the form of `ToolDefaults.result`."""
    if entry.result == "text":
        return {"content": [_as_text(value)]}
    # Revisions without structured content get the text.
    if entry.result == "structured" and "outputSchema" in ctx._call.start.era.shapes["tool"]:
        return {"content": [], "structuredContent": structured}
    return {"content": [_as_text(value)], "structuredContent": structured}


async def _shortened(limit: int, wire: dict[str, Any], ctx: Context) -> dict[str, Any]:
    from mcptrio.server.features.large_results import shortened  # few tools have a limit

    return await shortened(wire, limit, ctx)


def _check(entry: ToolEntry, wire: Mapping[str, Any]) -> None:
    """Check a structured result (server/tools: servers MUST conform to the output schema)."""
    if entry.check_result is None or wire.get("isError"):
        return
    _refuse_faults(entry, entry.check_result.faults(wire.get("structuredContent"), root="structuredContent"))


def _refuse_faults(entry: ToolEntry, faults: Sequence[str]) -> None:
    if faults:
        raise ValueError(
            f"tool {entry.name!r} returned a result that does not match its output schema: {'; '.join(faults)}"
        )


def _blocks(value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    if _is_block(value):
        return [unstructure(types.to_content(value))]
    if isinstance(value, list | tuple) and value:
        blocks = [_is_block(v) for v in value]
        # A list with media in it is a list of content blocks; what is no block there becomes text.
        if all(blocks) or any(block and not isinstance(v, str) for block, v in zip(blocks, value, strict=True)):
            return [
                unstructure(types.to_content(v)) if block else _as_text(dump(v))
                for block, v in zip(blocks, value, strict=True)
            ]
    return [_as_text(dump(value))]


def _is_block(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, types.Record) and isinstance(value, content_classes()))


def _as_text(value: Any) -> dict[str, Any]:
    """Return a block with the text of a value that `dump` made."""
    text = value if isinstance(value, str) else encode_finite(value).decode()
    return {"type": "text", "text": text}
