"""Lines in, lines out, on real pipes inside one process."""

from __future__ import annotations

import os
import select
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from attrs import define, field
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio._actors.limits import Limits
from mcptrio._peer.messages import Cause
from mcptrio._wire.jsonrpc import DEFAULT_LIMITS, encode
from mcptrio._wire.lines import LineReader
from mcptrio.errors import INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR
from mcptrio.transports.pipe.client import open_client_link
from mcptrio.transports.pipe.server import Pipe, PipeLimits, serve_pipe
from mcptrio.transports.stdio.server import (
    READ_WITHIN,
    LinePipe,
    _unread_counter,
    private_stdio,
    read_when_ready,
    serve_stdio,
)
from tests.actors.kit import App, Ctx, initialize, notification, open_runtime, request


async def echo(ctx: Ctx, params: Any) -> Any:
    return params


async def slow(ctx: Ctx, params: Any) -> Any:
    await trio.sleep(params.get("seconds", 3600))
    return {}


@define(eq=False)
class Wire:
    """The client's end of a pair of pipes made of memory: no descriptor, no kernel buffer, so nothing hides in one."""

    to_server: trio.MemorySendChannel[bytes]
    writes: list[bytes] = field(factory=list)
    stalled: trio.Event | None = None
    broken: bool = False
    done: bool = False

    async def say(self, *items: Any) -> None:
        """Frames, or bytes as they are."""
        lines = [item if isinstance(item, bytes) else encode(item) + b"\n" for item in items]
        await self.to_server.send(b"".join(lines))

    async def heard(self) -> list[Any]:
        """Return the messages written since the last call, once all tasks are blocked."""
        await wait_all_tasks_blocked()
        lines = b"".join(self.writes).splitlines()
        self.writes.clear()
        return [msgspec.json.decode(line) for line in lines]

    async def write(self, data: bytes) -> None:
        if self.stalled is not None:
            await self.stalled.wait()
        if self.broken:
            raise BrokenPipeError
        self.writes.append(data)


@asynccontextmanager
async def open_wire(
    handlers: Mapping[str, Any] | None = None,
    *,
    date: str | None = "2025-11-25",
    limits: Limits | None = None,
    max_line: int = 10_000,
) -> AsyncIterator[Wire]:
    app = App(handlers or {"echo": echo, "slow": slow}, limits=limits or Limits())
    send, receive = trio.open_memory_channel[bytes](1000)
    wire = Wire(send)

    async def read() -> bytes:
        try:
            return await receive.receive()
        except trio.EndOfChannel:
            return b""

    async with open_runtime(app) as runtime, trio.open_nursery() as nursery:

        async def serve() -> None:
            pipe = LinePipe(read, wire.write, LineReader(max_line))
            await serve_pipe(runtime, pipe, transport="stdio", limits=PipeLimits(linger=0.25))
            wire.done = True

        nursery.start_soon(serve)
        if date is not None:
            await wire.say(initialize(date, sampling={}), notification("notifications/initialized"))
            assert len(await wire.heard()) == 1
        yield wire
        nursery.cancel_scope.cancel()


async def test_messages_are_lines(autojump_clock: MockClock) -> None:
    async with open_wire() as wire:
        await wire.say(request(1, "echo", text="a\nb"))
        await wait_all_tasks_blocked()
        assert wire.writes == [b'{"jsonrpc":"2.0","id":1,"result":{"text":"a\\nb"}}\n']


async def test_how_the_bytes_are_cut_does_not_matter(autojump_clock: MockClock) -> None:
    async with open_wire() as wire:
        for byte in encode(request(1, "echo", a=1)) + b"\r\n\n  \n" + encode(request(2, "echo")) + b"\n":
            await wire.say(bytes([byte]))
        assert [a["id"] for a in await wire.heard()] == [1, 2]


async def test_answers_that_are_ready_together_are_written_together(autojump_clock: MockClock) -> None:
    async with open_wire() as wire:
        await wire.say(*(request(n, "echo") for n in range(64)))
        await wait_all_tasks_blocked()
        assert len(wire.writes) <= 3
        assert len(await wire.heard()) == 64


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"hello\n", PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}\n', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * 20_000 + b'"}\n', INVALID_REQUEST),
        (b"[]\n", INVALID_REQUEST),
        (b"null\n", INVALID_REQUEST),
    ],
    ids=["no JSON", "two on a line", "too long", "empty batch", "scalar"],
)
async def test_an_unreadable_line_is_answered_without_an_id_and_the_next_one_is_served(
    line: bytes, code: int, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_wire() as wire:
        await wire.say(line, request(9, "ping"))
        complaint, pong = await wire.heard()
        assert "id" not in complaint
        assert complaint["error"]["code"] == code
        assert pong == {"jsonrpc": "2.0", "id": 9, "result": {}}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}\n', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","id":1,"method":"echo","params":{"text":"\\ud800"}}\n', PARSE_ERROR),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n', INVALID_REQUEST),
    ],
    ids=["no UTF-8", "lone surrogate", "batch"],
)
@pytest.mark.parametrize("date", ["2024-11-05", "2025-11-25"])
async def test_a_request_that_is_refused_is_answered_by_its_id(
    line: bytes, code: int, date: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_wire(date=date) as wire:
        await wire.say(line, request(9, "ping"))
        refusal, pong = await wire.heard()
        assert (refusal["id"], refusal["error"]["code"]) == (1, code)
        assert pong["id"] == 9


@pytest.mark.defect("D19")
async def test_a_batch_of_requests_and_responses_is_refused_by_the_ids_of_the_requests(
    autojump_clock: MockClock,
) -> None:
    async with open_wire(date="2025-03-26") as wire:
        ask = '{"jsonrpc":"2.0","id":%d,"method":"ping"}'
        batch = f"[{ask % 1},{ask % 2}," + '{"jsonrpc":"2.0","id":7,"result":{}}]\n'
        await wire.say(batch.encode())
        answers = await wire.heard()
        assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [
            (1, INVALID_REQUEST),
            (2, INVALID_REQUEST),
        ]


@pytest.mark.parametrize("cut", [0, 1, 2])
async def test_a_byte_order_mark_before_the_first_line_is_skipped(autojump_clock: MockClock, cut: int) -> None:
    async with open_wire(date=None) as wire:
        mark = b"\xef\xbb\xbf"
        if cut:
            await wire.say(mark[:cut])
            await wait_all_tasks_blocked()
        await wire.say(mark[cut:] + b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        assert await wire.heard() == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


async def test_a_second_initialize_ends_the_session_and_begins_another(autojump_clock: MockClock) -> None:
    ended: list[str] = []
    sessions: list[Any] = []

    async def hang(ctx: Any, params: Any) -> Any:
        sessions.append(ctx.session)
        try:
            await trio.sleep_forever()
        finally:
            ended.append("hang")

    async with open_wire({"echo": echo, "hang": hang}) as wire:
        await wire.say(request(1, "hang"))
        await wait_all_tasks_blocked()
        await wire.say(initialize("2025-06-18"), notification("notifications/initialized"), request(2, "echo"))
        opened, echoed = await wire.heard()
        assert opened["result"]["protocolVersion"] == "2025-06-18"
        assert echoed["id"] == 2
        assert ended == ["hang"]
        assert sessions[0].ended is Cause.RESTART
        for _ in range(20):
            await wire.say(initialize("2025-11-25"), notification("notifications/initialized"))
        assert [answer["id"] for answer in await wire.heard()] == ["init"] * 20
        assert len(sessions[0].runtime.supervisor.sessions) == 1


class RecordingPipe(Pipe):
    """A pipe that notes each write; it takes single messages at once while it is free."""

    def __init__(self, receive: trio.MemoryReceiveChannel[bytes]) -> None:
        self._receive = receive
        self.writes: list[list[bytes]] = []
        self.drains: list[int] = []
        """How many writes there were when the writer waited until they were read."""
        self.free = True
        self.slow_reader = False

    @property
    def paced(self) -> bool:
        return self.slow_reader

    async def receive(self) -> Any:
        return [await self._receive.receive()]

    async def send(self, messages: list[bytes]) -> None:
        while not self.free:
            await trio.sleep(1)
        self.writes.append(messages)

    async def drained(self) -> None:
        self.drains.append(len(self.writes))

    def send_nowait(self, message: bytes) -> bool:
        if self.free:
            self.writes.append([message])
        return self.free


@asynccontextmanager
async def open_recorded(
    handlers: Mapping[str, Any], *, paced: bool = False
) -> AsyncIterator[tuple[RecordingPipe, Any, Any]]:
    send, receive = trio.open_memory_channel[bytes](1000)
    pipe, app = RecordingPipe(receive), App(handlers)
    pipe.slow_reader = paced
    async with open_runtime(app) as runtime, trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve_pipe, runtime, pipe, transport="stdio"))

        async def say(*frames: Any) -> None:
            for frame in frames:
                await send.send(encode(frame))
            await wait_all_tasks_blocked()

        await say(initialize("2025-11-25"), notification("notifications/initialized"))
        pipe.writes.clear()
        yield pipe, say, runtime
        nursery.cancel_scope.cancel()


@pytest.mark.defect("C31")
async def test_progress_is_written_by_itself_before_the_result(autojump_clock: MockClock) -> None:
    async def work(ctx: Any, params: Any) -> Any:
        for step in range(3):
            await ctx.notify("notifications/progress", progressToken=1, progress=step)
        return {}

    async with open_recorded({"work": work}) as (pipe, say, _):
        await say(request(1, "work"), request(2, "work"))
        assert all(len(write) == 1 for write in pipe.writes if b"progress" in write[0])
        assert sum(b"progress" in message for write in pipe.writes for message in write) == 6


@pytest.mark.defect("C31")
@pytest.mark.parametrize("free", [True, False])
async def test_a_result_waits_until_the_client_has_read_its_progress(autojump_clock: MockClock, free: bool) -> None:
    """The TypeScript SDK drops progress that it reads in one chunk with the result."""

    async def work(ctx: Any, params: Any) -> Any:
        for step in range(3):
            await ctx.notify("notifications/progress", progressToken=1, progress=step)
        return {}

    async def quick(ctx: Any, params: Any) -> Any:
        return {}

    async with open_recorded({"work": work, "quick": quick}, paced=True) as (pipe, say, _):
        pipe.free = free
        await say(request(1, "work"), request(2, "quick"))
        pipe.free = True
        await trio.sleep(5)
        at = next(n for n, write in enumerate(pipe.writes) if any(b'"id":1' in message for message in write))
        assert not any(b"progress" in message for message in pipe.writes[at])
        assert sum(b"progress" in message for write in pipe.writes[:at] for message in write) == 3
        progress = max(n for n, write in enumerate(pipe.writes) if any(b"progress" in message for message in write))
        assert any(progress < drained <= at for drained in pipe.drains), "the client has read the progress before it"
        assert sum(b'"id":2' in message for write in pipe.writes for message in write) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="the system does not tell")
@pytest.mark.parametrize("kind", ["pipe", "socket"])
async def test_the_bytes_that_a_client_has_not_read_are_counted(kind: str, autojump_clock: MockClock) -> None:
    if kind == "pipe":
        reading, writing = os.pipe()
    else:
        reading, writing = (end.detach() for end in socket.socketpair())
    try:
        pipe = LinePipe(trio.sleep_forever, trio.sleep, unread=_unread_counter(writing))
        assert pipe.unread is not None
        started = trio.current_time()
        await pipe.drained()
        assert trio.current_time() == started
        os.write(writing, b"x")
        assert pipe.unread() > 0
        await pipe.drained()
        assert trio.current_time() >= started + READ_WITHIN  # a client that does not read is not waited for longer
        os.read(reading, 10)
        assert pipe.unread() == 0
    finally:
        os.close(reading)
        os.close(writing)
    assert pipe.unread() == 0


@pytest.mark.defect("D07")
async def test_equal_notifications_that_wait_are_merged(autojump_clock: MockClock) -> None:
    async with open_recorded({"echo": echo}) as (pipe, _, runtime):
        (session,) = runtime.supervisor.sessions.values()
        pipe.free = False
        for number in range(20_000):
            session.asks.notify_nowait("notifications/resources/updated", {"uri": f"a://{number % 300}"})
        assert len(session.link.outbox._items) == 300
        pipe.free = True
        await trio.sleep(2)
        written = {message for write in pipe.writes for message in write}
        assert len(written) == 300


@pytest.mark.defect("D07")
async def test_changes_that_differ_in_their_metadata_have_a_bound(autojump_clock: MockClock) -> None:
    async with open_recorded({"echo": echo}) as (pipe, _, runtime):
        (session,) = runtime.supervisor.sessions.values()
        pipe.free = False
        for number in range(20_000):
            about = {"uri": "a://", "_meta": {"number": number}}
            session.asks.notify_nowait("notifications/resources/updated", about)
        assert len(session.link.outbox._items) < 1500


async def test_a_date_without_errors_that_have_no_id_gets_none(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_wire(date="2025-06-18") as wire:
        await wire.say(b"hello\n", request(9, "ping"))
        assert [a.get("id") for a in await wire.heard()] == [9]
    assert "could not be read" in caplog.text


async def test_a_fault_is_judged_by_the_date_agreed_before_it_on_the_wire(autojump_clock: MockClock) -> None:
    async with open_wire(date=None) as wire:
        await wire.say(b"hello\n", initialize("2025-06-18"), b"hello\n")
        assert [a.get("id") for a in await wire.heard()] == [None, "init"]


async def test_a_fault_with_a_readable_id_is_answered_to_it(autojump_clock: MockClock) -> None:
    async with open_wire() as wire:
        await wire.say(b'{"jsonrpc":"1.0","id":5,"method":"ping"}\n')
        assert [a["id"] for a in await wire.heard()] == [5]


async def test_batches_are_served_where_the_date_has_them(autojump_clock: MockClock) -> None:
    async with open_wire(date="2025-03-26") as wire:
        await wire.say(b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"echo"}]\n')
        (answers,) = await wire.heard()
        assert sorted(a["id"] for a in answers) == [1, 2]


# -- the end


async def test_calls_that_end_soon_after_the_input_are_still_answered(autojump_clock: MockClock) -> None:
    """`printf … | server` must print its answers."""
    async with open_wire() as wire:
        await wire.say(request(1, "echo"), request(2, "slow", seconds=0.2), request(3, "slow", seconds=60))
        wire.to_server.close()
        began = trio.current_time()
        while not wire.done:
            await trio.sleep(0.01)
        assert trio.current_time() - began <= 0.3
        assert sorted(a["id"] for a in await wire.heard()) == [1, 2]


async def test_a_last_line_without_its_newline_counts(autojump_clock: MockClock) -> None:
    async with open_wire() as wire:
        await wire.say(encode(request(1, "echo")))
        wire.to_server.close()
        assert [a["id"] for a in await wire.heard()] == [1]


async def test_the_end_comes_at_once_when_nothing_runs(autojump_clock: MockClock) -> None:
    async with open_wire() as wire:
        began = trio.current_time()
        wire.to_server.close()
        await wait_all_tasks_blocked()
        assert wire.done
        assert trio.current_time() == began


async def test_a_handler_that_cannot_be_stopped_does_not_hold_up_the_end(autojump_clock: MockClock) -> None:
    async def shielded(ctx: Ctx, params: Any) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(30)

    async with open_wire({"shielded": shielded}) as wire:
        await wire.say(request(1, "shielded"))
        await wait_all_tasks_blocked()
        wire.to_server.close()
        with trio.fail_after(0.6):
            while not wire.done:
                await trio.sleep(0.01)


async def test_a_reader_that_went_away_ends_the_session(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_wire() as wire:
        wire.broken = True
        await wire.say(request(1, "slow"), request(2, "ping"))
        with trio.fail_after(1):
            while not wire.done:
                await trio.sleep(0.01)
    assert caplog.records == []


async def test_last_responses_that_are_not_read_are_dropped_after_a_second(autojump_clock: MockClock) -> None:
    async with open_wire() as wire:
        wire.stalled = trio.Event()
        await wire.say(request(1, "ping"))
        wire.to_server.close()
        with trio.fail_after(1.6):
            while not wire.done:
                await trio.sleep(0.01)


# -- too much


async def test_a_peer_that_does_not_read_is_not_read_from_either(autojump_clock: MockClock) -> None:
    async with open_wire() as wire:
        wire.stalled = trio.Event()
        for n in range(600):
            await wire.say(request(n, "ping"))
        await wait_all_tasks_blocked()
        assert wire.to_server.statistics().current_buffer_used > 300
        wire.stalled.set()
        assert [a["id"] for a in await wire.heard()] == list(range(600))


async def test_a_burst_waits_for_its_turn_and_is_answered_whole(autojump_clock: MockClock) -> None:
    async with open_wire(limits=Limits(running=2, waiting=4, inbox=2)) as wire:
        await wire.say(*(request(n, "slow", seconds=1) for n in range(40)))
        await trio.sleep(60)
        answers = await wire.heard()
        assert sorted(a["id"] for a in answers if "result" in a) == list(range(40))


async def test_a_congested_session_refuses_requests_but_takes_cancels_and_responses(autojump_clock: MockClock) -> None:
    """Handlers that wait for the client's answers would otherwise wait for a reader that waits for them."""

    async def ask(ctx: Ctx, params: Any) -> Any:
        return await ctx.ask()

    limits = Limits(running=2, waiting=2, inbox=1)
    async with open_wire({"ask": ask, "slow": slow}, limits=limits) as wire:
        await wire.say(request(0, "ask"), request(1, "slow"))
        (asked,) = await wire.heard()
        await wire.say(*(request(n, "slow") for n in range(2, 12)))
        await wire.say(notification("notifications/cancelled", requestId=1))
        await wire.say(b'{"jsonrpc":"2.0","id":%d,"result":{}}\n' % asked["id"])
        await trio.sleep(4)
        assert await wire.heard() == []
        await trio.sleep(2)
        answers = await wire.heard()
        assert [a["id"] for a in answers if "result" in a] == [0]
        refused = [a for a in answers if "error" in a]
        assert len(refused) >= 4
        assert {a["error"]["code"] for a in refused} == {INTERNAL_ERROR}
        assert all("overloaded" in a["error"]["message"] for a in refused)


async def test_draining_refuses_what_is_new_and_flushes_what_is_old(autojump_clock: MockClock) -> None:
    app = App({"slow": slow})
    to_server, receive = trio.open_memory_channel[bytes](100)
    wire = Wire(to_server)
    async with open_runtime(app) as runtime, trio.open_nursery() as nursery:

        async def serve() -> None:
            await serve_pipe(runtime, LinePipe(receive.receive, wire.write), transport="stdio")
            wire.done = True

        nursery.start_soon(serve)
        await wire.say(initialize(), request(1, "slow", seconds=2), request(2, "slow", seconds=60))
        assert len(await wire.heard()) == 1
        nursery.start_soon(runtime.drain, 5)
        await wait_all_tasks_blocked()
        await wire.say(request(3, "ping"))
        (refusal,) = await wire.heard()
        assert refusal["id"] == 3
        assert "shutting down" in refusal["error"]["message"]
        with trio.fail_after(6):
            while not wire.done:
                await trio.sleep(0.01)
        answers = {a["id"]: a for a in await wire.heard()}
        assert "result" in answers[1]
        assert "shutting down" in answers[2]["error"]["message"]


async def test_being_cancelled_still_writes_what_was_answered(autojump_clock: MockClock) -> None:
    async with open_wire() as wire:
        wire.stalled = trio.Event()
        await wire.say(request(1, "ping"))
        await wait_all_tasks_blocked()

        async def go_on() -> None:
            await trio.sleep(0.5)
            assert wire.stalled is not None
            wire.stalled.set()

        trio.lowlevel.spawn_system_task(go_on)
    assert len(wire.writes) == 1


# -- descriptors


def pipe_pair(kind: str) -> tuple[int, int]:
    if kind == "pipe":
        return os.pipe()
    one, two = socket.socketpair()
    return one.detach(), two.detach()


@pytest.mark.parametrize("kind", ["pipe", "socket"])
async def test_pipes_and_sockets_are_waited_for_and_left_as_they_were(kind: str) -> None:
    app = App({"echo": echo})
    server_in, client_out = pipe_pair(kind)
    client_in, server_out = pipe_pair(kind)
    async with open_runtime(app) as runtime, trio.open_nursery() as nursery:
        nursery.start_soon(_serve, runtime, server_in, server_out)
        async with trio.lowlevel.FdStream(client_out) as out, trio.lowlevel.FdStream(client_in) as into:
            await out.send_all(encode(initialize()) + b"\n" + encode(request(1, "echo")) + b"\n")
            received = b""
            while received.count(b"\n") < 2:
                received += await into.receive_some()
            await out.aclose()
    assert os.get_blocking(server_in)
    assert os.get_blocking(server_out)
    os.close(server_in)
    os.close(server_out)


async def test_stdio_can_be_files(tmp_path: Path) -> None:
    app = App({"echo": echo})
    (tmp_path / "in").write_bytes(encode(initialize()) + b"\n" + encode(request(1, "echo")) + b"\n")
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("wb") as target:
        async with open_runtime(app) as runtime:
            assert await serve_stdio(runtime, stdin_fd=source.fileno(), stdout_fd=target.fileno()) == 0
    lines = (tmp_path / "out").read_bytes().splitlines()
    assert [msgspec.json.decode(line)["id"] for line in lines] == ["init", 1]


async def _serve(runtime: Any, stdin_fd: int, stdout_fd: int) -> None:
    await serve_stdio(runtime, stdin_fd=stdin_fd, stdout_fd=stdout_fd)


def test_standard_streams_are_private_while_serving_and_restored() -> None:
    before = os.fstat(0), os.fstat(1)
    with private_stdio() as (wire_in, wire_out):
        assert os.path.samestat(os.fstat(wire_in), before[0])
        assert os.path.samestat(os.fstat(wire_out), before[1])
        assert os.path.samestat(os.fstat(1), os.fstat(2))
        assert os.read(0, 1) == b""
        assert not os.get_inheritable(wire_in)
        assert not os.get_inheritable(wire_out)
    assert os.path.samestat(os.fstat(0), before[0])
    assert os.path.samestat(os.fstat(1), before[1])


# -- handlers in the task that reads


async def test_a_burst_of_which_every_third_waits_is_answered_whole_and_within_bounds(
    autojump_clock: MockClock,
) -> None:
    working = most = 0

    async def work(ctx: Ctx, params: Any) -> Any:
        nonlocal working, most
        working += 1
        most = max(most, working)
        if params["n"] % 3 == 0:
            await trio.sleep(0.1 * (params["n"] % 7))
        working -= 1
        return {"n": params["n"]}

    async with open_wire({"work": work}, limits=Limits(running=8)) as wire:
        await wire.say(*(request(n, "work", n=n) for n in range(1000)))
        await trio.sleep(60)
        answers = await wire.heard()
        assert sorted(a["id"] for a in answers) == list(range(1000))
        assert all(a["result"] == {"n": a["id"]} for a in answers)
        assert most == 8
        await trio.sleep(5)
        await wire.say(request(1000, "work", n=1))
        assert [a["id"] for a in await wire.heard()] == [1000]


async def test_the_end_of_the_input_in_the_moment_a_handler_first_waits_cancels_it_after_the_linger(
    autojump_clock: MockClock,
) -> None:
    ended: list[float] = []

    async def waits(ctx: Ctx, params: Any) -> Any:
        try:
            await trio.sleep(params["seconds"])
        finally:
            ended.append(trio.current_time())
        return {}

    async with open_wire({"waits": waits}) as wire:
        began = trio.current_time()
        await wire.say(request(1, "waits", seconds=0.2), request(2, "waits", seconds=60))
        wire.to_server.close()
        await trio.sleep(2)
        assert [a["id"] for a in await wire.heard()] == [1]
        assert wire.done
        assert [t - began for t in ended] == pytest.approx([0.2, 0.25])


async def test_a_handler_that_ends_its_session_in_its_first_step_is_the_last(autojump_clock: MockClock) -> None:
    for wait in (False, True):

        async def leave(ctx: Ctx, params: Any, wait: bool = wait) -> Any:
            ctx.session.close_nowait(Cause.SESSION_END)
            if wait:
                await trio.sleep(1)
            return {}

        async with open_wire({"leave": leave, "echo": echo}) as wire:
            await wire.say(request(1, "leave"), *(request(n, "echo") for n in range(2, 200)))
            await trio.sleep(3)
            assert wire.done
            assert await wire.heard() == []


async def test_a_cancel_that_comes_with_the_request_stops_the_handler_at_its_first_wait(
    autojump_clock: MockClock,
) -> None:
    seen: list[str] = []

    async def waits(ctx: Ctx, params: Any) -> Any:
        seen.append("begun")
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep, 60)
                with trio.move_on_after(30):
                    await trio.sleep(60)
        except BaseException:
            seen.append("cancelled")
            if not params["goes_on"]:
                raise
        return {"goes": "on"}

    async with open_wire({"waits": waits, "echo": echo}) as wire:
        for goes_on in (False, True):
            seen.clear()
            await wire.say(
                request(1, "waits", goes_on=goes_on),
                notification("notifications/cancelled", requestId=1),
                request(2, "echo"),
            )
            assert [a["id"] for a in await wire.heard()] == [2]
            assert seen == ["begun", "cancelled"]


async def test_a_ctrl_c_never_lands_in_a_task_of_the_session_whose_guard_would_swallow_it(
    autojump_clock: MockClock,
) -> None:
    exposed: list[str] = []

    def look(where: str) -> None:
        if not trio.lowlevel.currently_ki_protected():
            exposed.append(where)

    class Watching(LinePipe):
        async def receive(self) -> Any:
            look("the reader")
            return await super().receive()

    async def waits(ctx: Ctx, params: Any) -> Any:
        look("a handler")
        await trio.sleep(0.1)
        look("a handler that has waited")
        return {}

    async def carry() -> None:
        for item in (initialize("2025-11-25"), request(1, "waits"), request(2, "waits")):
            await send.send(encode(item) + b"\n")
            await trio.sleep(1)
        send.close()

    send, receive = trio.open_memory_channel[bytes](10)

    async def read() -> bytes:
        try:
            return await receive.receive()
        except trio.EndOfChannel:
            return b""

    async def write(data: bytes) -> None:
        await trio.lowlevel.checkpoint()

    async with open_runtime(App({"waits": waits})) as runtime, trio.open_nursery() as nursery:
        nursery.start_soon(carry)
        await serve_pipe(runtime, Watching(read, write, LineReader(1000)), transport="stdio")
    assert exposed == []


# -- one message at once


@asynccontextmanager
async def two_pipes() -> AsyncIterator[tuple[LinePipe, trio.lowlevel.FdStream, int, int]]:
    """A pipe of lines over two of the system's, its stream for writing, and the ends that a peer has."""
    there, out = os.pipe()
    back, here = os.pipe()
    try:
        async with trio.lowlevel.FdStream(out) as writer, trio.lowlevel.FdStream(back) as reader:
            yield (
                LinePipe(partial(read_when_ready, reader.fileno), writer.send_all, fifo=writer.fileno),
                writer,
                there,
                here,
            )
    finally:
        os.close(there)
        os.close(here)


async def test_a_message_is_written_at_once() -> None:
    async with two_pipes() as (pipe, _, there, _here):
        for message in (b"first", b"second"):
            assert pipe.send_nowait(message)
            assert os.read(there, 100) == message + b"\n"


async def test_of_a_burst_only_the_first_message_is_written_at_once_if_the_others_shall_leave_together() -> None:
    async with two_pipes() as (pipe, _, there, here):
        pipe.one_per_read = True
        assert pipe.send_nowait(b"first")
        assert os.read(there, 100) == b"first\n"
        assert not pipe.send_nowait(b"second")
        os.write(here, b"{}\n")
        assert list(await pipe.receive()) == [b"{}"]
        assert pipe.send_nowait(b"third")
        assert os.read(there, 100) == b"third\n"


async def test_a_message_that_the_system_might_cut_in_two_is_not_written_at_once() -> None:
    async with two_pipes() as (pipe, _, there, _here):
        assert not pipe.send_nowait(b"x" * select.PIPE_BUF)
        assert not pipe.send_nowait(b"two\nlines")
        assert pipe.send_nowait(b"x" * (select.PIPE_BUF - 1))
        assert len(os.read(there, 100_000)) == select.PIPE_BUF


async def test_a_pipe_that_is_full_or_closed_takes_nothing_at_once() -> None:
    async with two_pipes() as (pipe, writer, there, _here):
        with suppress(BlockingIOError):
            while os.write(writer.fileno(), b"x" * 4096):
                pass
        assert not pipe.send_nowait(b"more")
        os.read(there, 65536)
        await writer.aclose()
        assert not pipe.send_nowait(b"more")


class Ears:
    """A receiver that hears nothing but answers."""

    json_limits = DEFAULT_LIMITS

    def __init__(self) -> None:
        self.reason, self.heard = "", 0

    async def deliver(self, frame: Any) -> None:
        pytest.fail(f"{frame} is no answer")

    def deliver_nowait(self, answer: Any) -> bool:
        self.heard += 1
        return True

    def lost(self, reason: str) -> None:
        self.reason = reason

    def headers_for(self, method: str, params: Mapping[str, Any]) -> Mapping[str, str]:
        return {}

    def headers_of(self, request_id: Any) -> Mapping[str, str]:
        return {}


async def test_messages_of_all_sizes_arrive_whole_and_in_order() -> None:
    sizes = (1, 200_000, 1, 2, select.PIPE_BUF, 3, select.PIPE_BUF - 1, 70_000, 5, 6)
    sent = [b"%d " % number + b"x" * sizes[number % len(sizes)] for number in range(300)]
    lines, found = LineReader(1_000_000), list[bytes]()
    ears = Ears()
    async with two_pipes() as (pipe, _, there, here), open_client_link(pipe, ears) as link:
        await wait_all_tasks_blocked()
        for number, message in enumerate(sent):
            link.post(message)
            if number % 3 == 0:
                os.write(here, b'{"jsonrpc":"2.0","id":1,"result":{}}\n')  # so that the next may be written at once
                await trio.lowlevel.checkpoint()
            while number % 7 == 0 and select.select([there], [], [], 0)[0]:
                found += [text for text in lines.feed(os.read(there, 50_000)) if isinstance(text, bytes)]
                await trio.lowlevel.checkpoint()
        while len(found) < len(sent):
            await trio.lowlevel.wait_readable(there)
            found += [text for text in lines.feed(os.read(there, 65536)) if isinstance(text, bytes)]
    assert found == sent
    assert ears.heard > 10


async def test_reading_ends_when_the_stream_is_closed(autojump_clock: MockClock) -> None:
    back, here = os.pipe()
    stream = trio.lowlevel.FdStream(back)
    pipe = LinePipe(partial(read_when_ready, stream.fileno), stream.send_all)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.aclose)
        assert list(await pipe.receive()) == []
    with pytest.raises(trio.ClosedResourceError):
        await read_when_ready(stream.fileno)
    os.close(here)
