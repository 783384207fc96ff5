"""The fixture notices when an invariant is broken."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from mcptrio import Server

from .conftest import Cause, LogLine, Open, check_log
from .serving import make_server
from .watching import WatchedWire

EVENTS = {"content-type": "text/event-stream"}
ANSWER = {"jsonrpc": "2.0", "id": 1, "result": {}}
BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()


@define
class Recorded:
    """An answer that was written down."""

    pieces: list[bytes]
    headers: Mapping[str, str] = field(factory=lambda: EVENTS)
    status: int = 200

    async def next(self) -> bytes | None:
        return self.pieces.pop(0) if self.pieces else None

    def cut(self) -> None:
        self.pieces.clear()


@define
class RecordedWire:
    answer: Any

    async def send(self, method: str, headers: Mapping[str, str], body: bytes) -> Any:
        return self.answer

    def close(self) -> None:
        pass


def event(number: int, data: Any = None) -> bytes:
    return f"id: 1.{number}.AAAAAAAAAAAAAAAA\ndata: {json.dumps(data) if data else ''}\n\n".encode()


async def read(*pieces: bytes) -> None:
    wire = WatchedWire(RecordedWire(Recorded(list(pieces))))
    answer = await wire.send("POST", {}, BODY)
    while await answer.next() is not None:
        pass
    await wire.watch.settle()


NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}


async def test_a_stream_in_order_with_one_answer_passes() -> None:
    await read(event(0), event(1, NOTE), event(2, NOTE) + event(3, ANSWER))


@pytest.mark.parametrize(
    ("pieces", "broken"),
    [
        ([event(0), event(1, ANSWER), event(2, ANSWER)], "I1"),
        ([event(0), event(1, {**ANSWER, "id": 2})], "I1"),
        ([event(0), event(2, ANSWER)], "I5"),
        ([event(0), event(1, NOTE), event(1, ANSWER)], "I5"),
        ([event(0), event(2, NOTE), event(1, ANSWER)], "I5"),
        ([event(0), b"data: {}\n\n"], "I5"),
    ],
)
async def test_two_answers_and_events_out_of_order_are_noticed(pieces: list[bytes], broken: str) -> None:
    with pytest.raises(AssertionError, match=broken):
        await read(*pieces)


async def test_a_request_that_never_ends_is_noticed(autojump_clock: MockClock) -> None:
    class Endless(Recorded):
        async def next(self) -> bytes | None:
            return await trio.sleep_forever()

    wire = WatchedWire(RecordedWire(Endless([])))
    await wire.send("POST", {}, BODY)
    with pytest.raises(trio.TooSlowError):
        await wire.watch.settle()


@pytest.mark.parametrize(
    ("logged", "well"),
    [
        ([LogLine("it failed", "abcdefghijk", 1)], True),
        ([LogLine("it failed session=abcdefgh (id 1)", "", None)], True),
        ([], False),
        ([LogLine("it failed", "abcdefghijk", 1)] * 2, False),
        ([LogLine("it failed", "abcdefghijk", 2)], False),
        ([LogLine("it failed", "another", 1)], False),
        ([LogLine("it failed", "", None)], False),
    ],
)
def test_a_cause_is_logged_once_with_its_session_and_request(logged: list[LogLine], well: bool) -> None:
    try:
        check_log(logged, [Cause("it failed", "abcdefghijk", 1)])
    except AssertionError:
        assert not well
    else:
        assert well


# -- the whole fixture


def notices(broken: str) -> Any:
    """An invariant that is broken, in however many nurseries."""
    found = pytest.RaisesExc(AssertionError, match=broken)
    return pytest.RaisesGroup(found, allow_unwrapped=True, flatten_subgroups=True)


def slow_for_others(server: Server) -> None:
    """Others wait for a short time."""
    make_slow(server, partial(trio.sleep, 0.001))


def queued_for_others(server: Server) -> None:
    """Others wait for some turns of the event loop, and no time passes."""

    async def some_turns() -> None:
        for _ in range(4):
            await trio.lowlevel.checkpoint()

    make_slow(server, some_turns)


def make_slow(server: Server, wait: Callable[[], Awaitable[None]]) -> None:
    slow: list[bool] = []

    @server.tool
    async def spoil(text: str) -> str:
        slow.append(True)
        return text

    async def echo(text: str) -> str:
        if slow:
            await wait()
        return text

    server.remove_tool("echo")
    server.add_tool(echo)


def logged_twice(server: Server) -> None:
    @server.tool
    async def spoil(text: str) -> str:
        logging.getLogger("mcptrio.test").warning("it failed")
        logging.getLogger("mcptrio.test").warning("it failed")
        return text


@pytest.mark.parametrize(
    ("spoil", "broken"), [(slow_for_others, "I2: .* s,"), (queued_for_others, "I2: .* turns,"), (logged_twice, "I4")]
)
async def test_broken_invariants_of_a_server_are_noticed(
    spoil: Callable[[Server], None], broken: str, open_watched: Open, autojump_clock: MockClock
) -> None:
    server = make_server()
    spoil(server)
    with notices(broken):
        async with open_watched(server) as watched:
            guest = await watched.guest("stateful")
            await watched.call(guest, "spoil")
            if broken == "I4":
                watched.blame("it failed", guest, 1)


async def test_a_session_that_is_left_behind_is_noticed(open_watched: Open, autojump_clock: MockClock) -> None:
    with notices("I3"):
        async with open_watched(make_server()) as watched:
            await watched.guest("stateful")
            watched.guests.pop()


async def test_a_call_of_the_bystander_that_runs_at_the_end_is_answered(
    open_watched: Open, autojump_clock: MockClock
) -> None:
    server = make_server()
    calls: list[str] = []

    async def echo(text: str) -> str:
        calls.append("begun")
        await trio.sleep(0.6)
        calls.append("finished")
        return text

    server.remove_tool("echo")
    server.add_tool(echo)
    async with open_watched(server):
        await trio.sleep(0.35)  # the bystander asks at 0 and at 1.3 s, for 0.6 s each; the test ends at 1.35 s
        calls.clear()
    assert calls == ["finished", "begun", "finished"]


async def test_a_call_of_the_bystander_that_hangs_is_noticed(open_watched: Open, autojump_clock: MockClock) -> None:
    server = make_server()
    hangs: list[bool] = []

    async def echo(text: str) -> str:
        if hangs:
            await trio.sleep_forever()
        return text

    server.remove_tool("echo")
    server.add_tool(echo)
    with pytest.RaisesGroup(trio.TooSlowError, flatten_subgroups=True):
        async with open_watched(server):
            hangs.append(True)
