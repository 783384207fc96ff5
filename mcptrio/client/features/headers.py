"""Headers of a request: those that repeat tool arguments (`Mcp-Param-*`), and those that a caller adds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from mcptrio._schema.header_marks import TOKEN
from mcptrio._wire.headers import encode_header_value
from mcptrio.errors import LocalProtocolError

_SAFE: Final = 2**53 - 1
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
        if not isinstance(name, str) or not isinstance(value, str) or not TOKEN.fullmatch(name):
            raise LocalProtocolError(f"headers: {name!r:.80} is not a header with a text")
        if not value.isprintable():
            raise LocalProtocolError(f"headers: the value of {name} has characters that are not allowed in a header")
        if _OF_THE_PROTOCOL.fullmatch(name):
            raise LocalProtocolError(f"headers: {name} is set by the protocol; leave it out")
    return dict(headers)


def headers_from(marks: Mapping[str, tuple[str, ...]], arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers for a call with these arguments; absent and null arguments have none."""
    headers = {}
    for mark, path in marks.items():
        value: Any = arguments
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        text = _text(value, path)
        if text is not None:
            headers[f"Mcp-Param-{mark}"] = encode_header_value(text)
    return headers


def _text(value: Any, path: tuple[str, ...]) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case int():
            if not -_SAFE <= value <= _SAFE:
                raise LocalProtocolError(f"{'.'.join(path)}: {value} is too large for a header")
            return str(value)
        case float() if value.is_integer():
            return str(int(value))
        case str():
            return value
    raise LocalProtocolError(f"{'.'.join(path)}: {type(value).__name__} cannot be sent in a header")
