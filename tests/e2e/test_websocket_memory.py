"""Large WebSocket messages share the memory of HTTP bodies, on real sockets.

With `FairClock` where a deadline must not pass; otherwise a deadline that passes is waited for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
import trio
from attrs import define
from trio.testing import wait_all_tasks_blocked
from wsproto.events import Ping, TextMessage

from mcptrio import Server, telemetry
from mcptrio._actors.runtime import Runtime
from mcptrio._actors.shares import Shares
from mcptrio.auth.server import Principal
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.admission import SMALL
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.endpoint.message import HttpRequest
from mcptrio.transports.http_server.endpoint.message_memory import MessageMemory
from mcptrio.transports.http_server.hypercorn import connection
from mcptrio.transports.http_server.hypercorn.asgi import AsgiApp
from mcptrio.transports.http_server.hypercorn.websocket import WebSocket
from tests.deadlines import FairClock
from tests.engines import both_engines

from .raw_peer import Served, serving
from .test_hypercorn_websocket import Socket, open_socket
from .test_websocket import ask, connect, open_session

pytestmark = [both_engines, pytest.mark.defect("S6")]

KIB = 1024
MESSAGE, MEMORY = 300 * KIB, 600 * KIB
"""The maximum size of a message, and the memory for two of them."""
READ = 64 * KIB
"""Bytes that the server reads at once."""

server = Server("sockets", version="1")


async def who(head: HttpRequest) -> Principal:
    return Principal(subject=str(head.text(b"authorization")))


@define(eq=False)
class Bounded:
    """A server whose memory for large messages is small."""

    served: Served
    endpoint: Endpoint
    runtime: Runtime
    streams: list[WebSocket]
    """The server's side of each socket."""
    senders: trio.Nursery

    @property
    def table(self) -> Shares:
        return self.endpoint.admission.body_memory

    async def open(self, owner: str = "ann") -> Socket:
        socket = await connect(self.served, f"Authorization: {owner}")
        await open_session(socket)
        return socket

    async def open_with_part(self, owner: str = "ann", sent: int = 250 * KIB) -> Socket:
        """A socket with a message of `MESSAGE` bytes of which only a part is sent."""
        socket = await self.open(owner)
        self.send_soon(socket, part_of_message(sent))
        return socket

    def send_soon(self, socket: Socket, data: bytes) -> None:
        """Send in a task, because the server may not read everything."""

        async def send() -> None:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await socket.stream.send_all(data)

        self.senders.start_soon(send)

    def limits(self) -> list[str]:
        return [event.name for event in self.served.events if isinstance(event, telemetry.LimitHit)]


@asynccontextmanager
async def bounded(
    monkeypatch: pytest.MonkeyPatch, *, ping_interval: float | None = None, **settings: Any
) -> AsyncIterator[Bounded]:
    """Serve, and check that no memory is reserved when all sockets are closed."""
    streams: list[WebSocket] = []

    class Recorded(WebSocket):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            streams.append(self)

    monkeypatch.setattr(connection, "WebSocket", Recorded)
    config = HttpConfig(**{"websocket_max_message": MESSAGE, "max_body_memory": MEMORY, **settings})
    async with server._app.make_runtime().open() as runtime:
        endpoint = Endpoint(runtime, config, None, who)
        async with (
            serving(AsgiApp(endpoint), websocket_ping_interval=ping_interval) as served,
            trio.open_nursery() as nursery,
        ):
            yield Bounded(served, endpoint, runtime, streams, nursery)
            nursery.cancel_scope.cancel()
            served.closing.close()
            await until(lambda: endpoint.admission.body_memory.used == endpoint.admission.body_memory.waiting == 0)


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(20):
        while not condition():
            await trio.sleep(0.01)


def part_of_message(sent: int) -> bytes:
    return b"\x81\xff" + MESSAGE.to_bytes(8, "big") + b"\0\0\0\0" + b"x" * sent


async def ping(socket: Socket, request_id: int, size: int = 0) -> None:
    assert (await ask(socket, request_id, "ping", _meta={"x": "y" * size}))["result"] == {}


async def test_unfinished_messages_of_one_client_hold_no_more_than_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bounded(monkeypatch, body_timeout=60, min_body_rate=1) as it:
        for _ in range(6):
            await it.open_with_part()
        await until(lambda: it.table.waiting == 4)
        await wait_all_tasks_blocked(0.1)
        assert it.table.held == {Principal(subject="ann").key: MEMORY}
        arrived = sorted(stream.buffer.length for stream in it.streams)
        assert arrived[-2:] == [250 * KIB] * 2
        assert arrived[-3] <= SMALL + READ, "the others are not read"
        small = await it.open()
        await ping(small, 1)


async def test_a_large_message_of_another_client_is_served_after_the_slow_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bounded(monkeypatch, body_timeout=0.5) as it:
        first = await it.open("ann")  # alone: it may take everything
        for _ in range(6):
            await it.open_with_part("ann")
        await until(lambda: it.table.waiting >= 3)
        other = await it.open("bob")
        await ping(other, 1, 200 * KIB)
        await ping(first, 1)


@pytest.mark.parametrize(
    "settings",
    [{"body_timeout": 0.5, "min_body_rate": 1}, {"body_timeout": 60, "min_body_rate": 1024 * KIB}],
    ids=["body_timeout", "min_body_rate"],
)
@pytest.mark.parametrize("more", [b"", b"\x89\x80\0\0\0\0"], ids=["silent", "pings"])
async def test_a_large_message_that_stops_arriving_is_closed(
    settings: dict[str, Any], more: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bounded(monkeypatch, **settings) as it:
        socket = await it.open()
        fragment = b"\x01\xff" + (250 * KIB).to_bytes(8, "big") + b"\0\0\0\0" + b"x" * 250 * KIB
        it.send_soon(socket, fragment)
        await until(lambda: it.streams[0].buffer.length == 250 * KIB or it.streams[0].closed)
        await socket.stream.send_all(more)  # is read, and must not clear the deadline
        assert await socket.closing_code() == 1008
        assert (it.served.count("message_timeout"), it.limits()) == (1, ["body_timeout"])
        await until(lambda: it.table.used == 0)


async def test_a_client_that_still_sends_receives_the_close_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bounded(monkeypatch, body_timeout=0.5) as it:
        socket = await it.open()
        await socket.stream.send_all(part_of_message(100 * KIB))
        await until(lambda: it.streams[0].closed)
        for _ in range(3):
            await socket.stream.send_all(b"x" * KIB)
            await trio.sleep(0.05)
        assert await socket.closing_code() == 1008


async def test_what_arrived_of_a_message_is_dropped_with_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bounded(monkeypatch, body_timeout=0.5) as it:
        await it.open_with_part()
        await until(lambda: it.table.used == MESSAGE)
        await until(lambda: it.streams[0].closed)  # the client still sends, and reads no close frame
        assert it.streams[0].buffer.length == 0


async def test_a_socket_has_no_deadline_between_messages(
    monkeypatch: pytest.MonkeyPatch, fair_clock: FairClock
) -> None:
    async with bounded(monkeypatch, body_timeout=0.5) as it:
        socket = await it.open()
        text = '{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"x":"' + "y" * 100 * KIB
        await socket.send(TextMessage(data=text, message_finished=False))
        await until(lambda: it.table.used == MESSAGE)
        await socket.send(TextMessage(data='"}}}'))
        event = await socket.receive()
        assert isinstance(event, TextMessage)
        await trio.sleep(1)
        await ping(socket, 2)


async def test_a_message_that_gets_no_memory_closes_its_socket_with_1013(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bounded(monkeypatch, body_timeout=0.2) as it:
        it.table.take_anyway("eve", MEMORY)
        socket = await it.open_with_part()
        assert await socket.closing_code() == 1013
        assert (it.served.count("no_memory"), it.limits()) == (1, ["max_body_memory"])
        it.table.give_back("eve", MEMORY)
        assert it.table.used == it.table.waiting == 0


async def test_a_socket_that_waits_for_memory_may_answer_a_ping_later(
    monkeypatch: pytest.MonkeyPatch, fair_clock: FairClock
) -> None:
    async with bounded(monkeypatch, body_timeout=30, ping_interval=0.1) as it:
        socket = await connect(it.served, "Authorization: ann")
        it.table.take_anyway("eve", MEMORY)
        text = '{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"x":"' + "y" * 200 * KIB + '"}}}'
        it.send_soon(socket, socket.connection.send(TextMessage(data=text)))
        await until(lambda: it.table.waiting == 1)
        await trio.sleep(0.5)
        it.table.give_back("eve", MEMORY)
        with trio.fail_after(20):
            event = await socket.receive()
            while isinstance(event, Ping):
                await socket.send(event.response())
                event = await socket.receive()
        assert isinstance(event, TextMessage), event
        await socket.stream.aclose()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)], ids=["holders first", "the waiting one first"])
async def test_sockets_that_end_at_any_stage_give_their_memory_back(
    order: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bounded(monkeypatch, body_timeout=60, min_body_rate=1) as it:
        handled = await it.open()
        await ping(handled, 1, 200 * KIB)
        await until(lambda: it.table.used == 0)  # while the socket stays open
        sockets = [await it.open_with_part() for _ in range(3)]
        await until(lambda: (it.table.used, it.table.waiting) == (MEMORY, 1))
        for number in order:
            await sockets[number].stream.aclose()
            await wait_all_tasks_blocked(0.02)
        await until(lambda: it.table.used == it.table.waiting == 0)
        await ping(handled, 2, 200 * KIB)


async def test_sockets_that_the_server_closes_give_their_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bounded(monkeypatch, body_timeout=60, min_body_rate=1) as it:
        sockets = [await it.open_with_part() for _ in range(3)]
        await until(lambda: (it.table.used, it.table.waiting) == (MEMORY, 1))
        await it.runtime.drain(0)
        for socket in sockets:  # the one that waits too
            assert await socket.closing_code() == 1001
        await until(lambda: it.table.used == it.table.waiting == 0)


async def test_large_messages_in_sequence_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bounded(monkeypatch, max_body_memory=MESSAGE) as it:
        socket = await it.open()
        texts = [
            msgspec.json.encode(
                {"jsonrpc": "2.0", "id": number, "method": "ping", "params": {"_meta": {"x": "y" * size}}}
            )
            for number, size in enumerate((250 * KIB, 0, 250 * KIB, SMALL, 250 * KIB, 250 * KIB))
        ]
        answered: list[Any] = []

        async def send() -> None:
            for number, text in enumerate(texts):
                size = len(text) if number % 2 else 50_000  # every other one in fragments
                pieces = [text[at : at + size].decode() for at in range(0, len(text), size)]
                for piece in pieces[:-1]:
                    await socket.send(TextMessage(data=piece, message_finished=False))
                await socket.send(TextMessage(data=pieces[-1]))

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send)
                while len(answered) < len(texts):
                    event = await socket.receive()
                    assert isinstance(event, TextMessage), event
                    answered.append(msgspec.json.decode(event.data)["id"])
        assert answered == list(range(len(texts)))
        await until(lambda: it.table.used == 0)


async def test_a_complete_message_holds_its_real_size_until_it_is_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = trio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        memory = MessageMemory(it.endpoint.admission, "ann")
        scope["extensions"]["mcptrio.message_memory"]["use"](memory)
        await send({"type": "websocket.accept"})
        await go_on.wait()
        while (await receive())["type"] == "websocket.receive":
            memory.handled()
        memory.close()

    async with bounded(monkeypatch) as it, serving(slow, websocket_ping_interval=None) as served:
        socket, _ = await open_socket(served)
        await socket.send(TextMessage(data="\u20ac" * 30 * KIB))
        await until(lambda: it.table.used == 90 * KIB)
        it.send_soon(socket, socket.connection.send(TextMessage(data="x" * (MESSAGE + 1))))
        await wait_all_tasks_blocked(0.05)
        assert it.table.used == 90 * KIB + MESSAGE
        go_on.set()
        assert await socket.closing_code() == 1009, "the limit of the endpoint"
