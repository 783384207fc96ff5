"""The gate of a connection: passes one checked request at a time to the engine behind it.

Theory of operation. A `RequestGate` stands between the bytes of a connection and its engine. It collects one request
head within bounds, checks it with the table in `framing`, and passes on a head that it writes itself, so that two
parsers never read the same bytes in two ways. It then follows the body to its end, and holds back everything after it
until the response is complete. So the engine may keep reading while a request is being served, and notices a
disconnect at once, even if the peer has pipelined requests.

The bytes of a body leave the gate with their request (`RawRequest`), or are passed on as they arrive. The gate keeps
none of them for later, so the body of a request that was refused cannot reach the next one. What the gate remembers of
a request is its parsed head: a head with the same bytes is not parsed again. Every check that depends on more than
these bytes is made by the endpoint, for every request.

Nothing here waits or knows sockets: `feed` bytes, take `next`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum, auto
from typing import Final

from attrs import frozen

from .framing import TEXT, FramingLimits, RawHead, Refusal, check_head, parse_head

_BLANK_LINE: Final = re.compile(rb"\n\r?\n")
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*+(?:;" + TEXT + rb"*+)?")
_FIRST_BYTES: Final = frozenset(b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_HELD_MAX: Final = 64 * 1024  # pipelined bytes kept while a response is under way; beyond it nothing is read
_CHUNK_LINE_MAX: Final = 1024  # a chunk's size with its extensions, or one trailer line's beginning
_CHUNK_SLACK: Final = 64 * 1024  # framing bytes forgiven before they must be outweighed by data
_SHORT_LENGTH: Final = 6  # digits
_BROKEN_CHUNK: Final = b"\x00\r\n"  # never a valid chunk size: makes the parser behind the gate answer 400 and close


class MalformedChunk(Exception):
    """A chunked body whose framing is broken, or is mostly framing."""


class ChunkedBody:
    """The position in a chunked body. Extensions and trailers are skipped."""

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


@frozen
class RawRequest:
    """One request as it arrived: its head, and the part of its body that was already there."""

    head: RawHead
    body: bytes = b""

    def encode(self) -> bytes:
        """Return the bytes for the parser behind the gate."""
        return self.head.encoded + self.body


class ReadPhase(Enum):
    """The next input that is expected from the peer of a connection."""

    IDLE = auto()  # nothing: between requests
    HEAD = auto()  # the rest of a head
    BODY = auto()  # the rest of a body
    BUSY = auto()  # nothing: its request is being served; what comes now is held
    UPGRADING = auto()  # nothing until the WebSocket is accepted
    RAW = auto()  # anything: a WebSocket
    REFUSED = auto()  # nothing that matters any more


class RequestGate:
    """A gate that passes one checked request at a time to the engine behind it."""

    def __init__(self, limits: FramingLimits) -> None:
        self.phase = ReadPhase.IDLE
        self.head: RawHead | None = None  # of the request being served
        self.requests = 0
        self._limits = limits
        self.buffer = bytearray()
        """Bytes that were fed and have not left yet; those after a request wait for the response to end."""
        self._scanned = 0
        self._skipped_line = False
        self._left = 0
        self._chunked: ChunkedBody | None = None
        self._last_raw = b""
        self._last_head: RawHead | None = None
        self._around_length: tuple[bytes, bytes] | None = None

    @property
    def unread(self) -> bool:
        """Whether the peer is probably still sending: closing now would reset the connection under the response."""
        return self.phase in (ReadPhase.BODY, ReadPhase.RAW, ReadPhase.UPGRADING, ReadPhase.REFUSED)

    def feed(self, data: bytes) -> None:
        """Take what the peer sent."""
        self.buffer += data
        if self.phase is ReadPhase.IDLE:
            self.phase = ReadPhase.HEAD

    def feed_whole(self, data: bytes) -> RawRequest | None:
        """Take data that is one whole request whose head repeats the last one, except for the length; else None."""
        head = self._last_head
        if head is None or self.phase is not ReadPhase.IDLE or head.chunked or head.websocket or head.expects_continue:
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
            if self._limits.max_body is not None and size > self._limits.max_body:
                return None
            self._last_head = head = head.with_length(length)
            self._last_raw = data[:end]
        self.head = head
        self.requests += 1
        self.phase = ReadPhase.BUSY
        return RawRequest(head, data[end:])

    def next(self) -> bytes | Refusal | None:
        """Return the bytes to pass on, or why the connection ends.

        Empty when more has to be fed, or a response has to be completed first; None when so much is held until then
        that no more should be read.
        """
        match self.phase:
            case ReadPhase.HEAD:
                found = self.next_request()
                return found.encode() if isinstance(found, RawRequest) else found or b""
            case ReadPhase.BODY:
                return self._next_body()
            case ReadPhase.RAW:
                data = bytes(self.buffer)
                self.buffer.clear()
                return data
            case ReadPhase.BUSY | ReadPhase.UPGRADING if len(self.buffer) >= _HELD_MAX:
                return None
            case _:
                return b""

    def release(self) -> None:
        """Accept the next request, because the response is complete."""
        self.head = None
        self.phase = ReadPhase.HEAD if self.buffer else ReadPhase.IDLE

    def switch(self) -> None:
        """Pass everything through, because the WebSocket was accepted."""
        self.phase = ReadPhase.RAW

    def refuse(self) -> None:
        """Pass nothing through any more."""
        self.phase = ReadPhase.REFUSED

    def next_request(self) -> RawRequest | Refusal | None:
        """Return the next request with what is there of its body; None when more has to be fed first."""
        if self.phase is not ReadPhase.HEAD:
            return None
        found = self._find_head()
        if isinstance(found, Refusal):
            self.phase = ReadPhase.REFUSED
            return found
        if found is None:
            return None
        self.head = found
        self.requests += 1
        if found.websocket:
            self.phase = ReadPhase.UPGRADING
            return RawRequest(found)
        self._left = 0 if found.chunked else found.content_length
        self._chunked = ChunkedBody(self._limits.max_header_bytes) if found.chunked else None
        self.phase = ReadPhase.BODY if self._left or self._chunked else ReadPhase.BUSY
        return RawRequest(found, self._next_body() if self.phase is ReadPhase.BODY else b"")

    def _find_head(self) -> RawHead | Refusal | None:
        buffer = self.buffer
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
        if raw == self._last_raw:  # the same bytes have the same meaning
            return self._last_head
        head = parse_head(raw, match.start() + 1)
        if isinstance(head, Refusal):
            return head
        refusal = check_head(head, self._limits)
        if refusal is not None:
            return refusal
        self._last_raw, self._last_head = raw, head
        self._around_length = _around_length(raw, head)
        return head

    def _next_body(self) -> bytes:
        if self._chunked is None:
            data = bytes(self.buffer[: self._left])
            del self.buffer[: self._left]
            self._left -= len(data)
            if not self._left:
                self.phase = ReadPhase.BUSY
            return data
        try:
            data = self._chunked.take(self.buffer)
        except MalformedChunk:
            self.phase = ReadPhase.REFUSED
            return _BROKEN_CHUNK
        parts: Iterable[bytes] = (b"%x\r\n%b\r\n" % (len(data), data),) if data else ()
        if self._chunked.done:
            self.phase = ReadPhase.BUSY
            parts = (*parts, b"0\r\n\r\n")
        return b"".join(parts)


def _around_length(raw: bytes, head: RawHead) -> tuple[bytes, bytes] | None:
    """Return the bytes before and after the length in a head, if it can be replaced by another one."""
    values = head.fields.get(b"content-length")
    if values is None or len(values) != 1 or not values[0].isdigit():
        return None
    name = raw.lower().find(b"\ncontent-length:")
    start = raw.find(values[0], name)
    end = start + len(values[0])
    return (raw[:start], raw[end:]) if name >= 0 and raw[end : end + 2] == b"\r\n" else None
