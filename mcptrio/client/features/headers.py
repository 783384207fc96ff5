"""Tool arguments that are repeated in headers: `x-mcp-header` in the schema, `Mcp-Param-*` on the request.

2026-07-28 basic/transports/streamable-http, Custom Headers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from mcptrio._wire.headers import encode_header_value
from mcptrio.errors import LocalProtocolError

MARK: Final = "x-mcp-header"
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TYPES: Final = frozenset({"string", "integer", "boolean"})
_SAFE: Final = 2**53 - 1
_MAX_NODES: Final = 20_000


_OF_THE_PROTOCOL: Final = re.compile(
    "accept|connection|content-(length|type)|host|last-event-id|mcp-(method|name|param-.*|protocol-version|session-id)"
    "|te|transfer-encoding|upgrade",
    re.IGNORECASE,
)


def checked_headers(headers: Mapping[Any, Any]) -> Mapping[str, str]:
    """Return the headers that a caller adds to a request.

    Raises:
        LocalProtocolError: one is not a valid header, or belongs to the protocol.
    """
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str) or not _TOKEN.fullmatch(name):
            raise LocalProtocolError(f"headers: {name!r:.80} is not a header with a text")
        if not value.isprintable():
            raise LocalProtocolError(f"headers: the value of {name} has characters that are not allowed in a header")
        if _OF_THE_PROTOCOL.fullmatch(name):
            raise LocalProtocolError(f"headers: {name} is set by the protocol; leave it out")
    return dict(headers)


class InvalidHeaderMark(ValueError):
    """A mark that makes its tool unusable over HTTP."""


@frozen
class HeaderArgument:
    """One argument that is repeated in a header."""

    path: tuple[str, ...]
    header: str


def find_marks(schema: Mapping[str, Any]) -> tuple[HeaderArgument, ...]:
    """Return the arguments that a tool's input schema marks.

    Raises:
        InvalidHeaderMark: a mark is at a place where it is not allowed, or is malformed.
    """
    found: list[HeaderArgument] = []
    reachable: set[int] = set()
    _walk_properties(schema, (), found, reachable)
    _refuse_elsewhere(schema, reachable)
    names = [one.header.lower() for one in found]
    if len(set(names)) != len(names):
        raise InvalidHeaderMark(f"{MARK} names one header twice")
    return tuple(found)


def _walk_properties(
    schema: Mapping[str, Any], path: tuple[str, ...], found: list[HeaderArgument], reachable: set[int]
) -> None:
    pending = [(schema, path)]
    while pending:
        node, here = pending.pop(0)
        properties = node.get("properties")
        if not isinstance(properties, Mapping):
            continue
        for name, inner in properties.items():
            if not isinstance(inner, Mapping):
                continue
            if MARK in inner:
                found.append(HeaderArgument((*here, name), _checked(inner)))
                reachable.add(id(inner))
            pending.append((inner, (*here, name)))
        if len(found) > 100 or len(pending) > _MAX_NODES:
            raise InvalidHeaderMark("the schema is too large")


def _checked(schema: Mapping[str, Any]) -> str:
    mark = schema[MARK]
    if not isinstance(mark, str) or not _TOKEN.fullmatch(mark):
        raise InvalidHeaderMark(f"{MARK} is not a valid header name: {mark!r:.80}")
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise InvalidHeaderMark(f"{MARK} {mark!r} marks a value that is not a string, integer or boolean")
    return f"Mcp-Param-{mark}"


def _refuse_elsewhere(schema: Mapping[str, Any], reachable: set[int]) -> None:
    """Reject a mark that is not reachable by `properties` alone: it could not be read from the arguments."""
    pending: list[tuple[Any, bool]] = [(schema, False)]
    nodes = 0
    while pending:
        node, is_names = pending.pop()
        nodes += 1
        if nodes > _MAX_NODES:
            raise InvalidHeaderMark("the schema is too large")
        if isinstance(node, Mapping):
            # Below `properties` the keys are names of arguments, one of which may be equal to the mark.
            if not is_names and MARK in node and id(node) not in reachable:
                raise InvalidHeaderMark(f"{MARK} is at a place where no argument can be read")
            pending += [
                (child, not is_names and key in ("properties", "$defs", "patternProperties"))
                for key, child in node.items()
                if is_names or key not in ("default", "const", "enum", "examples")
            ]
        elif isinstance(node, list | tuple):
            pending += [(child, False) for child in node]


def headers_from(marks: tuple[HeaderArgument, ...], arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers for a call with these arguments; absent and null arguments have none."""
    headers = {}
    for mark in marks:
        value: Any = arguments
        for name in mark.path:
            value = value.get(name) if isinstance(value, Mapping) else None
        text = _text(value, mark)
        if text is not None:
            headers[mark.header] = encode_header_value(text)
    return headers


def _text(value: Any, mark: HeaderArgument) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case int():
            if not -_SAFE <= value <= _SAFE:
                raise LocalProtocolError(f"{'.'.join(mark.path)}: {value} is too large for a header")
            return str(value)
        case float() if value.is_integer():
            return str(int(value))
        case str():
            return value
    raise LocalProtocolError(f"{'.'.join(mark.path)}: {type(value).__name__} cannot be sent in a header")
