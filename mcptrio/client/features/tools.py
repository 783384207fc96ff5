"""The client's knowledge of the server's tools: their names, header arguments, hints and output schemas."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
import trio
from attrs import define, field

from mcptrio._schema.check import Checker
from mcptrio._schema.faults import ArgumentFaults
from mcptrio._schema.header_marks import InvalidHeaderMark, find_marks
from mcptrio.client.features.headers import headers_from
from mcptrio.client.features.peer_schema import compile_schema
from mcptrio.errors import DeclarationError, RemoteProtocolError, ToolError
from mcptrio.telemetry.log import escape
from mcptrio.types import NULL, CallToolResult, Tool

logger = logging.getLogger("mcptrio.client")
_MAX_NODES: Final = 20_000  # of an input schema
_AT_ONCE: Final = 10  # tools before other tasks run; each may have a large schema


@define(eq=False, repr=False)
class KnownTools:
    """The tools from `tools/list`. A tool that was not listed can still be called; its result is not checked."""

    _tools: dict[str, Tool] = field(factory=dict)
    _marks: dict[str, dict[str, tuple[str, ...]]] = field(factory=dict)
    _checkers: dict[str, Checker] = field(factory=dict)

    async def learn(self, tools: tuple[Tool, ...], *, over_http: bool) -> tuple[Tool, ...]:
        """Remember a page of tools; return those that can be used."""
        usable = []
        for number, tool in enumerate(tools, 1):
            if not number % _AT_ONCE:
                await trio.lowlevel.checkpoint()
            marks: dict[str, tuple[str, ...]] = {}
            if over_http:
                try:
                    marks = find_marks(tool.input_schema, max_nodes=_MAX_NODES)
                except InvalidHeaderMark as error:
                    # 2026-07-28 basic/transports/streamable-http: such a tool MUST be left out, the others stay
                    logger.warning("the tool %r is left out: %s", tool.name, escape(error, 1000))
                    self.forget(tool.name)
                    continue
            usable.append(tool)
            if self._tools.get(tool.name) != tool:
                self._checkers.pop(tool.name, None)
            self._tools[tool.name] = tool
            self._marks[tool.name] = marks
        return tuple(usable)

    def forget(self, name: str) -> None:
        for table in (self._tools, self._marks, self._checkers):
            table.pop(name, None)

    def may_repeat(self, name: str) -> bool:
        """Return whether the server declares this tool read-only or idempotent."""
        tool = self._tools.get(name)
        hints = tool.annotations if tool is not None else None
        return hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)

    def headers(self, name: object, arguments: object) -> dict[str, str]:
        marks = self._marks.get(name) if isinstance(name, str) else None
        return headers_from(marks, arguments if isinstance(arguments, Mapping) else {}) if marks else {}

    def has_marks(self, name: str) -> bool:
        return bool(self._marks.get(name))

    async def check(self, name: str, result: CallToolResult, *, any_value: bool) -> None:
        """Check a result against the tool's output schema.

        Raises:
            RemoteProtocolError: it does not conform.
        """
        tool = self._tools.get(name)
        if tool is None or tool.output_schema is None or result.is_error:
            return
        if result.structured_content is None:
            raise RemoteProtocolError(f"the tool {name!r} has an output schema but returned no structured content")
        value = plain(result.structured_content)
        if not any_value and not isinstance(value, Mapping):
            raise RemoteProtocolError(f"the structured content of the tool {name!r} is not an object")
        checker = self._checkers.get(name)
        if checker is None:
            try:
                checker = await compile_schema(tool.output_schema)
            except DeclarationError as error:
                raise RemoteProtocolError(f"the output schema of the tool {name!r} cannot be used: {error}") from error
            if self._tools.get(name) == tool:  # the list may have changed meanwhile
                self._checkers[name] = checker
        if faults := checker.faults(value, root="structuredContent"):
            raise RemoteProtocolError(f"the result of the tool {name!r} violates its schema: {'; '.join(faults)}")


def plain(value: Any) -> Any:
    """Return a value whose null is a sentinel as plain JSON."""
    return None if value is NULL else value


def convert(result: CallToolResult, into: Any, name: str) -> Any:
    """Convert a result to a value of a type.

    Raises:
        ToolError: the tool failed.
        RemoteProtocolError: the result does not fit the type.
    """
    from mcptrio._schema.build import Reader  # rarely needed and slow to import

    if result.is_error:
        raise ToolError(result.text or f"the tool {name!r} failed")
    reader = Reader(into)
    candidates = list(_candidates(result, reader.schema))
    faults: tuple[str, ...] = ()
    for value in candidates:
        try:
            return reader.read(value, root="result")
        except ArgumentFaults as error:
            faults = faults or error.faults
    raise RemoteProtocolError(f"the result of the tool {name!r} does not fit: {'; '.join(faults) or 'it is empty'}")


def _candidates(result: CallToolResult, schema: Mapping[str, Any]) -> list[Any]:
    """Return where the value may be, most likely first: servers wrap non-objects, and older ones send text only."""
    if result.structured_content is not None:
        value = plain(result.structured_content)
        wrapped = isinstance(value, Mapping) and set(value) == {"result"}
        return [value["result"], value] if wrapped and schema.get("type") != "object" else [value]
    text = result.text
    found: list[Any] = []
    with suppress(msgspec.DecodeError):
        found.append(msgspec.json.decode(text))
    return [text, *found] if schema.get("type") == "string" else [*found, text]
