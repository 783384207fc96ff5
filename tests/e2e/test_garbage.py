"""A connection, a session or a task that ends is freed at once.

Objects in a reference cycle wait for a full garbage collection, which `server.run()` makes rare because it stops the
event loop. A client that connects and leaves, again and again, would fill the memory meanwhile.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked
from wsproto.frame_protocol import FrameProtocol

from mcptrio import Context, Limits, Server, ToolError
from mcptrio.extensions.tasks import Tasks
from mcptrio.stores import open_store
from tests.engines import ENGINES
from tests.extensions.kit import WITH_TASKS
from tests.faults.hostile_peer import UPGRADE, Peer, masked
from tests.stateless.kit import meta

# From Python 3.12 on, an exception that leaves `trio.from_thread.run` is in a cycle with a frame of Trio.
TRIO_KEEPS_EXCEPTIONS = sys.version_info >= (3, 12)

CALL = {"name": "echo", "arguments": {"text": "x"}}


def make_server(**options: Any) -> Server:
    server = Server("garbage", **options)
    server.add_extension(Tasks())

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool
    def in_thread(text: str) -> str:
        return text

    @server.tool
    def fail_in_thread() -> str:
        raise ToolError("as meant")

    @server.tool
    def ask_in_thread(ctx: Context) -> str:
        return str(trio.from_thread.run(ctx.elicit, "How many?", int))

    @server.tool
    async def wait(ctx: Context) -> str:
        await ctx.progress(1)  # makes the response a stream
        await trio.sleep_forever()
        return "never"

    @server.tool(task=True)
    async def report(text: str) -> str:
        await trio.lowlevel.checkpoint()
        return text

    @server.resource("notes://{name}")
    async def note(name: str) -> str:
        return name

    return server


async def come_and_go(peer: Peer) -> None:
    """Connect in several ways, and leave."""
    token = {"_meta": {**meta(), "progressToken": 1}}
    listened = {"notifications": {"resourceSubscriptions": ["notes://a"]}}
    waiting = peer.frame("tools/call", {"name": "wait", "arguments": {}, "_meta": {"progressToken": 1}})
    requests = [
        peer.call("echo", {"text": "x"}),
        peer.call("in_thread", {"text": "x"}),
        peer.call("fail_in_thread", {}),
        *([] if TRIO_KEEPS_EXCEPTIONS else [peer.call("ask_in_thread", {}, capabilities={"elicitation": {}})]),
        peer.alone("tools/call", {"name": "wait", "arguments": {}, **token}),
        peer.alone("subscriptions/listen", listened),
        b"POST /mcp HT",
        b"",
    ]
    for request in requests:
        async with await peer.connect() as stream:
            await stream.send_all(request)
            if request.startswith(b"POST /mcp HTTP"):
                await peer.some(stream)
    async with await peer.connect() as stream:
        session = await peer.open_session(stream)
        await peer.ask(stream, peer.inside(session, peer.frame("tools/call", CALL)))
        await peer.ask(stream, peer.head(f"Mcp-Session-Id: {session}", method="DELETE"))
    async with await peer.connect() as stream:
        await peer.ask(stream, peer.call("report", {"text": "x"}, capabilities=WITH_TASKS))
    for messages in ((), (peer.initialize(),), (peer.initialize(), waiting)):
        async with await peer.connect() as stream:
            await stream.send_all(peer.head(*UPGRADE, method="GET"))
            await peer.some(stream)
            for message in messages:
                await stream.send_all(masked(message))
                await peer.some(stream)


def parsers() -> list[object]:
    """The parsers of WebSockets that are in memory, oldest first."""
    return [each for each in gc.get_objects() if isinstance(each, FrameProtocol)]


@contextmanager
def kept_garbage() -> Iterator[list[object]]:
    """Collect no garbage inside; afterwards give a list of what there was."""
    found: list[object] = []
    gc.collect()
    gc.disable()
    before = len(parsers())
    try:
        yield found
        # The collector closes the generator of such a cycle, and then finds none.
        found += parsers()[before:]
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def ours(found: list[object]) -> Counter[str]:
    return Counter(type(each).__name__ for each in found if type(each).__module__.startswith(("mcptrio", "wsproto")))


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_connection_that_ends_leaves_nothing_for_the_garbage_collector(engine: str) -> None:
    async with trio.open_nursery() as nursery:
        server = make_server()
        (address, *_) = await nursery.start(partial(server.serve_http, port=0, engine=engine, auth=None))
        (runtime,) = server._app.publisher.runtimes
        runtime.parking._in_threads.size = 1  # the next question ends the call of the last one
        peer = Peer(address.port, "none")
        await come_and_go(peer)  # what is made once: imports, caches, threads
        await wait_all_tasks_blocked(0.1)
        with kept_garbage() as found:
            for _ in range(3):
                await come_and_go(peer)
            await wait_all_tasks_blocked(0.1)
        nursery.cancel_scope.cancel()
    assert ours(found) == {}


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_passivated_session_leaves_nothing_for_the_garbage_collector(engine: str, tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        server = make_server(limits=Limits(passivate_after=0.05, check_every=0.05))
        store = open_store(f"sqlite:///{tmp_path / 'sessions.db'}")
        (address, *_) = await nursery.start(partial(server.serve_http, port=0, engine=engine, auth=None, store=store))
        (runtime,) = server._app.publisher.runtimes
        peer = Peer(address.port, "none")

        async def come_back() -> None:
            async with await peer.connect() as stream:
                session = await peer.open_session(stream)
                for _ in range(2):  # the second call activates the session
                    await peer.ask(stream, peer.inside(session, peer.frame("tools/call", CALL)))
                    while runtime.supervisor.sessions or runtime.homes.moving:
                        await trio.sleep(0.01)

        with trio.fail_after(30):
            await come_back()
            with kept_garbage() as found:
                for _ in range(3):
                    await come_back()
                await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert ours(found) == {}
