"""Pipes on a network that fails, in memory and on virtual time: throttled, half-closed, cut, swallowed, corrupted."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio._wire.lines import LineReader
from mcptrio.transports.pipe.server import PipeLimits, serve_pipe
from mcptrio.transports.stdio.server import LinePipe
from tests.e2e.canary import STATEFUL
from tests.e2e.fault_proxy import Fault, faulty_pair

from .conftest import Open, WatchedServer
from .serving import Trail, make_server

Json = dict[str, Any]


@define(eq=False)
class Peer:
    """A client at its end of a pipe, and what it read."""

    stream: Any
    frames: list[Json] = field(factory=list)
    broken: list[bytes] = field(factory=list)
    """Lines that were no message."""
    session: Any = None
    over: trio.Event = field(factory=trio.Event)

    async def write(self, **frame: Any) -> None:
        await self.stream.send_all(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n")

    async def call(self, request_id: int, tool: str, **arguments: Any) -> None:
        params = {"name": tool, "arguments": {"text": "pipe", **arguments}, "_meta": {"progressToken": request_id}}
        await self.write(id=request_id, method="tools/call", params=params)

    async def open(self) -> None:
        info = {"name": "peer", "version": "1"}
        params = {"protocolVersion": STATEFUL, "capabilities": {}, "clientInfo": info}
        await self.write(id=0, method="initialize", params=params)
        await self.write(method="notifications/initialized")

    async def read(self) -> None:
        lines = LineReader()
        try:
            async for data in self.stream:
                for line in lines.feed(bytes(data)):
                    try:
                        self.frames.append(json.loads(line))  # type: ignore[arg-type]
                    except ValueError:
                        self.broken.append(line)  # type: ignore[arg-type]
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    def answers(self, request_id: int) -> list[Json]:
        return [frame for frame in self.frames if frame.get("id") == request_id]


@asynccontextmanager
async def connected(watched: WatchedServer, fault: Fault, **limits: Any) -> AsyncIterator[Peer]:
    async with trio.open_nursery() as nursery:
        client, server = faulty_pair(nursery, fault)
        peer = Peer(client)

        async def serve() -> None:
            pipe = LinePipe(partial(server.receive_some, 65536), server.send_all)
            peer.session = await serve_pipe(watched.runtime, pipe, transport="stdio", limits=PipeLimits(**limits))
            peer.over.set()
            await server.aclose()

        nursery.start_soon(serve)
        await peer.open()
        yield peer
        await client.aclose()
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def test_fault_a_slow_line_delays_and_loses_nothing(open_watched: Open, autojump_clock: MockClock) -> None:
    """F14, F37: 200 bytes a second, and everything comes, in order, for as long as it takes."""
    async with open_watched(make_server(call_timeout=900)) as watched, connected(watched, Fault(rate=200.0)) as peer:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.read)
            began = trio.current_time()
            await peer.call(1, "tell", times=20, pause=0)
            with trio.fail_after(300):
                while not peer.answers(1):
                    await trio.sleep(0.5)
            nursery.cancel_scope.cancel()
        assert trio.current_time() - began > 10, "the line was slow"
        steps = [
            frame["params"]["progress"] for frame in peer.frames if frame.get("method") == "notifications/progress"
        ]
        assert steps == sorted(set(steps))
        assert steps[-1] == 20
        assert len(peer.answers(1)) == 1


async def test_fault_a_peer_that_is_done_sending_still_gets_its_answers(
    open_watched: Open, autojump_clock: MockClock
) -> None:
    """The way back stays open: whatever ends in time is answered, the rest is cancelled."""
    trail = Trail()
    async with open_watched(make_server(trail)) as watched:
        async with trio.open_nursery() as nursery:
            client, server = faulty_pair(nursery, Fault(half_close_after=10_000))
            peer = Peer(client)
            await peer.open()
            await peer.call(1, "wait", seconds=1.0)
            await peer.call(2, "wait", seconds=100.0)
            await client.send_all(b" " * 10_000)
            pipe = LinePipe(partial(server.receive_some, 65536), server.send_all)
            nursery.start_soon(peer.read)
            await serve_pipe(watched.runtime, pipe, transport="stdio", limits=PipeLimits(linger=5.0))
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert trail.done == ["begun", "begun", "finished", "cancelled"]
    assert len(peer.answers(1)) == 1
    assert peer.answers(2) == []


@pytest.mark.parametrize("cut", [0, 1, 60, 200, 400, 700])
@pytest.mark.parametrize("ending", ["fin", "black hole"])
async def test_fault_a_line_that_is_cut_anywhere_ends_its_session_only(
    cut: int, ending: Any, open_watched: Open, autojump_clock: MockClock
) -> None:
    """F01, F03: nothing is left of it; a line that swallows everything ends when the peer is gone at last."""
    trail = Trail()
    fault = Fault(cut_after=cut, ending=ending)
    async with open_watched(make_server(trail, call_timeout=900)) as watched, connected(watched, fault) as peer:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(peer.read)
                with suppress(trio.BrokenResourceError):
                    await peer.call(1, "tell", times=20, pause=1.0)
                    await peer.call(2, "wait", seconds=600.0)
                await trio.sleep(40)
                nursery.cancel_scope.cancel()
        assert peer.over.is_set() is (ending == "fin"), "who is silent may only be slow"
        await peer.stream.aclose()
        with trio.fail_after(5):
            await peer.over.wait()
        assert trail.done in (["begun", "cancelled"], [])
        assert all(len(peer.answers(number)) <= 1 for number in range(3))


@pytest.mark.parametrize("place", [0, 5, 40, 300, 450])
async def test_fault_a_byte_that_changes_spoils_one_line(
    place: int, open_watched: Open, autojump_clock: MockClock
) -> None:
    """The reader of the other side loses at most what the byte stood in, and nothing of what comes after it."""
    async with open_watched(make_server()) as watched, connected(watched, Fault(corrupt_at=place)) as peer:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.read)
            for number in range(1, 9):
                await peer.call(number, "echo")
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        whole = [number for number in range(1, 9) if len(peer.answers(number)) == 1]
        assert len(whole) >= 6
        assert len(peer.broken) <= 1
