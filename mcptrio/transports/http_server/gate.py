"""Lets one checked request at a time through to the server behind it.

Theory of operation. A `RequestGate` stands between a connection's bytes and whatever serves them. It collects one
request head within bounds, puts it to the checks of `framing`, and hands on a head written anew from what it read, so
that two parsers can never understand the same bytes in two ways. It then follows the body to its end, and holds back
everything after it until the response is complete. So the reader behind it may keep reading while a request is being
served, and sees at once when the peer goes away, also when the peer has pipelined.

Nothing here waits or knows of sockets: `feed` bytes, take `next`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum, auto
from typing import Final

from .framing import TEXT, FramingLimits, Head, MaxBody, Refusal, check_head, parse_head

_BLANK_LINE: Final = re.compile(rb"\n\r?\n")
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*+(?:;" + TEXT + rb"*+)?")
_FIRST_BYTES: Final = frozenset(b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_HELD_MAX: Final = 64 * 1024  # pipelined bytes kept while a response is under way; beyond it nothing is read
_CHUNK_LINE_MAX: Final = 1024  # a chunk's size with its extensions, or one trailer line's beginning
_CHUNK_SLACK: Final = 64 * 1024  # framing bytes forgiven before they must be outweighed by data
_SHORT_LENGTH: Final = 6  # digits
_BROKEN_CHUNK: Final = b"\x00\r\n"  # no chunk size to anyone: makes the parser behind the gate answer 400 and close


class MalformedChunk(Exception):
    """A chunked body whose framing is broken, or is mostly framing."""


class ChunkedBody:
    """Where one is in a chunked body. Extensions and trailers are read over and dropped."""

    def __init__(self, max_trailer_bytes: int) -> None:
        self.done = False
        self._left = 0  # bytes of the current chunk's data still to come
        self._expect: str = "size"  # what the next line is: "size", "end" (of a chunk) or "trailer"
        self._balance = _CHUNK_SLACK
        self._trailers_left = max_trailer_bytes

    def take(self, buffer: bytearray) -> bytes:
        """Remove what can be read from `buffer` and return the data in it.

        Raises:
            MalformedChunk: the body cannot be followed any further.
        """
        data = bytearray()
        at = 0
        while not self.done:
            if self._left:
                piece = buffer[at : at + self._left]
                if not piece:
                    break
                data += piece
                at += len(piece)
                self._left -= len(piece)
                self._balance += len(piece)
                continue
            end = buffer.find(b"\r\n", at, at + _CHUNK_LINE_MAX + 2)
            if end < 0:
                rest = bytes(buffer[at : at + _CHUNK_LINE_MAX + 1])
                if len(rest) > _CHUNK_LINE_MAX or (self._expect == "end" and rest not in (b"", b"\r")):
                    raise MalformedChunk("no end of line")
                break
            self._read_line(bytes(buffer[at:end]))
            at = end + 2
        del buffer[:at]
        return bytes(data)

    def _read_line(self, line: bytes) -> None:
        # A body in one-byte chunks costs far more than its size says: framing must be outweighed by data.
        self._balance -= len(line) + 2
        if self._balance < 0:
            raise MalformedChunk("more framing than data")
        if self._expect == "size":
            match = _CHUNK_SIZE.fullmatch(line)
            if match is None:
                raise MalformedChunk("malformed chunk size")
            self._left = int(match[1], 16)
            self._expect = "end" if self._left else "trailer"
        elif self._expect == "end":
            if line:
                raise MalformedChunk("a chunk is longer than its size")
            self._expect = "size"
        elif line:
            self._trailers_left -= len(line) + 2
            if self._trailers_left < 0:
                raise MalformedChunk("trailers too large")
        else:
            self.done = True


class Phase(Enum):
    """What a connection's peer is expected to send next."""

    IDLE = auto()  # nothing: between requests
    HEAD = auto()  # the rest of a head
    BODY = auto()  # the rest of a body
    BUSY = auto()  # nothing: its request is being served; what comes now is held
    UPGRADING = auto()  # nothing until the WebSocket is accepted
    RAW = auto()  # anything: a WebSocket
    REFUSED = auto()  # nothing that matters any more


class RequestGate:
    """Lets one checked request at a time through to the server behind it."""

    def __init__(self, limits: FramingLimits, max_body: MaxBody | None = None) -> None:
        self.phase = Phase.IDLE
        self.head: Head | None = None  # of the request being served
        self.requests = 0
        self._limits = limits
        self._max_body = max_body
        self._buffer = bytearray()
        self._scanned = 0
        self._skipped_line = False
        self._left = 0
        self._chunked: ChunkedBody | None = None
        self._last_raw = b""
        self._last_head: Head | None = None
        self._around_length: tuple[bytes, bytes] | None = None
        self._body = b""  # of a request that came whole

    @property
    def held(self) -> bool:
        """Whether bytes wait here for a response to end."""
        return bool(self._buffer)

    @property
    def full(self) -> bool:
        """Whether so much is held that no more should be read."""
        return self.phase in (Phase.BUSY, Phase.UPGRADING) and len(self._buffer) >= _HELD_MAX

    @property
    def unread(self) -> bool:
        """Whether the peer may well be sending still: closing now would reset the connection under the response."""
        return self.phase in (Phase.BODY, Phase.RAW, Phase.UPGRADING, Phase.REFUSED)

    def feed(self, data: bytes) -> None:
        """Take what the peer sent."""
        self._buffer += data
        if self.phase is Phase.IDLE:
            self.phase = Phase.HEAD

    def feed_whole(self, data: bytes) -> Head | None:
        """Take what the peer sent if it is one whole request with the last one's head, but for the length; else None.

        Its body is there to be taken.
        """
        head = self._last_head
        if head is None or self.phase is not Phase.IDLE or head.chunked or head.websocket or head.expects_continue:
            return None
        if data.startswith(self._last_raw):
            end = len(self._last_raw)
            if len(data) != end + head.content_length:
                return None
        else:
            if self._around_length is None:
                return None
            before, after = self._around_length
            start = len(before)
            stop = data.find(b"\r", start, start + _SHORT_LENGTH + 1)
            length = data[start:stop]
            if stop < 0 or not length.isdigit() or not data.startswith(before) or not data.startswith(after, stop):
                return None
            end = stop + len(after)
            size = int(length)
            if len(data) != end + size or end > self._limits.max_header_bytes:
                return None
            if self._max_body is not None and size > self._max_body(head):
                return None
            self._last_head = head = head.with_length(length)
            self._last_raw = data[:end]
        self.head = head
        self.requests += 1
        self._body = data[end:]
        self.phase = Phase.BUSY
        return head

    def next(self) -> bytes | Refusal:
        """What to hand on, empty when more has to be fed or a response has to end first; or why to hang up."""
        match self.phase:
            case Phase.HEAD:
                return self._next_head()
            case Phase.BODY:
                return self._next_body()
            case Phase.RAW:
                data = bytes(self._buffer)
                self._buffer.clear()
                return data
            case _:
                return b""

    def release(self) -> None:
        """The response is complete: the next request may come."""
        self.head = None
        self.phase = Phase.HEAD if self._buffer else Phase.IDLE

    def switch(self) -> None:
        """The WebSocket was accepted: from here on everything goes through."""
        self.phase = Phase.RAW

    def refuse(self) -> None:
        """Let nothing through any more."""
        self.phase = Phase.REFUSED

    def _next_head(self) -> bytes | Refusal:
        found = self.next_head()
        if not isinstance(found, Head):
            return b"" if found is None else found
        return self.rewritten(found)

    def next_head(self) -> Head | Refusal | None:
        """The next request's head, without its body; None when more has to be fed first. For whoever reads heads."""
        if self.phase is not Phase.HEAD:
            return None
        found = self._find_head()
        if isinstance(found, Refusal):
            self.phase = Phase.REFUSED
            return found
        if found is None:
            return None
        self.head = found
        self.requests += 1
        if found.websocket:
            self.phase = Phase.UPGRADING
            return found
        self._left = 0 if found.chunked else found.content_length
        self._chunked = ChunkedBody(self._limits.max_header_bytes) if found.chunked else None
        self.phase = Phase.BODY if self._left or self._chunked else Phase.BUSY
        return found

    def rewritten(self, head: Head) -> bytes:
        """The head that was given, and what is there of its body, for whoever reads bytes."""
        return head.encode() + self.take_body()

    def take_body(self) -> bytes:
        """What is there of the body of a request that declared its length."""
        if self.phase is Phase.BODY:
            return self._next_body()
        body, self._body = self._body, b""
        return body

    def _find_head(self) -> Head | Refusal | None:
        buffer = self._buffer
        if not self._skipped_line and buffer[:1] == b"\r":  # RFC 9112 section 2.2: one empty line before is ignored
            if len(buffer) == 1:
                return None
            if buffer[1:2] == b"\n":
                del buffer[:2]
                self._skipped_line = True
        if not buffer:
            return None
        if buffer[0] not in _FIRST_BYTES:
            return Refusal(400, "this is not HTTP")
        limit = self._limits.max_header_bytes
        match = _BLANK_LINE.search(buffer, max(0, self._scanned - 2))
        self._scanned = len(buffer)
        if (match.end() if match else self._scanned) > limit:
            if buffer.find(b"\n", 0, limit) < 0:
                return Refusal(414, f"the request line is longer than {limit} bytes")
            return Refusal(431, f"the request head is larger than {limit} bytes")
        if match is None:
            return None
        raw = bytes(buffer[: match.end()])
        del buffer[: match.end()]
        self._scanned = 0
        self._skipped_line = False
        if raw == self._last_raw:  # a client repeats itself: what was let through once is let through again
            return self._last_head
        head = parse_head(raw, match.start() + 1)
        if isinstance(head, Refusal):
            return head
        refusal = check_head(head, self._limits, self._max_body)
        if refusal is not None:
            return refusal
        self._last_raw, self._last_head = raw, head
        self._around_length = _around_length(raw, head)
        return head

    def _next_body(self) -> bytes:
        if self._chunked is None:
            data = bytes(self._buffer[: self._left])
            del self._buffer[: self._left]
            self._left -= len(data)
            if not self._left:
                self.phase = Phase.BUSY
            return data
        try:
            data = self._chunked.take(self._buffer)
        except MalformedChunk:
            self.phase = Phase.REFUSED
            return _BROKEN_CHUNK
        parts: Iterable[bytes] = (b"%x\r\n%b\r\n" % (len(data), data),) if data else ()
        if self._chunked.done:
            self.phase = Phase.BUSY
            parts = (*parts, b"0\r\n\r\n")
        return b"".join(parts)


def _around_length(raw: bytes, head: Head) -> tuple[bytes, bytes] | None:
    """What stands before and after the length in a head, if it can be replaced by another one."""
    values = head.fields.get(b"content-length")
    if values is None or len(values) != 1 or not values[0].isdigit():
        return None
    name = raw.lower().find(b"\ncontent-length:")
    start = raw.find(values[0], name)
    end = start + len(values[0])
    return (raw[:start], raw[end:]) if name >= 0 and raw[end : end + 2] == b"\r\n" else None
