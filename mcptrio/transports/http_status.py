"""The meaning of HTTP statuses to a client: one table for calls, streams, the WebSocket handshake and sign-in."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import ceil
from typing import Final

from attrs import frozen

_MAX_RETRY_AFTER: Final = 10**6


@frozen(kw_only=True)
class StatusMeaning:
    """The reaction of a client to one HTTP status."""

    retry: bool = False
    """The server, or a proxy in front of it, cannot answer now; another attempt may work."""
    sign_in: bool = False
    """The request needs other credentials."""
    no_session: bool = False
    """The server does not know the session, if the request named one."""
    no_stream: bool = False
    """As the answer to GET: the server has no stream of its own. That is allowed, and not worth a warning."""
    stream_in_use: bool = False
    """As the answer to GET: the server still holds the previous connection of this stream."""
    maybe_legacy: bool = False
    """As the answer to the first POST: the server may support only the transport HTTP+SSE."""


_OTHER: Final = StatusMeaning()
_MEANINGS: Final[Mapping[int, StatusMeaning]] = {
    # basic/transports, Backwards Compatibility: 400, 404 or 405 to a POST may mean HTTP+SSE
    400: StatusMeaning(no_stream=True, maybe_legacy=True),
    401: StatusMeaning(no_stream=True, sign_in=True),
    403: StatusMeaning(no_stream=True, sign_in=True),
    404: StatusMeaning(no_stream=True, maybe_legacy=True, no_session=True),
    405: StatusMeaning(no_stream=True, maybe_legacy=True),
    406: StatusMeaning(no_stream=True),
    409: StatusMeaning(stream_in_use=True),
    429: StatusMeaning(retry=True),
    501: StatusMeaning(no_stream=True),
    502: StatusMeaning(retry=True),
    503: StatusMeaning(retry=True),
    504: StatusMeaning(retry=True),
}  # fmt: skip


def meaning_of(status: int) -> StatusMeaning:
    """Return the meaning of a status; most of them are only a failed request."""
    return _MEANINGS.get(status, _OTHER)


def retry_after(value: str | None, now: datetime | None = None) -> int:
    """Return the seconds of a `Retry-After` header, which holds a number or a date; 0 if there is none."""
    text = (value or "").strip()
    if text.isascii() and text.isdecimal():
        return min(int(text), _MAX_RETRY_AFTER) if len(text) < 20 else _MAX_RETRY_AFTER
    try:
        then = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    seconds = ceil((then - (now or datetime.now(UTC))).total_seconds())
    return min(max(seconds, 0), _MAX_RETRY_AFTER)
