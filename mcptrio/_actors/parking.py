"""Parked calls: their request was answered with questions, and they stay suspended until the client retries it.

The retry carries the answers and a sealed state. If this process holds the call, the handler continues in the same
stack frame, so side effects happen once. The state names the worker of a cluster that holds the call: a retry that
reaches another one is forwarded to it. Otherwise (a dead worker, a restart, an evicted call) the call is replayed from
its journal, if its handler allows that.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import trio
from msgspec import Struct, field

from mcptrio import telemetry
from mcptrio._actors.journal import Journal
from mcptrio._actors.places import ThreadPlace
from mcptrio._actors.shares import Shares
from mcptrio._actors.store import WORKER_MARK
from mcptrio._peer.effects import Start
from mcptrio._peer.messages import Asked, Expired, Failed
from mcptrio._struct import Entity
from mcptrio.auth.request_state import MAX_STATE, KeyRing, RequestState, StateRefused, bind_to, digest
from mcptrio.errors import INVALID_PARAMS, LocalProtocolError

if TYPE_CHECKING:
    from mcptrio._actors.call import Call
    from mcptrio._actors.service import Actor
    from mcptrio._actors.store import Marks
    from mcptrio.auth.server.principal import Principal

logger = logging.getLogger("mcptrio.parking")

REFUSED: Final = "requestState is not valid for this request; begin again without it"
_MAX_USED: Final = 100_000
_MAX_IN_THREADS: Final = 256
"""Parked calls of plain functions: each keeps a thread, which takes a hundred times the memory of a task."""
_DONE: Final = b""
"""The value of a mark for a state whose request was answered."""


class Parked(Struct, frozen=True, kw_only=True):
    """A parked call and the state that leads back to it."""

    token: str
    state: bytes
    session: Actor
    call: int
    until: float
    in_thread: bool
    memory: int
    """Bytes of its requests that count."""


class Parking(Entity, kw_only=True):
    """The parked calls of one process.   Borrows: their sessions."""

    audience: str
    keys: KeyRing = field(default_factory=KeyRing.random)
    max_parked: int = 1000
    max_memory: int = 12 * 1024 * 1024
    """Bytes of the requests of all parked calls."""
    ttl: float = 600.0
    hub: telemetry.Hub = field(default_factory=telemetry.Hub)
    marks: Marks | None = None
    """The marks of a durable store, in which used states are recorded across restarts."""
    shared: bool = False
    """Whether several processes use the store at the same time."""
    worker: str = ""
    """The id of this worker, while it belongs to a cluster."""
    _process: bytes = field(default_factory=lambda: b"process " + secrets.token_hex(8).encode())
    _shares: Shares = field(default_factory=lambda: Shares(0))
    """The parked calls of each owner."""
    _in_threads: Shares = field(default_factory=lambda: Shares(_MAX_IN_THREADS))
    """Those of them whose handler is a plain function."""
    _sized: Shares = field(default_factory=lambda: Shares(0))
    """Those of them whose requests count as memory, by bytes."""
    _memory: int = 0
    _parked: dict[str, Parked] = field(default_factory=dict)
    """Oldest first."""
    _used: dict[bytes, float] = field(default_factory=dict)
    """The ids of accepted states, until they expire."""
    _used_shares: Shares = field(default_factory=lambda: Shares(_MAX_USED))
    """The accepted states of each owner."""

    def __len__(self) -> int:
        return len(self._parked)

    @property
    def process(self) -> bytes:
        """The value of marks for states that this process has accepted and not answered yet."""
        return WORKER_MARK + self.worker.encode() if self.worker else self._process

    def rename(self, worker: str) -> None:
        """Continue under another id, because this worker was declared dead: others may replay the calls it holds."""
        if self.worker:
            for token in list(self._parked):
                self._let_go(token)
        self.worker = worker

    def leave(self, call: Call, questions: Mapping[str, Asked]) -> dict[str, Any]:
        """Park a call; return the result that its request is answered with.

        The state holds the journal only if the call may be replayed.

        Raises:
            LocalProtocolError: the journal is too large for the state, or the process drains and no other one could
                use the state.
        """
        start, token = call.start, secrets.token_urlsafe(16)
        journal = call.journal.seal(questions) if call.session.service.may_replay(start) else None
        outlives = journal is not None and (self.keys.configured or self.marks is not None)
        if call.session.runtime.supervisor.draining and not outlives:
            raise LocalProtocolError("the server is shutting down, and an answer could not be used any more")
        state = RequestState(secrets.token_bytes(16), time.time() + self.ttl, token, journal, self.worker)
        sealed = self.keys.seal(state, self._binding(start.method, start.params, call.session.principal))
        if len(sealed) > MAX_STATE:
            raise LocalProtocolError("the answers and recorded results of this call are too large for its state")
        self._shares.size = self._sized.size = self.max_parked
        in_thread = any(isinstance(place, ThreadPlace) for place in call.places)
        self._count(call.session.owner, token, in_thread)
        self._parked[token] = Parked(
            token=token,
            state=state.id,
            session=call.session,
            call=start.call,
            until=trio.current_time() + self.ttl,
            in_thread=in_thread,
            memory=call.memory,
        )
        call.release()
        self._count_memory(self._parked[token])
        requests = {key: {"method": asked.method, "params": asked.params} for key, asked in questions.items()}
        return {"resultType": "input_required", "inputRequests": requests, "requestState": sealed}

    def worker_of(self, method: str, params: Mapping[str, Any], principal: Principal | None) -> str | None:
        """Return another worker that holds the call of a retry; None if the retry is to be served, or refused, here."""
        sealed = params.get("requestState")
        if type(sealed) is not str:
            return None
        try:
            state = self.keys.open(sealed, self._binding(method, params, principal), now=time.time())
        except StateRefused:
            return None
        return None if state.worker in ("", self.worker) or state.parked in self._parked else state.worker

    def take(self, start: Start, session: Actor) -> Parked | Journal:
        """Find the parked call that a retry belongs to, or the journal to replay it with.

        Raises:
            StateRefused: the state is not valid for this request; answer it with `refusal`.
        """
        sealed = start.params["requestState"]
        if type(sealed) is not str:
            raise StateRefused("not a string")
        binding = self._binding(start.method, start.params, session.principal)
        state = self.keys.open(sealed, binding, now=time.time())
        if state.id in self._used:
            raise StateRefused("it was used before")
        parked = self._parked.pop(state.parked, None)
        if parked is not None:
            self._uncount(parked)
            if parked.session.ended is None:  # otherwise a drain has ended it
                self._use(state, session.owner)
                return parked
        if state.journal is None or not session.service.may_replay(start):
            raise StateRefused(
                "the call is not held by this process, and its handler may not be run again: declare the tool "
                "read_only, idempotent or replay=True if it may"
            )
        if self.marks is None:
            self._use(state, session.owner)
            return Journal.open(state.journal, start.params.get("inputResponses"))
        return Journal.open(state.journal, start.params.get("inputResponses"), _mark_of(start))  # see `is_new`

    def _use(self, state: RequestState, owner: str) -> None:
        if (oldest := self._used_shares.add(owner, state.id)) is not None:
            del self._used[cast(bytes, oldest)]
        self._used[state.id] = state.expires

    def answered(self, start: Start, owner: str) -> None:
        """Mark the state of a request as used once the request is answered.

        Not before: if the process dies on the way, the request may be repeated once more with the same state.
        """
        if self.marks is not None and "requestState" in start.params:
            self.marks.done("state", _mark_of(start), _DONE, self.ttl, owner=owner)

    async def is_new(self, ticket: str, owner: str) -> bool:
        """Return whether a state whose call is to be replayed was neither answered nor accepted here before.

        A mark of another process is one of an earlier process, unless several processes share the store: then it may
        be running, and its mark counts like one of our own. The store replaces the mark of a worker that died.
        """
        used = None
        if self.marks is not None:
            used = await self.marks.use("state", ticket, self.process, self.ttl, owner=owner)
        return used is None or (used not in (_DONE, self.process) and not self.shared)

    def _binding(self, method: str, params: Mapping[str, Any], principal: Principal | None) -> bytes:
        who = "" if principal is None else str(principal.key)
        return bind_to(self.audience, method, params, who)

    def put_back(self, parked: Parked) -> None:
        """Park a call again that could not be reached, so that the client may retry with the same state."""
        self._count(parked.session.owner, parked.token, parked.in_thread)
        self._parked[parked.token] = parked
        self._count_memory(parked)
        self._forget_used(parked.state)

    def _count(self, owner: str, token: str, in_thread: bool) -> None:
        """Count a parked call; if there are too many, the largest owner's oldest is cancelled."""
        for table in (self._shares, self._in_threads) if in_thread else (self._shares,):
            if (oldest := table.add(owner, token)) is not None:
                if self.hub:
                    self.hub.emit(telemetry.LimitHit(name="parked"))
                self._let_go(str(oldest))

    def _count_memory(self, parked: Parked) -> None:
        """Count the bytes of a parked call; if there are too many, the largest owner's oldest is cancelled."""
        if not parked.memory:
            return
        self._sized.add(parked.session.owner, parked.token, parked.memory)
        self._memory += parked.memory
        while self._memory > self.max_memory and len(self._sized) > 1:
            if self.hub:
                self.hub.emit(telemetry.LimitHit(name="parked"))
            self._let_go(str(self._sized.oldest(self._sized.largest())))

    def _uncount(self, parked: Parked) -> None:
        self._shares.remove(parked.token)
        self._in_threads.remove(parked.token)
        if parked.memory:
            self._sized.remove(parked.token)
            self._memory -= parked.memory

    def _let_go(self, token: str) -> None:
        parked = self._parked.pop(token)
        self._uncount(parked)
        parked.session.inbox.post_soon(Expired(parked.call))

    def expire(self, now: float) -> None:
        """Cancel calls that have waited for too long. Called by the supervisor at intervals."""
        for token, parked in list(self._parked.items()):
            if parked.until > now:
                break
            self._let_go(token)
        wall = time.time()
        while self._used and self._used[oldest := next(iter(self._used))] <= wall:
            self._forget_used(oldest)

    def _forget_used(self, state: bytes) -> None:
        self._used.pop(state, None)
        self._used_shares.remove(state)

    def forget(self, session: Actor) -> None:
        """Forget the parked calls of a session that has ended."""
        for token in [token for token, parked in self._parked.items() if parked.session is session]:
            self._uncount(self._parked.pop(token))


def refusal(start: Start, why: object) -> Failed:
    """Return the failure of a request whose state is refused. The reason is logged only."""
    logger.warning("%s (id %r): a requestState was refused: %s", start.method, start.request_id, why)
    return Failed(INVALID_PARAMS, REFUSED)


def _mark_of(start: Start) -> str:
    return digest(start.params["requestState"])
