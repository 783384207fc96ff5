"""Event ids: opaque to clients, checkable by us, worth nothing outside their own session and stream.

An id is `stream.number.mac`. The MAC covers session, stream and number with the store's secret, so a cursor that was
made up, or that belongs to another session, cannot name an event; nothing has to be looked up to know.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

from attrs import define, field

_CURSOR: Final = re.compile(r"([0-9]{1,15})\.([0-9]{1,15})\.([A-Za-z0-9_-]{16})", re.ASCII)


@define(eq=False, repr=False)
class EventIds:
    """The ids of one stream's events."""

    secret: bytes
    session: str
    stream: str
    _prefix: str = field(init=False)
    _mac: blake2b = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._prefix = f"{self.stream}."
        self._mac = blake2b(key=self.secret[:64], digest_size=12, person=b"mcptrio.event")
        # Lengths first: no other pair of session and stream gives the same bytes.
        session = self.session.encode()
        self._mac.update(b"%d:%b%b:" % (len(session), session, self.stream.encode()))

    def of(self, seq: int) -> str:
        """The id of event number `seq`; 0 stands before the first one."""
        mac = self._mac.copy()
        mac.update(b"%d" % seq)
        return f"{self._prefix}{seq}.{urlsafe_b64encode(mac.digest()).decode()}"


def read_cursor(text: str, *, secret: bytes, session: str) -> tuple[str, int] | None:
    """The stream and number that an id names, or None if it is none of this session's ids."""
    match = _CURSOR.fullmatch(text)
    if match is None:
        return None
    stream, number = match[1], int(match[2])
    if not compare_digest(EventIds(secret, session, stream).of(number), text):
        return None
    return stream, number
