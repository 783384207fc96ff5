"""Parked calls: their request was answered with questions, and they wait, suspended, for it to be repeated.

A repeated request carries the answers and a sealed state. If the call is still here it goes on in the same stack frame:
side effects happen once. If it is not (another process, a restart, let go to make room) it is run again from its
journal, provided that its handler allows it.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import trio
from msgspec import Struct, field

from mcptrio import telemetry
from mcptrio._actors.journal import Journal
from mcptrio._peer.effects import Start
from mcptrio._peer.messages import Expired
from mcptrio._struct import Entity
from mcptrio._wire.request_state import MAX_STATE, KeyRing, State, StateRefused, bind_to, digest
from mcptrio.errors import INVALID_PARAMS, LocalProtocolError, McpError

if TYPE_CHECKING:
    from mcptrio._actors.call import Call
    from mcptrio._actors.session import Session

logger = logging.getLogger("mcptrio.parking")

REFUSED: Final = "requestState is not valid for this request; begin again without it"
"""The one answer to every state that is not accepted. Why is in the log, and nowhere else."""
_MAX_USED: Final = 100_000


class Parked(Struct, frozen=True, kw_only=True):
    """A call that waits, and the state that leads back to it."""

    token: str
    state: bytes
    session: Session
    call: int
    until: float


class Parking(Entity, kw_only=True):
    """The parked calls of one process. Lent: the sessions that they live in."""

    audience: str
    keys: KeyRing = field(default_factory=KeyRing.random)
    max_parked: int = 1000
    ttl: float = 600.0
    hub: telemetry.Hub = field(default_factory=telemetry.Hub)
    store: Any = None
    """A durable store: which states have done their work is known there too, after a restart."""
    _parked: dict[str, Parked] = field(default_factory=dict)
    """Oldest first."""
    _used: dict[bytes, float] = field(default_factory=dict)
    """States that were accepted, until they would have expired anyway."""

    def __len__(self) -> int:
        return len(self._parked)

    def leave(self, call: Call, questions: Mapping[str, Any], *, replayable: bool) -> dict[str, Any]:
        """Park a call; gives the result that its request is answered with.

        The journal only travels with a call that may be run again: nobody else would read it.

        Raises:
            LocalProtocolError: what the call has to remember is too much to be sent along.
        """
        token = secrets.token_urlsafe(16)
        journal = call.journal.to_wire(questions) if replayable else {}
        state = State(secrets.token_bytes(16), time.time() + self.ttl, token, journal)
        sealed = self.keys.seal(state, self._binding(call.start, call.session.principal))
        if len(sealed) > MAX_STATE:
            raise LocalProtocolError("the answers and recorded results of this call are too large to be sent along")
        while len(self._parked) >= self.max_parked:
            if self.hub:
                self.hub.emit(telemetry.LimitHit(name="parked"))
            self._let_go(next(iter(self._parked)))
        self._parked[token] = Parked(
            token=token,
            state=state.id,
            session=call.session,
            call=call.start.call,
            until=trio.current_time() + self.ttl,
        )
        return {"resultType": "input_required", "inputRequests": dict(questions), "requestState": sealed}

    def take(self, start: Start, principal: Any, *, may_replay: bool) -> Parked | Journal:
        """What a repeated request belongs to: a call that is parked here, or the journal to run it again with.

        Raises:
            McpError: the state is refused, always with the same words.
        """
        try:
            return self._take(start, principal, may_replay)
        except StateRefused as why:
            logger.warning("%s (id %r): a requestState was refused: %s", start.method, start.request_id, why)
            raise McpError(INVALID_PARAMS, REFUSED) from None

    def _take(self, start: Start, principal: Any, may_replay: bool) -> Parked | Journal:
        sealed = start.params["requestState"]
        if type(sealed) is not str:
            raise StateRefused("not a string")
        state = self.keys.open(sealed, self._binding(start, principal), now=time.time())
        if state.id in self._used:
            raise StateRefused("it was used before")
        parked = self._parked.pop(state.parked, None)
        if parked is None and not (may_replay and state.journal):
            raise StateRefused(
                "the call is not held by this process, and its handler may not be run again: declare the tool "
                "read_only, idempotent or replay=True if it may"
            )
        self._use(state)
        if parked is None:
            return Journal.from_wire(
                state.journal, start.params.get("inputResponses"), "" if self.store is None else _name_of(start)
            )
        return parked

    def _use(self, state: State) -> None:
        if len(self._used) >= _MAX_USED:
            del self._used[next(iter(self._used))]
        self._used[state.id] = state.expires

    def answered(self, start: Start) -> None:
        """A repeated request was answered, so its state has done its work.

        Not before: when a process dies on the way, the request may be repeated once more with the same state.
        """
        if self.store is not None and "requestState" in start.params:
            self.store.sessions.put(_name_of(start), b"")

    async def is_new(self, ticket: str, start: Start) -> bool:
        """Whether a state whose call is to be run again has not done its work already, before a restart."""
        if await self.store.sessions.get(ticket) is None:
            return True
        logger.warning("%s: a requestState was refused: it was used before, by another process", start.method)
        return False

    def _binding(self, start: Start, principal: Any) -> bytes:
        who = "" if principal is None else str(getattr(principal, "key", principal))
        return bind_to(self.audience, start.method, start.params, who)

    def put_back(self, parked: Parked) -> None:
        """A call could not be reached: the same state may be tried again."""
        self._parked[parked.token] = parked
        self._used.pop(parked.state, None)

    def _let_go(self, token: str) -> None:
        parked = self._parked.pop(token)
        parked.session.post_soon(Expired(parked.call))

    def expire(self, now: float) -> None:
        """Let go what has waited for too long. Called by the supervisor every now and then."""
        for token, parked in list(self._parked.items()):
            if parked.until > now:
                break
            self._let_go(token)
        wall = time.time()
        while self._used and self._used[oldest := next(iter(self._used))] <= wall:
            del self._used[oldest]

    def forget(self, session: Session) -> None:
        """A session is over, and its calls with it."""
        for token in [token for token, parked in self._parked.items() if parked.session is session]:
            del self._parked[token]


def _name_of(start: Start) -> str:
    return f"state {digest(start.params['requestState'])}"
