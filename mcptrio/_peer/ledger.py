"""Who awaits which id, on both sides of one session.

A *call* is a request that the peer made and a handler works on; it has a serial number of our own, since a peer may
reuse its ids. An *ask* is a request that this side made; the peer's answer settles its reply.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from msgspec import field

from mcptrio._peer.effects import Start
from mcptrio._peer.messages import Asked, Outcome
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import ErrorResponse, Response

RequestId = int | str


class Group(Entity):
    """The answers to one batch, which leave together."""

    expected: int
    link: Any
    answers: list[Response | ErrorResponse] = field(default_factory=list)


class Round(Entity):
    """The questions of a call at a date at which questions travel in results."""

    questions: dict[str, Asked] = field(default_factory=dict)
    latest: Any = None
    """The reply to the question that was asked last."""
    parked: bool = False
    """The request was answered with the questions; it comes again, or it does not."""
    outcome: Outcome | None = None
    """How the handler ended, if it did while nobody could be told."""


class Entry(Entity):
    """A call that has not been answered yet."""

    start: Start
    group: Group | None = None
    running: bool = False
    asks: set[int] | None = None
    round: Round | None = None


class Ask(Entity):
    """A request to the peer that has not been answered yet."""

    id: int
    method: str
    reply: Any
    call: int | None


class Ledger(Entity):
    """The books of one session. Request ids never leave it, so they mean nothing to any other session."""

    _calls: dict[int, Entry] = field(default_factory=dict)
    _by_id: dict[RequestId, int] = field(default_factory=dict)
    _waiting: deque[int] | None = None
    _asks: dict[int, Ask] | None = None
    _by_reply: dict[Any, int] | None = None
    _last_call: int = 0
    _last_ask: int = 0
    running: int = 0
    parked: int = 0

    # -- calls: the peer asks us

    def __contains__(self, call: int) -> bool:
        return call in self._calls

    def __getitem__(self, call: int) -> Entry:
        return self._calls[call]

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def waiting(self) -> int:
        return len(self._waiting) if self._waiting else 0

    def next_call(self) -> int:
        self._last_call += 1
        return self._last_call

    def open(self, entry: Entry) -> None:
        call = entry.start.call
        self._calls[call] = entry
        if entry.start.request_id is not None:
            self._by_id[entry.start.request_id] = call

    def in_flight(self, request_id: RequestId) -> int | None:
        """The call that works on this id of the peer's, if there is one."""
        return self._by_id.get(request_id)

    def queue(self, call: int) -> None:
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(call)

    def next_waiting(self) -> Entry | None:
        """The call that has waited longest for its turn."""
        return self._calls[self._waiting.popleft()] if self._waiting else None

    def _free_id(self, entry: Entry) -> None:
        request_id = entry.start.request_id
        if request_id is not None and self._by_id.get(request_id) == entry.start.call:
            del self._by_id[request_id]

    def park(self, entry: Entry, round: Round) -> None:
        """The call's request is answered for now; its handler is not done."""
        self._free_id(entry)
        round.parked = True
        self.parked += 1
        if entry.running:
            entry.running = False
            self.running -= 1

    def attach(self, entry: Entry, round: Round, start: Start) -> None:
        """The call goes on, for another request."""
        round.parked = False
        self.parked -= 1
        entry.start = start
        entry.running = True
        self.running += 1
        if start.request_id is not None:
            self._by_id[start.request_id] = start.call

    def get(self, call: int) -> Entry | None:
        return self._calls.get(call)

    def close(self, call: int) -> Entry | None:
        entry = self._calls.pop(call, None)
        if entry is None:
            return None
        self._free_id(entry)
        if entry.round is not None and entry.round.parked:
            self.parked -= 1
        elif entry.running:
            self.running -= 1
        elif self._waiting and call in self._waiting:
            self._waiting.remove(call)
        return entry

    def calls(self) -> Iterator[int]:
        return iter(tuple(self._calls))

    # -- asks: we ask the peer

    def ask(self, method: str, reply: Any, call: int | None) -> Ask:
        self._last_ask += 1
        ask = Ask(self._last_ask, method, reply, call)
        if self._asks is None or self._by_reply is None:
            self._asks, self._by_reply = {}, {}
        self._asks[ask.id] = ask
        self._by_reply[reply] = ask.id
        if call is not None:
            entry = self._calls[call]
            if entry.asks is None:
                entry.asks = set()
            entry.asks.add(ask.id)
        return ask

    def peek(self, request_id: object) -> Ask | None:
        if self._asks is None or type(request_id) is not int:
            return None
        return self._asks.get(request_id)

    def answer(self, request_id: object) -> Ask | None:
        """Take an ask off the books, because it was answered or nobody waits for it."""
        ask = self.peek(request_id)
        if ask is None or self._asks is None or self._by_reply is None:
            return None
        del self._asks[ask.id]
        del self._by_reply[ask.reply]
        if ask.call is not None and (entry := self._calls.get(ask.call)) is not None and entry.asks:
            entry.asks.discard(ask.id)
        return ask

    def find_ask(self, reply: Any) -> Ask | None:
        return self.peek((self._by_reply or {}).get(reply))

    def asks(self) -> Iterator[Ask]:
        return iter(tuple((self._asks or {}).values()))
