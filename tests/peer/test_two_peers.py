"""Two machines joined by two queues, driven at random: in any order, each request has one outcome.

Each request is answered at most once, a cancelled one never after its cancel was seen; every ask is settled exactly
once or given up; when both hang up nothing is left.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

from attrs import define, field
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from mcptrio._eras.choose import ERAS, Served
from mcptrio._peer.effects import Close, Effect, Send, Settle, Start, Stop
from mcptrio._peer.era import Role
from mcptrio._peer.machine import Peer
from mcptrio._peer.messages import Asked, Cause, Drained, Failed, Finished, GaveUp, HungUp, Message, Opened, Received
from mcptrio._wire.jsonrpc import Error, Frame, Notification, Request, Response, decode, encode

from .kit import ROUTES, NamedLink, raw

CAPABILITIES = {"sampling": {}, "roots": {}, "elicitation": {}, "tools": {}}


@define(eq=False)
class Side:
    """One machine, what it has put on the wire, and what its actor would know."""

    peer: Peer
    link: NamedLink = field(factory=NamedLink)
    wire: deque[bytes] = field(factory=deque)
    handlers: set[int] = field(factory=set)
    settled: Counter[Any] = field(factory=Counter)
    asked: set[Any] = field(factory=set)
    gave_up: set[Any] = field(factory=set)
    requested: dict[int, str] = field(factory=dict)
    answered: Counter[Any] = field(factory=Counter)
    begun: Counter[int] = field(factory=Counter)
    pings: set[int] = field(factory=set)
    over: bool = False

    def step(self, message: Message) -> None:
        for effect in self.peer.step(message):
            self.perform(effect)

    def perform(self, effect: Effect) -> None:
        match effect:
            case Send(frame):
                assert not self.over, "something was sent after the end"
                assert not isinstance(frame, tuple)
                if isinstance(frame, Request):
                    assert frame.id not in self.requested, "an id was used twice"
                    self.requested[int(frame.id)] = frame.method
                if isinstance(frame, Response | Error):
                    self.answered[frame.id] += 1
                self.wire.append(encode(frame))
            case Start(number, method=method):
                self.begun[number] += 1
                self.handlers.add(number)
                if method == "ping":
                    self.pings.add(number)
            case Stop(number):
                self.handlers.discard(number)
            case Settle(reply):
                self.settled[reply] += 1
            case Close():
                self.over = True


class TwoPeers(RuleBasedStateMachine):
    tasks = Bundle("tasks")
    asks = Bundle("asks")

    def __init__(self) -> None:
        super().__init__()
        self.client = Side(Peer(role=Role.CLIENT, eras=Served(), routes=ROUTES, max_running=2))
        self.server = Side(Peer(role=Role.SERVER, eras=Served(), routes=ROUTES, max_running=2))
        self.replies = 0
        self.cancel_seen: set[int] = set()

    def other(self, side: Side) -> Side:
        return self.server if side is self.client else self.client

    # -- what the two programs do

    def ask(self, side: Side, method: str, call: int | None) -> str:
        self.replies += 1
        reply = f"reply {self.replies}"
        side.asked.add(reply)
        params: dict[str, Any] = {}
        if method == "initialize":
            params = {"protocolVersion": self.date, "capabilities": CAPABILITIES}
        side.step(Asked(call, method, params, reply))
        return reply

    date = "2025-11-25"

    @rule(target=asks, date=st.sampled_from(sorted(d for d, e in ERAS.items() if e.stateful)))
    def client_opens(self, date: str) -> Any:
        self.date = date
        if self.client.over:
            return multiple()
        return self.client, self.ask(self.client, "initialize", None)

    @rule()
    def client_is_opened(self) -> None:
        if self.server.peer.era is not None and not self.client.over:
            self.client.step(Opened(self.server.peer.era, {"tools": {}}))
            self.client.wire.append(encode(Notification("notifications/initialized")))

    @rule(target=asks, method=st.sampled_from(["tools/call", "tools/list", "ping", "own/method", "no/such"]))
    def client_asks(self, method: str) -> Any:
        if self.client.over:
            return multiple()
        return self.client, self.ask(self.client, method, None)

    @rule(
        target=asks,
        method=st.sampled_from(["sampling/createMessage", "ping", "elicitation/create"]),
        inside=st.booleans(),
        which=st.integers(0, 3),
    )
    def server_asks(self, method: str, inside: bool, which: int) -> Any:
        if self.server.over:
            return multiple()
        running = sorted(self.server.handlers)
        call = running[which % len(running)] if inside and running else None
        return self.server, self.ask(self.server, method, call)

    @rule(ask=consumes(asks))
    def somebody_gives_up(self, ask: tuple[Side, str]) -> None:
        side, reply = ask
        if not side.over and not side.settled[reply]:
            side.gave_up.add(reply)
            side.step(GaveUp(reply, "tired"))

    @rule(on_server=st.booleans(), which=st.integers(0, 3), fails=st.booleans())
    def a_handler_ends(self, on_server: bool, which: int, fails: bool) -> None:
        side = self.server if on_server else self.client
        running = sorted(side.handlers)
        if running and not side.over:
            number = running[which % len(running)]
            side.handlers.discard(number)
            side.step(Finished(number, Failed(-5, "no") if fails else raw({})))

    @rule(on_server=st.booleans(), number=st.integers(1, 6))
    def a_stopped_handler_reports_late(self, on_server: bool, number: int) -> None:
        side = self.server if on_server else self.client
        if number not in side.handlers and number in side.begun and not side.over:
            before = len(side.wire)
            side.step(Finished(number, raw({})))
            assert len(side.wire) == before

    @rule(to_server=st.booleans(), count=st.integers(1, 4))
    def the_wire_carries(self, to_server: bool, count: int) -> None:
        sender = self.client if to_server else self.server
        receiver = self.other(sender)
        for _ in range(min(count, len(sender.wire))):
            data = sender.wire.popleft()
            if receiver.over:
                continue
            frame: Any = decode(data)
            self.check_cancel(receiver, frame)
            receiver.step(Received(frame, receiver.link, None))

    def check_cancel(self, receiver: Side, frame: Frame) -> None:
        if isinstance(frame, Notification) and frame.method == "notifications/cancelled" and receiver is self.server:
            request_id = frame.params["requestId"]
            if not receiver.answered[request_id] and self.client.requested.get(request_id) != "initialize":
                self.cancel_seen.add(request_id)

    @rule()
    def the_server_drains(self) -> None:
        if not self.server.over:
            self.server.step(Drained(Cause.DRAIN))
            assert self.server.peer.calls == 0
            assert not self.server.handlers

    # -- what holds at all times

    @invariant()
    def each_request_is_answered_at_most_once(self) -> None:
        for side in (self.client, self.server):
            asked = self.other(side).requested
            for request_id, times in side.answered.items():
                if request_id is not None:
                    assert times == 1
                    assert request_id in asked

    @invariant()
    def a_cancelled_request_is_not_answered(self) -> None:
        assert not self.cancel_seen & set(self.server.answered)

    @invariant()
    def each_handler_begins_at_most_once(self) -> None:
        for side in (self.client, self.server):
            assert all(times == 1 for times in side.begun.values())
            # Neither initialize nor a ping waits for a place.
            assert len(side.handlers - side.pings) <= side.peer.max_running + 1

    @invariant()
    def each_ask_is_settled_at_most_once(self) -> None:
        for side in (self.client, self.server):
            assert all(times == 1 for times in side.settled.values())
            assert not side.gave_up & set(side.settled)

    def teardown(self) -> None:
        for side in (self.client, self.server):
            if not side.over:
                side.step(HungUp(Cause.SESSION_END))
            assert side.over
            assert not side.handlers
            assert side.peer.calls == len(side.peer.ledger.waiting) == 0
            assert side.settled.keys() | side.gave_up == side.asked, "an ask was forgotten"


TwoPeers.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestTwoPeers = TwoPeers.TestCase
