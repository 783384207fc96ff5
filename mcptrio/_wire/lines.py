"""Newline-delimited messages, as used on stdio: arbitrary chunks of bytes in, whole lines out."""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field

from mcptrio._struct import Entity

MAX_LINE: Final = 10 * 1024 * 1024


class LineTooLong(Struct, frozen=True, kw_only=True):
    """A marker for a line that was longer than `limit` bytes and was discarded."""

    limit: int


class LineReader(Entity):
    """A splitter of a byte stream into lines, at linear cost however the bytes are chunked.

    A line ends with LF or CRLF, and blank lines are skipped. The bound counts every byte before the LF. A longer line
    is reported as soon as it is too long, and the rest of it is dropped, so that memory stays bounded too.
    """

    max_line: int = MAX_LINE
    _rest: bytearray = field(default_factory=bytearray)
    _discarding: bool = False

    def feed(self, data: bytes) -> list[bytes | LineTooLong]:
        """Take the next bytes and return the lines that they complete."""
        *pieces, rest = bytes(data).split(b"\n")  # some streams return a mutable buffer
        found: list[bytes | LineTooLong] = []
        for piece in pieces:
            if self._rest or self._discarding or len(piece) > self.max_line:
                self._extend(piece, found)
                self._finish(found)
            elif piece and not piece.isspace():  # a whole line in one chunk, the usual case
                found.append(piece.removesuffix(b"\r"))
        if rest:
            self._extend(rest, found)
        return found

    def eof(self) -> list[bytes | LineTooLong]:
        """Mark the end of the input; bytes after the last newline count as a line."""
        found: list[bytes | LineTooLong] = []
        self._finish(found)
        return found

    def _extend(self, piece: bytes, found: list[bytes | LineTooLong]) -> None:
        if self._discarding:
            return
        if len(self._rest) + len(piece) > self.max_line:
            self._discarding = True
            self._rest = bytearray()
            found.append(LineTooLong(limit=self.max_line))
        else:
            self._rest += piece

    def _finish(self, found: list[bytes | LineTooLong]) -> None:
        rest, self._rest, self._discarding = self._rest, bytearray(), False
        if rest and not rest.isspace():
            found.append(bytes(rest.removesuffix(b"\r")))
