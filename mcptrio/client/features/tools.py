"""The server's tools, as the client knows them: which there are, how their arguments travel, what they promise."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from attrs import define, field

from mcptrio._schema.check import Checker, SchemaLimits
from mcptrio._schema.faults import ArgumentFaults
from mcptrio.client.features import mirrored
from mcptrio.client.features.mirrored import BadMark, Mirrored
from mcptrio.errors import DeclarationError, RemoteProtocolError, ToolError
from mcptrio.types import CallToolResult, Tool

logger = logging.getLogger("mcptrio.client")


@define(eq=False, repr=False)
class KnownTools:
    """What was learnt from `tools/list`. A tool that was never listed is called all the same, unchecked."""

    _tools: dict[str, Tool] = field(factory=dict)
    _marks: dict[str, tuple[Mirrored, ...]] = field(factory=dict)
    _checkers: dict[str, Checker] = field(factory=dict)

    def learn(self, tools: tuple[Tool, ...], *, over_http: bool) -> tuple[Tool, ...]:
        """Remember a page of tools; returns those that can be used."""
        usable = []
        for tool in tools:
            marks: tuple[Mirrored, ...] = ()
            if over_http:
                try:
                    marks = mirrored.find_marks(tool.input_schema)
                except BadMark as error:
                    # 2026-07-28 basic/transports/streamable-http: such a tool MUST be left out, the others stay
                    logger.warning("the tool %r is left out: %s", tool.name, error)
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
        """Whether the server says that calling this tool twice does no more than calling it once."""
        tool = self._tools.get(name)
        hints = tool.annotations if tool is not None else None
        return hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)

    def headers(self, name: object, arguments: object) -> dict[str, str]:
        marks = self._marks.get(name, ()) if isinstance(name, str) else ()
        return mirrored.headers_from(marks, arguments if isinstance(arguments, Mapping) else {}) if marks else {}

    def has_marks(self, name: str) -> bool:
        return bool(self._marks.get(name))

    def check(self, name: str, result: CallToolResult, *, any_value: bool) -> None:
        """Hold a result against what the tool promised.

        Raises:
            RemoteProtocolError: it is something else.
        """
        tool = self._tools.get(name)
        if tool is None or tool.output_schema is None or result.is_error:
            return
        if result.structured_content is None:
            raise RemoteProtocolError(f"the tool {name!r} promised structured content and gave none")
        value = plain(result.structured_content)
        if not any_value and not isinstance(value, Mapping):
            raise RemoteProtocolError(f"the structured content of the tool {name!r} is no object")
        checker = self._checkers.get(name)
        if checker is None:
            try:
                checker = self._checkers[name] = Checker(tool.output_schema, limits=SchemaLimits())
            except DeclarationError as error:
                raise RemoteProtocolError(f"the output schema of the tool {name!r} cannot be used: {error}") from error
        if faults := checker.faults(value, root="structuredContent"):
            raise RemoteProtocolError(f"the result of the tool {name!r} is not what it promised: {'; '.join(faults)}")


def plain(value: Any) -> Any:
    """A value whose null has its own sentinel, as JSON."""
    from mcptrio.types import NULL

    return None if value is NULL else value


def convert(result: CallToolResult, into: Any, name: str) -> Any:
    """The result as a value of a type.

    Raises:
        ToolError: the tool failed.
        RemoteProtocolError: the result does not fit the type.
    """
    from mcptrio._schema.build import Reader  # rarely needed, and not quick to import

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
    """Where the value may stand, most likely first: servers wrap what is no object, and older ones send text only."""
    if result.structured_content is not None:
        value = plain(result.structured_content)
        wrapped = isinstance(value, Mapping) and set(value) == {"result"}
        return [value["result"], value] if wrapped and schema.get("type") != "object" else [value]
    text = result.text
    found: list[Any] = []
    with suppress(msgspec.DecodeError):
        found.append(msgspec.json.decode(text))
    return [text, *found] if schema.get("type") == "string" else [*found, text]
