"""Server-sent events (`text/event-stream` of the WHATWG HTML standard): encode them, and parse them incrementally.

The one difference from the standard: bytes that are not UTF-8 end the stream with an error instead of turning into
replacement characters, since what they carry is JSON.
"""

from __future__ import annotations

from typing import Final

from attrs import define, field, frozen

from mcptrio.errors import PARSE_ERROR, RemoteProtocolError

COMMENT: Final = b":\n\n"
"""A keep-alive: readers skip it, proxies see traffic."""

MAX_EVENT: Final = 4 * 1024 * 1024
MAX_RETRY: Final = 10**9  # milliseconds; a longer wait means the same to any reader
_BOM: Final = b"\xef\xbb\xbf"
_FIELD: Final = len(b"data: ")


def encode_event(
    data: bytes | str | None,
    *,
    event: str | None = None,
    id: str | None = None,
    retry: int | None = None,
) -> bytes:
    """Write one event. Without `data` readers dispatch no event, but still use its `id` and `retry`.

    Raises:
        ValueError: a line break in `event` or `id`, a NUL in `id`, or a negative `retry`.
    """
    fields = b""
    if event is not None:
        fields += b"event: %b\n" % _one_line("event", event)
    if id is not None:
        if "\0" in id:
            raise ValueError("the id of an event must not contain NUL: readers would ignore it")
        fields += b"id: %b\n" % _one_line("id", id)
    if retry is not None:
        if retry < 0:
            raise ValueError(f"retry must not be negative: {retry}")
        fields += b"retry: %d\n" % retry
    if data is None:
        return fields + b"\n"
    if isinstance(data, str):
        data = data.encode()
    if b"\n" in data or b"\r" in data:
        whole = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        data = whole.replace(b"\n", b"\ndata: ")
    return b"".join((fields, b"data: ", data, b"\n\n"))


def _one_line(name: str, value: str) -> bytes:
    if "\n" in value or "\r" in value:
        raise ValueError(f"the {name} of an event must be one line: {value!a}")
    return value.encode()


FED_AT_ONCE: Final = 16 * 1024
"""Bytes to feed to a reader before other tasks run: they may hold thousands of tiny events."""


@frozen(kw_only=True)
class ServerSentEvent:
    """One received event. `data` is valid UTF-8; `id` is the last id that the stream has named, or empty."""

    data: bytes
    event: str = "message"
    id: str = ""


@define(eq=False, repr=False)
class SseReader:
    """A parser that turns the bytes of an event stream into events.

    `last_event_id` and `retry` (milliseconds) are for reconnecting. Neither the value of a line nor the data of
    an event may be longer than `max_event`. After an error the stream is useless: events that came before it are still
    returned, `error` is set at once, and every later call raises it.
    """

    max_event: int = MAX_EVENT
    last_event_id: str = field(init=False, default="")
    retry: int | None = field(init=False, default=None)
    error: RemoteProtocolError | None = field(init=False, default=None)
    _line: bytearray = field(init=False, factory=bytearray)
    _data: bytearray = field(init=False, factory=bytearray)
    _event: str = field(init=False, default="")
    _id: str = field(init=False, default="")
    _started: bool = field(init=False, default=False)
    _after_cr: bool = field(init=False, default=False)

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Take the next bytes and return the events that they complete.

        Raises:
            RemoteProtocolError: the stream is not UTF-8 or an event is too large.
        """
        if self.error is not None:
            raise self.error
        events: list[ServerSentEvent] = []
        try:
            self._feed(data, events)
        except RemoteProtocolError as error:
            self.error = error
            self._line, self._data = bytearray(), bytearray()
            if not events:
                raise
        return events

    def eof(self) -> None:
        """Mark the end of the input; an event without its blank line is discarded, as the standard says.

        Raises:
            RemoteProtocolError: the error that `feed` found, if it has not raised it yet.
        """
        if self.error is not None:
            raise self.error

    def _feed(self, data: bytes, events: list[ServerSentEvent]) -> None:
        if self._after_cr and data:
            data = data.removeprefix(b"\n")  # the line ended at the CR already
            self._after_cr = False
        if not data:
            return
        self._after_cr = data.endswith(b"\r")
        pieces = data.splitlines()  # of bytes: at CR, LF and CRLF, nothing else
        unfinished = b"" if data.endswith((b"\r", b"\n")) else pieces.pop()
        for piece in pieces:
            self._extend(piece)
            line, self._line = self._line, bytearray()
            if not self._started:
                self._started, line = True, line.removeprefix(_BOM)
            if line:
                self._take(line)
            else:
                self._dispatch(events)
        self._extend(unfinished)

    def _extend(self, piece: bytes) -> None:
        if len(self._line) + len(piece) > self.max_event + _FIELD:
            raise self._too_large()
        self._line += piece

    def _take(self, line: bytearray) -> None:
        end = line.find(b":")
        if end < 0:
            end = len(line)
        name = line[:end]
        value = line[end + 1 + (line[end + 1 : end + 2] == b" ") :]  # copied once: it may have megabytes
        if name == b"data":
            if len(self._data) + len(value) > self.max_event:
                raise self._too_large()
            self._data += value
            self._data += b"\n"
        elif name == b"event":
            self._event = _text(value)
        elif name == b"id":
            if b"\0" not in value:
                self._id = _text(value)
        elif name == b"retry" and value.isdigit():  # of bytes: ASCII digits only
            digits = value.lstrip(b"0")
            self.retry = min(int(digits or b"0"), MAX_RETRY) if len(digits) < 20 else MAX_RETRY

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        self.last_event_id = self._id
        data, self._data = self._data, bytearray()
        event, self._event = self._event, ""
        if data:
            del data[-1:]
            if not data.isascii():
                _text(data)
            events.append(ServerSentEvent(data=bytes(data), event=event or "message", id=self._id))

    def _too_large(self) -> RemoteProtocolError:
        return RemoteProtocolError(f"The stream has an event of more than {self.max_event} bytes")


def _text(value: bytes | bytearray) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError("The event stream is not UTF-8", code=PARSE_ERROR) from None
