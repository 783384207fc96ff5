"""Transports of one's own: `server.serve(link)` and `connect(transport)`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from mcptrio import ConnectionLost, Context, DeclarationError, Link, Server, connect
from tests.client.kit import BOTH


class Half(trio.abc.Channel[bytes]):
    """One end of a connection made of two memory channels."""

    def __init__(self, out: trio.MemorySendChannel[bytes], into: trio.MemoryReceiveChannel[bytes]) -> None:
        self._out, self._into = out, into
        self.fails: Exception | None = None
        self.closed = False

    async def send(self, value: bytes) -> None:
        await self._out.send(value)

    async def receive(self) -> bytes:
        if self.fails is not None:
            raise self.fails
        return await self._into.receive()

    async def aclose(self) -> None:
        self.closed = True
        await self._out.aclose()
        await self._into.aclose()


def pair() -> tuple[Half, Half]:
    to_server, from_client = trio.open_memory_channel[bytes](4)
    to_client, from_server = trio.open_memory_channel[bytes](4)
    return Half(to_server, from_server), Half(to_client, from_client)


class InNursery:
    """Reaches a server that runs in a nursery of the test."""

    def __init__(self, serve: Callable[[Link], Awaitable[None]], nursery: trio.Nursery) -> None:
        self.serve, self.nursery = serve, nursery
        self.opened: list[Half] = []

    @asynccontextmanager
    async def open_link(self) -> AsyncIterator[Link]:
        ours, theirs = pair()
        self.opened.append(theirs)
        self.nursery.start_soon(self.serve, theirs)
        async with ours:
            yield ours


def greeter() -> Server:
    server = Server("greeter", version="1")

    @server.tool
    async def greet(name: str, ctx: Context) -> str:
        await ctx.progress(1)
        return f"Hello, {name}! over {ctx.session.transport}"

    @server.tool
    async def order(ctx: Context) -> str:
        answer = await ctx.elicit("How many?", int)
        return f"{answer.value} ordered"

    return server


@pytest.mark.parametrize("date", BOTH)
async def test_a_server_is_called_over_a_link_of_ones_own(date: str) -> None:
    progress: list[Any] = []
    async with trio.open_nursery() as nursery:
        transport = InNursery(greeter().serve, nursery)
        async with connect(transport, protocol=date, elicit=lambda params: {"value": 3}) as client:
            result = await client.call_tool(
                "greet", {"name": "Ada"}, on_progress=lambda *update: progress.append(update)
            )
            assert result.text == "Hello, Ada! over custom"
            assert (await client.call_tool("order")).text == "3 ordered"
    assert progress
    assert len(transport.opened) == 1, "and `serve` has returned, since the nursery is closed"
    assert not transport.opened[0].closed, "the caller of `serve` closes the link"


async def test_a_lost_link_is_opened_again(autojump_clock: trio.testing.MockClock) -> None:
    async with trio.open_nursery() as nursery:
        transport = InNursery(greeter().serve, nursery)
        async with connect(transport) as client:
            await client.call_tool("greet", {"name": "Ada"})
            await transport.opened[0].aclose()
            assert (await client.call_tool("greet", {"name": "Grace"})).text.startswith("Hello, Grace!")
    assert len(transport.opened) == 2


async def test_a_link_that_cannot_be_opened_is_one_plain_error() -> None:
    class Nowhere:
        @asynccontextmanager
        async def open_link(self) -> AsyncIterator[Link]:
            raise ConnectionRefusedError("the line is dead")
            yield  # type: ignore[unreachable]

    with pytest.raises(ConnectionLost, match="no connection to the server: the line is dead"):
        async with connect(Nowhere()):
            raise AssertionError("it is open")


@pytest.mark.parametrize(
    ("fails", "reason"),
    [
        (trio.BrokenResourceError("too long"), "the server closed the connection: too long"),
        (RuntimeError("odd"), "the connection failed"),
    ],
    ids=["lost", "defect"],
)
async def test_a_link_that_fails_is_a_lost_connection_for_the_client(fails: Exception, reason: str) -> None:
    class Broken:
        @asynccontextmanager
        async def open_link(self) -> AsyncIterator[Link]:
            ours, _theirs = pair()
            ours.fails = fails
            yield ours

    with pytest.raises(ConnectionLost, match=reason):
        async with connect(Broken()):
            raise AssertionError("it is open")


async def test_an_error_of_the_link_itself_is_raised_by_serve() -> None:
    _client, link = pair()
    link.fails = RuntimeError("odd")
    with pytest.raises(RuntimeError, match="odd"):
        await greeter().serve(link)


async def test_serving_ends_with_the_link() -> None:
    for end in (trio.EndOfChannel(), trio.BrokenResourceError(), trio.ClosedResourceError()):
        _client, link = pair()
        link.fails = end
        with trio.fail_after(30):
            await greeter().serve(link)


async def test_a_link_is_drained_when_the_event_is_set(autojump_clock: trio.testing.MockClock) -> None:
    server, stop, began = Server("slow"), trio.Event(), trio.Event()

    @server.tool
    async def slow() -> str:
        began.set()
        await trio.sleep(3)
        return "done"

    class Once:
        @asynccontextmanager
        async def open_link(self) -> AsyncIterator[Link]:
            ours, theirs = pair()
            nursery.start_soon(partial(server.serve, theirs, stop=stop, drain_timeout=10))
            yield ours

    async def set_when_running() -> None:
        await began.wait()
        stop.set()

    async with trio.open_nursery() as nursery:
        async with connect(Once()) as client:
            nursery.start_soon(set_when_running)
            assert (await client.call_tool("slow")).text == "done"


def test_an_object_that_cannot_be_connected_to_is_refused_with_a_hint() -> None:
    with pytest.raises(DeclarationError, match=r"cannot connect to object: .* open_link\(\)"):
        connect(object())  # type: ignore[arg-type]
