"""Links: the destinations of frames, as the machine, the sessions and the handlers see them.

An exchange answers over a `ReplyLink`; a session has a `SessionLink` of its own, and in HTTP each of its POSTs has a
`ReplyLink`. Most links are structs, which cannot inherit from a protocol: they declare every member. The defaults are
for classes that can.
"""

from __future__ import annotations

from typing import Any, Protocol


class RequestHead(Protocol):
    """The head of an HTTP request, as handlers see it."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def client(self) -> tuple[str, int] | None:
        """The address of the peer."""
        ...

    @property
    def principal(self) -> Any:
        """The authenticated caller, a `Principal` (of a layer that this one does not import); None without one."""
        ...

    @property
    def scopes(self) -> frozenset[str] | None:
        """The scopes of the caller; None where scopes are not checked."""
        ...

    def header_map(self) -> dict[str, str]:
        """Return the headers without credentials."""
        ...


class ReplyLink(Protocol):
    """The destination of a session's encoded frames; it never blocks.

    A session posts from its loop, so a stalled reader must not delay a cancel. A link that cannot get rid of its frames
    hangs up. It applies back-pressure only to callers of `room`.
    """

    @property
    def per_request(self) -> bool:
        """Whether the link stands for one request (an HTTP POST) and ends with it, or carries several (a pipe)."""
        return False

    @property
    def head(self) -> RequestHead | None:
        """The HTTP request that the link answers, or that opened its pipe; None if there is none."""
        return None

    @property
    def queued(self) -> float:
        """Seconds for which the request waited to be admitted, before the session got it."""
        return 0.0

    @property
    def full(self) -> bool:
        """Whether `room` may wait."""
        ...

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        """Send a frame. `final` marks the response that the link was waiting for."""
        ...

    def end(self) -> None:
        """Mark the end of the session or call: nothing more will be posted."""
        ...

    async def room(self) -> None:
        """Wait until another notification may be posted without overfilling the link."""
        ...

    def close_connection(self) -> None:
        """Close the connection of a stream that the client can resume; nothing happens on other links."""
        return


class SessionLink(ReplyLink, Protocol):
    """The link of a session: where frames go that answer no request, and whether the session is in use."""

    @property
    def identity(self) -> str:
        """The key of the principal that the session belongs to; empty without authentication."""
        return ""

    @property
    def confirmed(self) -> bool:
        """Whether the client has sent anything after `initialize`; True where that is not required."""
        return True

    @property
    def resting(self) -> bool:
        """Whether no request is served and no stream is open, so that the session may count as idle."""
        return False

    def hide(self) -> None:
        """Hide the session from requests, because it is being passivated."""
        return
