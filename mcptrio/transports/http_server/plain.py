"""Requests that Hypercorn serves without h11: the gate has read them already, and their answers are simple to write.

Theory of operation. A plain request (`framing.is_plain`) has nothing but a head, which the gate knows, and a body of
declared length, which it follows; a second parser would only find out the same. So Hypercorn's stream is given the
request as the gate read it, and its response is written here, under the rules that h11 has: field names and values are
checked, a body is as long as it was declared, whoever breaks a rule ends the connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from .framing import FIELDS, Head
from .message import EVENTS, JSON, Headers

_LAST_CHUNK: Final = b"0\r\n\r\n"
_NOT_HANDED_ON: Final = frozenset({b"upgrade", b"http2-settings", b"sec-websocket-extensions"})
_USUAL: Final = {  # by identity: most answers of our own application have one of these
    id(headers): b"HTTP/1.1 200 \r\n"
    + b"".join(b"%b: %b\r\n" % header for header in headers)
    + b"content-length: %d\r\n%b\r\n%b"
    for headers in (JSON, EVENTS)
}


def handed_on(head: Head) -> list[tuple[bytes, bytes]]:
    """The headers that the app shall see; see `Head.encode`."""
    return [header for header in head.headers if header[0] not in _NOT_HANDED_ON]


class BrokenResponse(ValueError):
    """The app said something that cannot be sent."""


class PlainReply:
    """Writes one response."""

    def __init__(self, head: Head) -> None:
        self.keeps = b"connection" not in head.fields or b"close" not in head.tokens(b"connection")
        self.ended = False
        self.length: int | None = None
        """Declared by the app; None: its end shows by chunks."""
        self._left = 0
        self._no_body = head.method == b"HEAD"

    def start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        lines = [b"HTTP/1.1 %d \r\n" % status]
        for name, value in headers:
            key = name.lower()
            if key == b"transfer-encoding":
                continue
            if key == b"content-length":
                if not value.isdigit():
                    raise BrokenResponse(f"content-length is no number: {value!a}")
                self.length = self._left = int(value)
            elif key == b"connection":
                if b"close" not in value.lower():
                    continue
                self.keeps = False
                continue
            lines.append(b"%b: %b\r\n" % (name, value))
        if status in (204, 304):
            self._no_body = True
        elif self.length is None:
            lines.append(b"transfer-encoding: chunked\r\n")
        if not self.keeps:
            lines.append(b"connection: close\r\n")
        block = b"".join(lines[1:])
        # One line for each, and each a name and a value: nobody can write a second response into the first.
        if block.count(b"\n") != len(lines) - 1 or not FIELDS.fullmatch(block):
            raise BrokenResponse("a header of the response has characters that it must not have")
        return lines[0] + block + b"\r\n"

    def body(self, data: bytes) -> bytes:
        if self._no_body or not data:
            return b""
        if self.length is None:
            return b"%x\r\n%b\r\n" % (len(data), data)
        self._left -= len(data)
        if self._left < 0:
            raise BrokenResponse("the body of the response is longer than its content-length")
        return data

    def end(self) -> bytes:
        if self._no_body:
            self.ended = True
            return b""
        if self._left > 0:
            raise BrokenResponse("the body of the response is shorter than its content-length")
        self.ended = True
        return _LAST_CHUNK if self.length is None else b""

    def whole(
        self, status: int, headers: Headers, body: bytes, standing: Iterable[tuple[bytes, bytes]], lines: bytes
    ) -> bytes:
        """All of it at once. `standing` is what every response carries, and `lines` the same as it is written."""
        usual = _USUAL.get(id(headers)) if status == 200 and self.keeps and not self._no_body else None
        if usual is not None:
            self.ended = True
            return usual % (len(body), lines, body)
        head = self.start(status, (*headers, (b"content-length", b"%d" % len(body)), *standing))
        return head + self.body(body) + self.end()
