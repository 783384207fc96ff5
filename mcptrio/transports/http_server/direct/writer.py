"""Responses as bytes of HTTP/1.1."""

from __future__ import annotations

from time import time
from typing import Final
from wsgiref.handlers import format_date_time

from mcptrio.transports.http_server.endpoint.message import JSON, WHOLE_EVENTS, Headers, Plain
from mcptrio.transports.http_server.listener.framing import REASON_PHRASES

LAST_CHUNK: Final = b"0\r\n\r\n"
_USUAL: Final = {  # by identity: most responses have one of these
    id(headers): b"HTTP/1.1 200 OK\r\n"
    + b"".join(b"%b: %b\r\n" % header for header in headers)
    + b"content-length: %d\r\n%b%b"
    for headers in (JSON, WHOLE_EVENTS)
}


class Writer:
    """The encoder of responses, with a cached Date line."""

    def __init__(self) -> None:
        self._date = b""
        self._second = 0

    def whole(self, reply: Plain, *, keep_alive: bool) -> bytes:
        """Return a whole response."""
        usual = _USUAL.get(id(reply.headers)) if reply.status == 200 and keep_alive else None
        if usual is not None:
            return usual % (len(reply.body), self._end_of_head(), reply.body)
        return self.head(reply.status, reply.headers, len(reply.body), keep_alive=keep_alive) + reply.body

    def head(self, status: int, headers: Headers, length: int | None, *, keep_alive: bool) -> bytes:
        """Return the head of a response; without a length its body is chunked."""
        parts = [b"HTTP/1.1 %d %b\r\n" % (status, REASON_PHRASES[status].encode())]
        for name, value in headers:
            if name != b"connection":
                parts.append(b"%b: %b\r\n" % (name, value))
        parts.append(b"transfer-encoding: chunked\r\n" if length is None else b"content-length: %d\r\n" % length)
        if not keep_alive:
            parts.append(b"connection: close\r\n")
        parts.append(self._end_of_head())
        return b"".join(parts)

    def _end_of_head(self) -> bytes:
        now = int(time())
        if now != self._second:
            self._second = now
            self._date = f"date: {format_date_time(now)}\r\n\r\n".encode()
        return self._date


def chunk(data: bytes) -> bytes:
    """Return one chunk of a chunked body."""
    return b"".join((b"%x\r\n" % len(data), data, b"\r\n"))
