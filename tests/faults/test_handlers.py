"""Handlers that fail, hang, ignore their end, block a thread, flood or return too much."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio import Context, ToolError

from .conftest import CANARIES, Open
from .serving import Trail, make_server

every_kind = pytest.mark.parametrize("kind", CANARIES)


def group() -> BaseException:
    return ExceptionGroup("several", [RuntimeError("one"), ExceptionGroup("inner", [ValueError("two")])])


FAILURES: dict[str, Any] = {
    "an exception": lambda: RuntimeError("secret"),
    "a group": group,
    "an exit": lambda: SystemExit(3),
    "an end of a generator": GeneratorExit,
    "no memory": MemoryError,
    "recursion": RecursionError,
}


@every_kind
@pytest.mark.parametrize("name", FAILURES)
async def test_fault_handler_raises(name: str, kind: str, open_watched: Open, autojump_clock: MockClock) -> None:
    """F08: one error reply without the exception's text, one record in the log, and the session goes on."""
    server = make_server()

    @server.tool
    async def explode(text: str) -> str:
        raise FAILURES[name]()

    async with open_watched(server) as watched:
        guest = await watched.guest(kind)
        answer = await watched.call(guest, "explode")
        assert "error" in answer or answer["result"]["isError"]
        assert "secret" not in str(answer)
        await guest.echo()
        watched.blame("failed", guest, 1)


@every_kind
async def test_fault_one_meant_error_in_a_group(kind: str, open_watched: Open, autojump_clock: MockClock) -> None:
    """F08: a nursery wraps what is raised in it; the one error that is meant for the caller reaches the caller."""
    server = make_server()

    @server.tool
    async def explode(text: str) -> str:
        async with trio.open_nursery():
            raise ToolError(text)

    async with open_watched(server) as watched:
        guest = await watched.guest(kind)
        answer = await watched.call(guest, "explode")
        assert answer["result"]["isError"]
        assert guest.text(answer) == guest.word


async def test_fault_handler_raises_while_it_is_cancelled(open_watched: Open, autojump_clock: MockClock) -> None:
    """F08: the caller does not wait any more, so there is no answer; the log has the failure."""
    server = make_server()

    @server.tool
    async def explode(text: str) -> str:
        try:
            await trio.sleep(60)
        finally:
            raise RuntimeError("while cancelled")

    async with open_watched(server) as watched:
        guest = await watched.guest("stateful")
        answer = await watched.begin(guest, "explode")
        await guest.notify_server("notifications/cancelled", requestId=1)  # type: ignore[attr-defined]
        frames: list[dict[str, Any]] = []
        await guest.read(answer, frames)
        assert frames == []
        watched.blame("tool 'explode' failed", guest, 1)


@every_kind
async def test_fault_handler_hangs(kind: str, open_watched: Open, autojump_clock: MockClock) -> None:
    """F09: ended after the default of a minute, answered, and its place is free."""
    trail = Trail()
    async with open_watched(make_server(trail)) as watched:
        guest = await watched.guest(kind)
        began = trio.current_time()
        answer = await watched.call(guest, "wait", {"seconds": 3600})
        assert answer["result"]["isError"] is True
        assert trio.current_time() - began == pytest.approx(60, abs=1)
        assert trail.done == ["begun", "cancelled"]
        watched.blame("outcome=timeout", guest, 1)


async def test_fault_handler_ignores_its_end(open_watched: Open, autojump_clock: MockClock) -> None:
    """F10: answered in time, counted, its id free at once; eight of them end the session."""
    release = trio.Event()
    server = make_server(call_timeout=5)

    @server.tool
    async def stubborn(text: str) -> str:
        with trio.move_on_after(600, shield=True):  # bounded, so that a failure of this test ends it
            await release.wait()
        return text

    async with open_watched(server) as watched:
        guest = await watched.guest("stateful")
        for number in range(7):
            assert (await watched.call(guest, "stubborn"))["result"]["isError"], number
        await trio.sleep(2)
        await guest.echo()
        assert sum(type(event).__name__ == "Zombie" for event in watched.events) == 7
        assert (await watched.call(guest, "stubborn"))["result"]["isError"]
        await trio.sleep(2)
        gone = await guest.begin_call("echo", 1)
        assert gone.status == 404, "eight zombies end their session"
        await guest.read(gone, [])
        release.set()
        await wait_all_tasks_blocked()
        for number in (*range(1, 8), 1):  # the eighth call used the id 1 again
            watched.blame("ignores its cancellation", guest, number)


async def test_fault_threads_are_stuck(open_watched: Open) -> None:
    """F12: when every thread is taken, further calls wait or get an error; the loop and other calls go on."""
    release = threading.Event()
    server = make_server(call_timeout=900, threads=4)

    @server.tool
    def stuck(text: str) -> str:
        release.wait(30)
        return text

    async with open_watched(server) as watched:
        guests = [await watched.guest("stateful") for _ in range(6)]
        other = await watched.guest("stateless")
        answers: list[dict[str, Any]] = []

        async def call(guest: Any) -> None:
            answers.append(await watched.call(guest, "stuck"))

        async with trio.open_nursery() as nursery:
            for guest in guests:
                nursery.start_soon(call, guest)
            for _ in range(20):
                await other.echo()
            release.set()
        assert len(answers) == 6
        served = [answer for answer in answers if "result" in answer and not answer["result"].get("isError")]
        refused = [answer for answer in answers if answer not in served]
        assert len(served) >= 4
        assert all("overloaded" in str(answer) for answer in refused)


async def test_fault_background_work_dies_with_its_session(open_watched: Open, autojump_clock: MockClock) -> None:
    """F13: what a handler starts for its session ends with it."""
    trail = Trail()
    server = make_server(trail)

    async def forever(name: str) -> None:
        try:
            await trio.sleep_forever()
        finally:
            trail(f"{name} ended")

    @server.tool
    async def begin(text: str, ctx: Context) -> str:
        ctx.session.start_soon(forever, "background")
        return text

    async with open_watched(server) as watched:
        guest = await watched.guest("stateful")
        assert guest.text(await watched.call(guest, "begin")) == guest.word
        await trio.sleep(100)
        assert trail.done == []
        await guest.close()  # type: ignore[attr-defined]
        await wait_all_tasks_blocked()
        assert trail.done == ["background ended"]


DROPPED = 'mcptrio_dropped_total{kind="%s"}'


@every_kind
async def test_fault_handler_floods(kind: str, open_watched: Open, autojump_clock: MockClock) -> None:
    """F14: after a burst the rate; what is too much gives way to the newest and is counted; the answer never."""
    async with open_watched(make_server()) as watched:
        guest = await watched.guest(kind)
        frames: list[dict[str, Any]] = []
        answer = await watched.begin(guest, "tell", {"times": 3000, "pause": 0})
        await guest.read(answer, frames)
        received = [frame["params"]["progress"] for frame in frames if "method" in frame]
        assert received == [*range(1, 501), 3000], "a burst, then the newest one, which is the one that counts"
        assert watched.counted(DROPPED % "progress_rate") == 2500
        assert guest.text(guest.outcome(frames, 1)) == guest.word


@every_kind
async def test_fault_handler_floods_for_long(kind: str, open_watched: Open, autojump_clock: MockClock) -> None:
    """F14: 200 a second for ten seconds, at 50 a second: each that leaves is the newest of its moment."""
    async with open_watched(make_server(notify_burst=10)) as watched:
        guest = await watched.guest(kind)
        frames: list[dict[str, Any]] = []
        answer = await watched.begin(guest, "tell", {"times": 2000, "pause": 0.005})
        await guest.read(answer, frames)
        received = [frame["params"]["progress"] for frame in frames if "method" in frame]
        assert len(received) == pytest.approx(10 + 10 * 50, abs=2)
        assert max(later - earlier for earlier, later in pairwise(received[20:])) <= 5
        assert received[-1] == 2000
        assert watched.counted(DROPPED % "progress_rate") == pytest.approx(2000 - len(received), abs=1)
        assert guest.text(guest.outcome(frames, 1)) == guest.word


async def test_fault_handler_floods_the_log(open_watched: Open, autojump_clock: MockClock) -> None:
    """F14: log messages above the rate are dropped; unlike progress, no later one replaces them."""
    async with open_watched(make_server()) as watched:
        guest = await watched.guest("stateful")
        frames: list[dict[str, Any]] = []
        answer = await watched.begin(guest, "chat", {"times": 1000, "pause": 0.001})
        await guest.read(answer, frames)
        logged = [frame["params"]["data"] for frame in frames if frame.get("method") == "notifications/message"]
        assert logged[:500] == [f"{guest.word} {number + 1}" for number in range(500)]
        assert len(logged) == pytest.approx(500 + 50, abs=2)
        assert watched.counted(DROPPED % "log_rate") == 1000 - len(logged)
        assert guest.text(guest.outcome(frames, 1)) == guest.word


@every_kind
async def test_fault_handler_returns_too_much(kind: str, open_watched: Open, autojump_clock: MockClock) -> None:
    """F15: a result of 50 MiB is an error for the caller, and does not break the stream."""
    server = make_server()

    @server.tool
    async def huge(text: str) -> str:
        return "x" * 50 * 2**20

    async with open_watched(server) as watched:
        guest = await watched.guest(kind)
        answer = await watched.call(guest, "huge")
        assert "error" in answer or answer["result"]["isError"]
        assert len(str(answer)) < 10_000
        await guest.echo()
