"""WebSockets behind the listener: no compression, bounded messages, close codes for faults (P18 to P21, K02 to K09)."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage

from mcptrio import telemetry
from mcptrio.transports.http_server.hypercorn import connection
from mcptrio.transports.http_server.hypercorn.websocket import WebSocket
from tests.deadlines import FairClock
from tests.engines import both_engines

from .raw_peer import WEBSOCKET, Served, echo, read_all, read_until, serving, status

pytestmark = both_engines


class Socket:
    """A WebSocket client that can also misbehave."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.connection = Connection(ConnectionType.CLIENT)

    async def send(self, event: Event) -> None:
        await self.stream.send_all(self.connection.send(event))

    async def receive(self) -> Event | None:
        """The next event, None at the end of the connection."""
        while True:
            for event in self.connection.events():
                return event
            data = await self.stream.receive_some()
            if not data:
                return None
            self.connection.receive_data(data)

    async def closing_code(self) -> int | None:
        """The code of the server's close frame; asserts that the connection ends after it."""
        with trio.fail_after(20):
            event = await self.receive()
            while not isinstance(event, CloseConnection):
                assert event is not None, "closed without a close frame"
                event = await self.receive()
            assert await self.stream.receive_some() == b""
            return event.code


async def open_socket(server: Served, *lines: str, after: bytes = b"") -> tuple[Socket, bytes]:
    stream = await server.connect()
    await stream.send_all(WEBSOCKET + "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + after)
    head, _, rest = (await read_until(stream, b"\r\n\r\n")).partition(b"\r\n\r\n")
    socket = Socket(stream)
    if rest:
        socket.connection.receive_data(rest)
    return socket, head


async def test_messages_go_both_ways() -> None:
    async with serving(echo, websocket_ping_interval=None) as server:
        socket, head = await open_socket(server)
        assert status(head) == 101
        await socket.send(TextMessage(data="grüß"))
        assert await socket.receive() == TextMessage(data="grüß")
        await socket.send(BytesMessage(data=b"\x00" * 70_000))
        received = b""
        while len(received) < 70_000:
            event = await socket.receive()
            assert isinstance(event, BytesMessage)
            received += event.data
        await socket.send(Ping(payload=b"p"))
        assert await socket.receive() == Pong(payload=b"p")
        await socket.send(CloseConnection(code=1000))
        assert await socket.closing_code() == 1000
        await socket.stream.aclose()
        await wait_all_tasks_blocked(0.02)
        assert server.listener.connections == 0


async def test_p18_compression_is_never_agreed_on() -> None:
    async with serving(echo) as server:
        socket, head = await open_socket(server, "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits")
        assert status(head) == 101
        assert b"extensions" not in head.lower()
        # A compressed frame is now a breach: the reserved bit has no meaning.
        await socket.stream.send_all(b"\xc1\x81\x00\x00\x00\x00a")
        assert await socket.closing_code() == 1002


async def test_frames_sent_along_with_the_handshake_wait_for_it() -> None:
    async with serving(echo, websocket_ping_interval=None) as server:
        early = Connection(ConnectionType.CLIENT).send(TextMessage(data="early"))
        socket, head = await open_socket(server, after=early)
        assert status(head) == 101
        assert await socket.receive() == TextMessage(data="early")
        assert server.caught() == 0


@pytest.mark.parametrize(
    "message",
    [TextMessage(data="x" * 1001), BytesMessage(data=b"x" * 1001), TextMessage(data="\u20ac" * 334)],
    ids=["text", "bytes", "P21: 334 characters, 1002 bytes"],
)
async def test_p19_p21_a_message_too_big_closes_with_1009_and_ends_the_app(message: Any) -> None:
    kinds: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        kinds.append((await receive())["type"])

    async with serving(app, websocket_max_message=1000) as server:
        socket, _ = await open_socket(server)
        await socket.send(message)
        assert await socket.closing_code() == 1009
        await wait_all_tasks_blocked()
        assert kinds == ["websocket.disconnect"]
        await socket.stream.aclose()
        await wait_all_tasks_blocked(0.02)
        assert server.listener.connections == 0


async def test_a_message_of_exactly_the_limit_is_taken() -> None:
    async with serving(echo, websocket_max_message=1000, websocket_ping_interval=None) as server:
        socket, _ = await open_socket(server)
        await socket.send(TextMessage(data="\u20ac" * 333 + "x"))
        assert await socket.receive() == TextMessage(data="\u20ac" * 333 + "x")
        await socket.stream.aclose()


async def test_p19_a_frame_that_only_claims_to_be_huge_is_cut_when_the_limit_is_passed() -> None:
    async with serving(echo, websocket_max_message=1000) as server:
        socket, _ = await open_socket(server)
        await socket.stream.send_all(b"\x82\xff" + struct.pack(">Q", 2**40) + b"\x00\x00\x00\x00" + b"x" * 2000)
        assert await socket.closing_code() == 1009


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        pytest.param(b"\x81\x01a", 1002, id="K07 unmasked"),
        pytest.param(b"\xb1\x81\x00\x00\x00\x00a", 1002, id="K07 reserved bits"),
        pytest.param(b"\x09\x80\x00\x00\x00\x00", 1002, id="K07 fragmented control frame"),
        pytest.param(b"\x89\xfe\x00\x7e\x00\x00\x00\x00" + b"a" * 126, 1002, id="K07 long control frame"),
        pytest.param(b"\x83\x80\x00\x00\x00\x00", 1002, id="K07 unknown opcode"),
        pytest.param(b"\x81\x82\x00\x00\x00\x00\xff\xff", 1007, id="K05 text that is not UTF-8"),
        pytest.param(b"\x88\x81\x00\x00\x00\x00\x03", 1002, id="K09 close with one byte"),
        pytest.param(b"\x88\x82\x00\x00\x00\x00\x03\xed", 1002, id="K09 close with 1005"),
    ],
)
async def test_a_breach_of_the_protocol_closes_with_its_code(frame: bytes, code: int) -> None:
    async with serving(echo) as server:
        socket, _ = await open_socket(server)
        await socket.stream.send_all(frame)
        assert await socket.closing_code() == code
        assert server.caught() == 0


async def test_p20_the_server_pings(fair_clock: FairClock) -> None:
    async with serving(echo, websocket_ping_interval=0.05) as server:
        socket, _ = await open_socket(server)
        with trio.fail_after(20):
            for _ in range(3):
                event = await socket.receive()
                assert isinstance(event, Ping)
                await socket.send(event.response())
        await socket.stream.aclose()


@pytest.mark.defect("S21")
async def test_a_peer_that_answers_no_ping_is_closed_with_1011() -> None:
    async with serving(echo, websocket_ping_interval=0.1) as server:
        socket, _ = await open_socket(server)
        await socket.send(TextMessage(data="alive, but deaf"))
        assert await socket.closing_code() == 1011
        assert server.count("ping_unanswered") == 1
        await until_ended(server)


@pytest.mark.defect("S21")
async def test_a_peer_in_the_middle_of_a_long_frame_may_answer_a_ping_later(fair_clock: FairClock) -> None:
    async with serving(echo, websocket_ping_interval=0.1) as server:
        socket, _ = await open_socket(server)
        await socket.stream.send_all(b"\x82\xfe\x00\xc8\x00\x00\x00\x00")
        for _ in range(10):
            await socket.stream.send_all(b"x" * 20)
            await trio.sleep(0.04)
        with trio.fail_after(20):
            event = await socket.receive()
            while isinstance(event, Ping):
                await socket.send(event.response())
                event = await socket.receive()
        assert event == BytesMessage(data=bytearray(b"x" * 200))
        await socket.stream.aclose()


@pytest.mark.defect("S21")
async def test_a_pong_that_waits_behind_a_slow_application_is_not_missed(fair_clock: FairClock) -> None:
    go_on = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await go_on.wait()
        while (event := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": event["text"]})

    async with serving(app, websocket_ping_interval=0.1) as server:
        socket, _ = await open_socket(server)
        for _ in range(30):  # more than the application's queue holds
            await socket.send(TextMessage(data="x"))
        await trio.sleep(0.5)
        go_on.set()
        with trio.fail_after(20):
            messages = 0
            while messages < 30:
                event = await socket.receive()
                assert isinstance(event, Ping | TextMessage)
                messages += isinstance(event, TextMessage)
                if isinstance(event, Ping):
                    await socket.send(event.response())
        await socket.stream.aclose()


EMPTY_FRAGMENT, ONE_BYTE_FRAGMENT = b"\x00\x80\x00\x00\x00\x00", b"\x00\x81\x00\x00\x00\x00x"
PING, PONG = b"\x89\x80\x00\x00\x00\x00", b"\x8a\x80\x00\x00\x00\x00"


@pytest.mark.defect("S4")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("frames", "limit"),
    [
        pytest.param(PING * 5000, "websocket_control", id="pings"),
        pytest.param(PONG * 5000, "websocket_control", id="pongs"),
        pytest.param(b"\x01\x80\x00\x00\x00\x00" + EMPTY_FRAGMENT * 5000, "websocket_fragments", id="empty fragments"),
        pytest.param(b"\x02\x80\x00\x00\x00\x00" + ONE_BYTE_FRAGMENT * 5000, "websocket_fragments", id="one byte each"),
    ],
)
async def test_a_flood_of_small_frames_is_closed_with_1008(frames: bytes, limit: str) -> None:
    async with serving(echo, websocket_ping_interval=None) as server:
        socket, _ = await open_socket(server)
        await socket.stream.send_all(frames)
        assert await socket.closing_code() == 1008
        assert [event.name for event in server.events if isinstance(event, telemetry.LimitHit)] == [limit]
        await until_ended(server)


@pytest.mark.defect("S4")
async def test_a_message_of_many_small_fragments_lets_other_tasks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 0
    during: list[int] = []
    handle = WebSocket._handle_events

    async def counting(self: WebSocket) -> None:
        before = turns
        await handle(self)
        during.append(turns - before)

    async def turn() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    monkeypatch.setattr(WebSocket, "_handle_events", counting)
    async with serving(echo, websocket_ping_interval=None) as server, trio.open_nursery() as nursery:
        nursery.start_soon(turn)
        socket, _ = await open_socket(server)
        await socket.stream.send_all(
            b"\x01\x80\x00\x00\x00\x00" + ONE_BYTE_FRAGMENT * 2000 + b"\x80\x80\x00\x00\x00\x00"
        )
        event = await socket.receive()
        assert event == TextMessage(data="x" * 2000)
        assert sum(during) > 100
        await socket.stream.aclose()
        nursery.cancel_scope.cancel()


async def until_ended(server: Served) -> None:
    with trio.fail_after(20):
        while server.listener.connections:
            await trio.sleep(0.01)


async def test_a_refused_handshake_is_an_http_answer() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.close"})

    async with serving(app) as server:
        async with await server.connect() as stream:
            await stream.send_all(WEBSOCKET + b"\r\n")
            assert status(await read_all(stream)) == 403


async def test_k04_another_version_is_refused_with_the_served_one() -> None:
    async with serving(echo) as server:
        async with await server.connect() as stream:
            await stream.send_all(WEBSOCKET.replace(b": 13", b": 8") + b"\r\n")
            response = await read_all(stream)
        assert status(response) == 426
        assert b"sec-websocket-version: 13" in response


async def test_the_apps_close_reaches_the_client() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept", "subprotocol": scope["subprotocols"][0]})
        await send({"type": "websocket.close", "code": 1001, "reason": "draining"})

    async with serving(app) as server:
        socket, head = await open_socket(server, "Sec-WebSocket-Protocol: mcp")
        assert b"sec-websocket-protocol: mcp" in head
        assert await socket.closing_code() == 1001
        await socket.stream.aclose()


async def test_the_app_is_notified_of_a_peer_that_vanishes() -> None:
    answered = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        assert (await receive())["type"] == "websocket.disconnect"
        answered.set()

    async with serving(app) as server:
        socket, _ = await open_socket(server)
        await socket.stream.aclose()
        with trio.fail_after(20):
            await answered.wait()


@pytest.mark.defect("S4")
async def test_one_message_waits_for_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message may be as large as a body, and nothing else bounds those of all sockets together."""
    made: list[connection.AppEvents] = []
    stop = trio.Event()

    class Recorded(connection.AppEvents):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    async def deaf(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await stop.wait()

    monkeypatch.setattr(connection, "AppEvents", Recorded)
    async with serving(deaf, websocket_ping_interval=None) as server:
        socket, _ = await open_socket(server)
        for _ in range(6):
            await socket.send(TextMessage(data="x"))
        await wait_all_tasks_blocked(0.2)
        assert [len(events._events) for events in made] == [1]
        stop.set()
