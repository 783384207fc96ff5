"""Who is served now, who waits, and who is told to come back: bounds on the calls of an endpoint, and fairness.

Theory of operation. While there is room a call costs two counters. When all places are taken, calls wait for a moment
in one queue for each client, and a place that becomes free goes to the clients in turn: whoever sends a thousand
requests at once waits for its own thousand, and another client's single request comes next. When the waiting room is
full too, the client with the longest queue loses its last one.

What one principal may do is bounded over all its connections, whatever they are: `check` is asked for each request by
whoever takes it in, of HTTP, of a WebSocket or of HTTP+SSE.

A session of the latter two has a connection to itself, and its calls come and go unseen. They are counted when they
come, by `check_carried`, and only when that count says that all places are taken are those that are left counted.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio
from attrs import define, field

from mcptrio._actors.rates import Rates, whole_seconds
from mcptrio._actors.session import Session
from mcptrio.errors import Overloaded

from .message import Head, Plain, overloaded

if TYPE_CHECKING:
    from .answer import Endpoint


_NO_PLACE: Final = "too many requests are being served"


@define(eq=False, repr=False)
class _Turn:
    woken: trio.Event = field(factory=trio.Event)
    admitted: bool = False


def identity(principal: Any) -> str:
    """What tells principals apart: their `key` if they have one (issuer, client and subject), else their text."""
    return "" if principal is None else str(getattr(principal, "key", principal))


@define(eq=False, repr=False)
class Admission:
    """The places of one endpoint."""

    endpoint: Endpoint
    calls: int = 0
    """Calls being served, each by a request of its own."""
    carried: int = 0
    """Calls of sessions that have a connection to themselves: those that were left when last counted, and all since."""
    waiting: int = 0
    by_principal: dict[str, int] = field(factory=dict)
    """Of both."""
    sessions: dict[str, int] = field(factory=dict)
    """How many each principal has open."""
    _alone: dict[str, set[Session]] = field(factory=dict)
    """By principal, the sessions that have a connection to themselves."""
    _busy: set[Session] = field(factory=set)
    """Those of them that may have calls."""
    _rates: Rates | None = field(init=False, default=None)
    _queues: dict[str, deque[_Turn]] = field(factory=dict)
    """By client, in the order of their turns."""

    def __attrs_post_init__(self) -> None:
        config = self.endpoint.config
        if config.rate is not None:
            self._rates = Rates(config.rate, config.rate_burst)

    async def enter(self, head: Head, session: str | None, request_id: int | str | None) -> Plain | None:
        """Take a place; whoever got None has to `leave`. Otherwise the answer to give."""
        endpoint, who = self.endpoint, identity(head.principal)
        if endpoint.draining:
            return overloaded("the server is shutting down", 5, request_id=request_id, close=True)
        try:
            self.check(who, who or session or _address(head))
        except Overloaded as error:
            return refuse_excess(error, request_id)
        if who:
            self.by_principal[who] = self.by_principal.get(who, 0) + 1
        if self._has_place():
            self.calls += 1
            return None
        admitted = False
        try:
            admitted = await self._wait(who or session or _address(head))
        finally:
            if not admitted:
                self._uncount(who)
        if admitted:
            return None
        endpoint.limit("max_calls")
        return overloaded(_NO_PLACE, 1, request_id=request_id, limit="max_calls")

    def enter_at_once(self, head: Head) -> bool:
        """The same for a nameless client that there is nothing to refuse for, without waiting."""
        endpoint = self.endpoint
        if (
            head.principal is None
            and self._rates is None
            and self.calls + self.carried < endpoint.config.max_calls
            and not self._queues
            and not endpoint.runtime.supervisor.draining
        ):
            self.calls += 1
            return True
        return False

    def _has_place(self) -> bool:
        """There is a place that nobody waits for."""
        return not self._queues and self._is_free()

    def _is_free(self) -> bool:
        places = self.endpoint.config.max_calls
        return self.calls + self.carried < places or self.calls + self._recount() < places

    def _recount(self) -> int:
        # One whose message waits in its inbox has its call soon.
        self._busy = {session for session in self._busy if session.peer.at_work or session.backlog}
        self.carried = sum(session.peer.at_work for session in self._busy)
        return self.carried

    def leave(self, head: Head) -> None:
        """Give a place back: to the client whose turn it is, if any waits."""
        if head.principal is not None:
            self._uncount(identity(head.principal))
        self._give_back()

    def _uncount(self, who: str) -> None:
        if who:
            _take_one(self.by_principal, who)

    # -- what one client may do

    def check(self, who: str, client: str) -> None:
        """Let a request begin.

        Raises:
            Overloaded: its sender asks for more than it may.
        """
        if self._rates is not None:
            wait = self._rates.take(client, trio.current_time())
            if wait:
                self.endpoint.limit("rate")
                text = "you send more requests than you may"
                raise Overloaded(text, retry_after=whole_seconds(wait), limit="rate", http_status=429)
        if who and self._calls_of(who) >= self.endpoint.config.max_calls_per_principal:
            self.endpoint.limit("max_calls_per_principal")
            text = "too many of your requests are being served"
            raise Overloaded(text, limit="max_calls_per_principal", http_status=429)

    def _calls_of(self, who: str) -> int:
        return self.by_principal.get(who, 0) + sum(session.peer.at_work for session in self._alone.get(who, ()))

    def check_carried(self, session: Session, who: str) -> None:
        """Let a request begin whose session has a connection to itself.

        Raises:
            Overloaded: its sender asks for more than it may, or all places are taken.
        """
        self.check(who, who or session.id)
        if not self._has_place():
            self.endpoint.limit("max_calls")
            raise Overloaded(_NO_PLACE, retry_after=1, limit="max_calls")
        self._busy.add(session)
        self.carried += 1

    def check_sessions(self, who: str) -> None:
        """Let a session begin.

        Raises:
            Overloaded: its principal has too many.
        """
        if who and self.sessions.get(who, 0) >= self.endpoint.config.max_sessions_per_principal:
            self.endpoint.limit("sessions_per_principal")
            raise Overloaded("you have too many sessions", retry_after=30, limit="max_sessions_per_principal")

    def session_began(self, who: str) -> None:
        if who:
            self.sessions[who] = self.sessions.get(who, 0) + 1

    def session_over(self, who: str) -> None:
        if who:
            _take_one(self.sessions, who)

    def carry(self, session: Session, who: str) -> None:
        """Count a session that has a connection to itself, and its calls, until it ends."""
        session.on_end.append(lambda: self._carried_over(session, who))
        if who:
            self.session_began(who)
            self._alone.setdefault(who, set()).add(session)

    def _carried_over(self, session: Session, who: str) -> None:
        self._busy.discard(session)
        if not who:
            return
        self.session_over(who)
        self._alone[who].remove(session)
        if not self._alone[who]:
            del self._alone[who]

    # -- when there is no room

    async def _wait(self, client: str) -> bool:
        if self.waiting >= self.endpoint.config.max_waiting and not self._make_room(client):
            return False
        turn = _Turn()
        self._queues.setdefault(client, deque()).append(turn)
        self.waiting += 1
        try:
            with trio.move_on_after(self.endpoint.config.busy_timeout):
                await turn.woken.wait()
        except BaseException:
            self._forget(client, turn)
            if turn.admitted:  # in this very moment: somebody else shall have it
                self._give_back()
            raise
        self._forget(client, turn)
        if not turn.admitted and self._is_free():  # calls of carried sessions end unseen
            self.calls += 1
            return True
        return turn.admitted

    def _make_room(self, client: str) -> bool:
        longest = max(self._queues, key=lambda name: len(self._queues[name]))
        if len(self._queues[longest]) <= len(self._queues.get(client, ())):
            return False
        last = self._queues[longest][-1]
        self._forget(longest, last)
        last.woken.set()
        return True

    def _forget(self, client: str, turn: _Turn) -> None:
        queue = self._queues.get(client)
        if queue is None or turn not in queue:
            return
        queue.remove(turn)
        self.waiting -= 1
        if not queue:
            del self._queues[client]

    def _admit_next(self) -> None:
        client = next(iter(self._queues))
        queue = self._queues.pop(client)
        turn = queue.popleft()
        self.waiting -= 1
        if queue:
            self._queues[client] = queue  # behind the others
        turn.admitted = True
        turn.woken.set()

    def _give_back(self) -> None:
        if self._queues:
            self._admit_next()
        else:
            self.calls -= 1


def refuse_excess(error: Overloaded, request_id: int | str | None = None) -> Plain:
    return overloaded(str(error), error.retry_after, request_id=request_id, status=error.http_status, limit=error.limit)


def _take_one(counts: dict[str, int], who: str) -> None:
    counts[who] -= 1
    if not counts[who]:
        del counts[who]


def _address(head: Head) -> str:
    return head.client[0] if head.client else ""


def retry_after(answer: bytes) -> int:
    """The seconds for the header: what the error itself says, so that the two never differ; 1 if it says nothing."""
    data = msgspec.json.decode(answer).get("error", {}).get("data")
    said = data.get("retryAfter") if isinstance(data, dict) else None
    return said if isinstance(said, int) and said > 0 else 1
