"""The open requests of one session, in both directions.

A *call* is a request from the peer that a handler works on; it has a serial number of its own, since a peer may reuse
its ids. An *ask* is a request from this side; the peer's response settles its reply.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Raw, field

from mcptrio._peer.effects import Start
from mcptrio._peer.link import ReplyLink
from mcptrio._peer.messages import Asked, Outcome, ReplyFuture
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import Error, Response
from mcptrio._wire.sized import size_of

RequestId = int | str


class Group(Entity):
    """The responses to one batch, which are sent together."""

    expected: int
    link: ReplyLink
    answers: list[Response | Error] = field(default_factory=list)
    size: int = 0
    """Bytes of the results among them, and of the message that they will be."""


def memory_to_gather(result: Raw) -> int:
    """Return the bytes that a result takes in a batch: itself, and its part of the message."""
    return 2 * len(result)


class Round(Entity):
    """The input requests of a call, at a date at which they travel in results."""

    questions: dict[str, Asked] = field(default_factory=dict)
    """Key -> an input request that waits for its answer."""
    sent: dict[str, Asked] = field(default_factory=dict)
    """The input requests that were last sent; some may have been withdrawn since."""
    latest: ReplyFuture | None = None
    """The reply to the latest input request."""
    parked: bool = False
    """Whether the request was answered with the input requests; the client may repeat it or not."""
    outcome: Outcome | None = None
    """The outcome of a handler that ended while no request was open to carry it."""


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
    reply: ReplyFuture
    call: int | None


class Ledger(Entity):
    """The calls and asks of one session. Ids of the peer are valid only inside it."""

    calls: dict[int, Entry] = field(default_factory=dict)
    """Unanswered requests of the peer, by serial number."""
    by_id: dict[RequestId, int] = field(default_factory=dict)
    """The peer's id of a request -> its serial number."""
    waiting: list[int] = field(default_factory=list)
    """Calls that have not started, in order of arrival."""
    waiting_memory: int = 0
    """Bytes of their requests that count."""
    gathered_memory: int = 0
    """The sizes of all groups together."""
    held: list[Asked] = field(default_factory=list)
    """Outgoing requests that wait for `notifications/initialized`."""
    last_call: int = 0
    running: int = 0
    parked: int = 0
    _asks: dict[int, Ask] | None = None
    _by_reply: dict[ReplyFuture, int] | None = None
    _last_ask: int = 0

    # -- calls: requests from the peer

    def __contains__(self, call: int) -> bool:
        return call in self.calls

    def __getitem__(self, call: int) -> Entry:
        return self.calls[call]

    def is_parked(self, call: int) -> bool:
        """Return whether a call waits for its request to be repeated."""
        entry = self.calls.get(call)
        return entry is not None and entry.round is not None and entry.round.parked

    def wait(self, entry: Entry) -> None:
        """Let a call wait for its turn."""
        self.waiting.append(entry.start.call)
        self.waiting_memory += size_of(entry.start.params)

    def next_waiting(self) -> Entry | None:
        """Remove and return the call that has waited longest for its turn."""
        if not self.waiting:
            return None
        entry = self.calls[self.waiting.pop(0)]
        self.waiting_memory -= size_of(entry.start.params)
        return entry

    def _free_id(self, entry: Entry) -> None:
        request_id = entry.start.request_id
        if request_id is not None and self.by_id.get(request_id) == entry.start.call:
            del self.by_id[request_id]

    def park(self, entry: Entry, round: Round) -> None:
        """Park a call: its request was answered for now, its handler still runs."""
        self._free_id(entry)
        round.sent = dict(round.questions)
        round.parked = True
        self.parked += 1
        if entry.running:
            entry.running = False
            self.running -= 1

    def attach(self, entry: Entry, round: Round, start: Start) -> None:
        """Continue a parked call for another request."""
        round.parked = False
        self.parked -= 1
        entry.start = start
        entry.running = True
        self.running += 1
        if start.request_id is not None:
            self.by_id[start.request_id] = start.call

    def gather(self, group: Group, answer: Response | Error) -> None:
        """Keep a response until all responses to its batch are there."""
        group.answers.append(answer)
        if type(answer) is Response and type(answer.result) is Raw:
            size = memory_to_gather(answer.result)
            group.size += size
            self.gathered_memory += size

    def close_group(self, group: Group) -> tuple[Response | Error, ...] | None:
        """Return the responses to a batch once all are there; None before."""
        if not group.expected or len(group.answers) < group.expected:
            return None
        group.expected = 0
        self.gathered_memory -= group.size
        return tuple(group.answers)

    def close(self, call: int) -> Entry | None:
        entry = self.calls.pop(call, None)
        if entry is None:
            return None
        self._free_id(entry)
        if entry.round is not None and entry.round.parked:
            self.parked -= 1
        elif entry.running:
            self.running -= 1
        elif call in self.waiting:
            self.waiting.remove(call)
            self.waiting_memory -= size_of(entry.start.params)
        return entry

    # -- asks: requests to the peer

    def ask(self, method: str, reply: ReplyFuture, call: int | None) -> Ask:
        self._last_ask += 1
        ask = Ask(self._last_ask, method, reply, call)
        if self._asks is None or self._by_reply is None:
            self._asks, self._by_reply = {}, {}
        self._asks[ask.id] = ask
        self._by_reply[reply] = ask.id
        if call is not None:
            entry = self.calls[call]
            if entry.asks is None:
                entry.asks = set()
            entry.asks.add(ask.id)
        return ask

    def number_asks_from(self, number: int) -> None:
        """Let the ids of requests to the peer count from a number."""
        self._last_ask = number

    def peek(self, request_id: object) -> Ask | None:
        if self._asks is None or type(request_id) is not int:
            return None
        return self._asks.get(request_id)

    def answer(self, request_id: object) -> Ask | None:
        """Remove an ask that was answered or abandoned."""
        ask = self.peek(request_id)
        if ask is None or self._asks is None or self._by_reply is None:
            return None
        del self._asks[ask.id]
        del self._by_reply[ask.reply]
        if ask.call is not None and (entry := self.calls.get(ask.call)) is not None and entry.asks:
            entry.asks.discard(ask.id)
        return ask

    def find_ask(self, reply: ReplyFuture) -> Ask | None:
        return self.peek((self._by_reply or {}).get(reply))

    def asks(self) -> Iterator[Ask]:
        return iter((self._asks or {}).values())

    def forget_asks(self) -> None:
        """Remove all asks, because no answer will arrive."""
        self._asks = self._by_reply = None
        self.held = []
