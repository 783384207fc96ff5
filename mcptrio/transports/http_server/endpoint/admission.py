"""Admission: limits on the calls, bodies and sessions of an endpoint, shared fairly between its clients.

Theory of operation. A call takes a place of `max_calls`, a batch as many as it holds requests. While places are free
that costs two counters; when all are taken, requests wait for `Limits.busy_timeout`, and places go to the clients in
turn (`_actors/shares`). One principal has limits of its own over all its connections: HTTP, WebSocket and HTTP+SSE.

A session of the latter two has a connection of its own, and its calls end unseen. They are counted when they come, and
counted again only when that count says that all places are taken.
"""

from __future__ import annotations

from random import uniform
from typing import Any, Final

import msgspec
import trio
from attrs import define, field

from mcptrio import telemetry
from mcptrio._actors.rates import Rates, whole_seconds
from mcptrio._actors.session import Session
from mcptrio._actors.shares import Owners, Shares
from mcptrio._actors.supervisor import Supervisor
from mcptrio._actors.unread import Unread
from mcptrio._wire.jsonrpc import AnyFrame, Batch, Frame, Malformed, Request
from mcptrio._wire.sized import memory_for
from mcptrio.errors import Overloaded
from mcptrio.transports.http_server.config import HttpConfig

from .message import HttpRequest, Plain, id_of, overloaded, refuse_overloaded

SMALL: Final = 64 * 1024
"""Bytes of a body or a WebSocket message that need no reservation of memory."""
_EXCESS_DELAY: Final = (0.5, 1.5)
"""Delay of the refusal for a client that sends too much, in seconds; random, so that its retries spread out."""
_NO_MEMORY: Final = "calls keep too many large messages"
_NO_PLACE: Final = "too many requests are being served"


@define(eq=False, repr=False)
class Admission:
    """The places and the body memory of one endpoint."""

    config: HttpConfig
    supervisor: Supervisor
    owners: Owners
    hub: telemetry.Hub
    call_memory: Shares
    """Bytes of large messages that calls keep: their requests, and the answers to their questions."""
    places: Shares = field(init=False)
    """One for each request that is being served; `reserved` counts those of WebSocket and HTTP+SSE sessions."""
    body_memory: Shares = field(init=False)
    """Bytes of bodies larger than `SMALL`, from the moment that so much has arrived until the answer is there, but not
    while it is written; also of large WebSocket messages, until they are handled, see `MessageMemory`."""
    unread: Unread = field(init=False)
    """Bytes that wait for clients to read them."""
    sessions: dict[str, int] = field(factory=dict)
    """The number of open sessions of each principal."""
    _alone: dict[str, set[Session]] = field(factory=dict)
    """By principal, the sessions that have a connection of their own."""
    _busy: set[Session] = field(factory=set)
    """Sessions with a connection of their own that may have calls."""
    _rates: Rates | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        config = self.config
        self.places = Shares(config.max_calls, config.max_waiting, self.owners)
        self.body_memory = Shares(config.max_body_memory, config.max_waiting, self.owners)
        self.unread = Unread(config.max_outbox_memory, self.hub, self.owners)
        if config.rate is not None:
            self._rates = Rates(config.rate, config.rate_burst)

    # -- calls

    async def enter(self, request: HttpRequest, frame: Frame | Batch) -> Plain | None:
        """Take the places of a request; return None, after which it has to `leave`, or the refusal."""
        amount = requests_in(frame)
        if self.supervisor.refuses:
            return overloaded("the server is shutting down", 5, request_id=id_of(frame), close=True)
        owner = request.owner
        try:
            self._check("" if request.principal is None else owner, owner, amount)
        except Overloaded as error:
            # A client that repeats refused requests at once, on many connections, would keep the event loop busy.
            self.release_body(request)
            await trio.sleep(uniform(*_EXCESS_DELAY))
            return refuse_overloaded(error, id_of(frame))
        if not self._take(owner, amount):
            began = trio.current_time()
            admitted = await self.places.wait(owner, amount, timeout=self.supervisor.limits.busy_timeout)
            request.queued = trio.current_time() - began
            # Once more: calls of sessions with a connection of their own end unseen.
            if not admitted and not self._take(owner, amount):
                self._limit("max_calls")
                return overloaded(_NO_PLACE, 1, request_id=id_of(frame), limit="max_calls")
        request.places = amount
        return None

    def enter_at_once(self, request: HttpRequest) -> bool:
        """Take the place of a call for which no client waits in line; return whether there was one."""
        owner = request.owner
        try:
            self._check("" if request.principal is None else owner, owner, 1)
        except Overloaded:
            return False
        request.places = int(self._take(owner, 1))
        return bool(request.places)

    def _take(self, owner: str, amount: int) -> bool:
        if self.places.take(owner, amount):
            return True
        if not self.places.reserved:
            return False
        self._recount()
        self.places.admit()
        return self.places.take(owner, amount)

    def leave(self, request: HttpRequest) -> None:
        """Give the places of a request back."""
        if request.places:
            amount, request.places = request.places, 0
            self.places.give_back(request.owner, amount)

    def _recount(self) -> None:
        # A session whose message waits in its inbox has its call soon.
        self._busy = {session for session in self._busy if session.peer.at_work or session.inbox.backlog}
        self.places.reserved.clear()
        for session in self._busy:
            self._reserve(session.owner, session.peer.at_work)

    def _reserve(self, owner: str, amount: int) -> None:
        if amount:
            self.places.reserved[owner] = self.places.reserved.get(owner, 0) + amount

    def _limit(self, name: str) -> None:
        if self.hub:
            self.hub.emit(telemetry.LimitHit(name=name))

    def _check(self, who: str, owner: str, amount: int) -> None:
        if self._rates is not None:
            wait = self._rates.take(owner, trio.current_time(), amount)
            if wait:
                self._limit("rate")
                text = "you send more requests than you may"
                raise Overloaded(text, retry_after=whole_seconds(wait), limit="rate", http_status=429)
        if who and self._calls_of(who) + amount > self.config.max_calls_per_principal:
            self._limit("max_calls_per_principal")
            text = "too many of your requests are being served"
            raise Overloaded(text, limit="max_calls_per_principal", http_status=429)

    def _calls_of(self, who: str) -> int:
        return self.places.claimed(who) + sum(session.peer.at_work for session in self._alone.get(who, ()))

    # -- sessions with a connection of their own

    def carry(self, session: Session, who: str) -> None:
        """Count a session that has a connection of its own, and its calls, until it ends."""
        session.on_end.append(lambda: self._carried_over(session, who))
        if who:
            self.session_began(who)
            self._alone.setdefault(who, set()).add(session)

    def check_carried(self, session: Session, who: str, frame: AnyFrame) -> None:
        """Let a message begin whose session has a connection of its own.

        Raises:
            Overloaded: its sender sends too much, or all places are taken, or the message is large and the calls leave
                no room for it.
        """
        if type(frame) in (Request, tuple):
            self._check_place(session, who, requests_in(frame))
        if (size := memory_for(frame)) and not self.call_memory.has_room(session.owner, size):
            self._limit("max_call_memory")
            raise Overloaded(_NO_MEMORY, retry_after=1, limit="max_call_memory")

    def _check_place(self, session: Session, who: str, amount: int) -> None:
        self._check(who, session.owner, amount)
        if not self.places.has_room(session.owner, amount):
            self._recount()
            self.places.admit()
            if not self.places.has_room(session.owner, amount):
                self._limit("max_calls")
                raise Overloaded(_NO_PLACE, retry_after=1, limit="max_calls")
        self._busy.add(session)
        self._reserve(session.owner, amount)

    def _carried_over(self, session: Session, who: str) -> None:
        self._busy.discard(session)
        if not who:
            return
        self.session_over(who)
        self._alone[who].remove(session)
        if not self._alone[who]:
            del self._alone[who]

    # -- sessions

    def check_sessions(self, who: str) -> None:
        """Let a session begin.

        Raises:
            Overloaded: its principal has too many.
        """
        if who and self.sessions.get(who, 0) >= self.config.max_sessions_per_principal:
            self._limit("sessions_per_principal")
            raise Overloaded("you have too many sessions", retry_after=30, limit="max_sessions_per_principal")

    def session_began(self, who: str) -> None:
        if who:
            self.sessions[who] = self.sessions.get(who, 0) + 1

    def session_over(self, who: str) -> None:
        if who:
            self.sessions[who] -= 1
            if not self.sessions[who]:
                del self.sessions[who]

    # -- bodies

    async def reserve_message(self, request: HttpRequest, size: int) -> Plain | None:
        """Wait until the calls leave room for a large message; return the refusal if they do not.

        It is decoded only then, because a body of 64 KiB may take twenty times as much while it waits for a place. The
        call takes the memory for itself when it gets the message.
        """
        if not await self.call_memory.wait(request.owner, size, timeout=self.supervisor.limits.busy_timeout):
            self._limit("max_call_memory")
            return overloaded(_NO_MEMORY, 1, limit="max_call_memory")
        request.message_memory = size
        return None

    def release_message(self, request: HttpRequest) -> None:
        """Give the memory of a message back, if it has any."""
        if request.message_memory:
            size, request.message_memory = request.message_memory, 0
            self.call_memory.give_back(request.owner, size)

    async def reserve_body(self, request: HttpRequest) -> bool:
        """Wait for memory for a body of which `SMALL` bytes have arrived; return False if there is none in time."""
        declared = request.fields.get(b"content-length")
        size = self.config.max_body if declared is None else int(declared)
        if not await self.body_memory.wait(request.owner, size, timeout=self.supervisor.limits.busy_timeout):
            return False
        request.body_memory = size
        return True

    def body_deadline(self, reserved_at: float, arrived: int) -> float:
        """Return by when more must arrive of a body that holds memory, and of which `arrived` bytes are there."""
        return reserved_at + min(self.config.body_timeout, arrived / self.config.min_body_rate)

    def release_body(self, request: HttpRequest) -> None:
        """Give the memory of a body back, if it has any."""
        if request.body_memory:
            size, request.body_memory = request.body_memory, 0
            self.body_memory.give_back(request.owner, size)


def requests_in(frame: AnyFrame) -> int:
    """Return how many requests a message holds, at least 1."""
    if type(frame) is not tuple:
        return 1
    return max(1, sum(isinstance(member, Request | Malformed) for member in frame))


def retry_after(answer: bytes) -> int:
    """Return the seconds for the Retry-After header: those of the error itself, else 1."""
    data: Any = msgspec.json.decode(answer).get("error", {}).get("data")
    said = data.get("retryAfter") if isinstance(data, dict) else None
    return said if isinstance(said, int) and said > 0 else 1
