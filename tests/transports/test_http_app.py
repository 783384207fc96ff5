"""The ASGI shell: bodies, early answers, disconnects, lifespan, mounting. A tiny ASGI server drives it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio._actors.limits import Limits
from mcptrio.errors import LocalProtocolError
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.hypercorn.asgi import AsgiApp
from mcptrio.transports.http_server.hypercorn.hosted import HostedApp

from .app_for_tests import BASE, app_of, initialize, make_runtime, notification, open_endpoint, request, stage_of


class Exchange:
    """One ASGI request, seen from the server's side."""

    def __init__(self, method: str = "POST", path: str = "/mcp", *, root: str = "", **headers: Any) -> None:
        fields = {**BASE, **{name.replace("_", "-"): value for name, value in headers.items()}}
        self.scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "root_path": root,
            "query_string": b"",
            "http_version": "1.1",
            "scheme": "http",
            "client": ("127.0.0.1", 1),
            "headers": [(name.encode(), str(value).encode()) for name, value in fields.items() if value is not None],
        }
        self.to_app, self._incoming = trio.open_memory_channel[dict[str, Any]](100)
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.complete = trio.Event()
        self.receivers = 0
        self.most_receivers = 0
        self.sent = trio.lowlevel.ParkingLot()
        self.stall: trio.Event | None = None

    def feed(self, data: bytes, *, more: bool = False) -> Exchange:
        self.to_app.send_nowait({"type": "http.request", "body": data, "more_body": more})
        return self

    def disconnect(self) -> None:
        self.to_app.send_nowait({"type": "http.disconnect"})

    async def receive(self) -> dict[str, Any]:
        self.receivers += 1
        self.most_receivers = max(self.most_receivers, self.receivers)
        try:
            return await self._incoming.receive()
        finally:
            self.receivers -= 1

    async def send(self, message: dict[str, Any]) -> None:
        await trio.lowlevel.checkpoint()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = dict(message["headers"])
        else:
            if self.stall is not None:
                await self.stall.wait()
            self.body += message["body"]
            if not message["more_body"]:
                self.complete.set()
        self.sent.unpark_all()

    async def wait_for(self, text: bytes) -> None:
        while text not in self.body:
            await self.sent.park()

    async def run(self, app: AsgiApp) -> Exchange:
        await app(self.scope, self.receive, self.send)
        return self


async def session_of(app: AsgiApp) -> str:
    opened = await Exchange().feed(initialize()).run(app)
    assert opened.status == 200
    session_id = opened.headers[b"mcp-session-id"].decode()
    received = await Exchange(mcp_session_id=session_id).feed(notification("notifications/initialized")).run(app)
    assert (received.status, received.body, received.headers[b"content-length"]) == (202, b"", b"0")
    return session_id


async def test_a_call_through_asgi(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        app = AsgiApp(endpoint)
        session_id = await session_of(app)
        body = request(1, "echo", say="x" * 10)
        whole = await Exchange(mcp_session_id=session_id).feed(body).run(app)
        assert json.loads(whole.body)["result"] == {"echo": "x" * 10}
        assert int(whole.headers[b"content-length"]) == len(whole.body)
        pieces = Exchange(mcp_session_id=session_id)
        for byte in body:
            pieces.feed(bytes([byte]), more=True)
        assert json.loads((await pieces.feed(b"").run(app)).body)["result"] == {"echo": "x" * 10}


async def test_a_body_that_grows_too_large_is_cut_off(autojump_clock: MockClock) -> None:
    async with open_endpoint(HttpConfig(max_body=100)) as endpoint:
        reply = await Exchange().feed(b"x" * 60, more=True).feed(b"x" * 60, more=True).run(AsgiApp(endpoint))
        assert reply.status == 413
        assert reply.headers[b"connection"] == b"close"
        assert app_of(endpoint).counted("max_body") == 1


async def test_a_slow_body_is_cut_off_at_its_deadline(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        exchange = Exchange()

        async def drip() -> None:
            while not exchange.complete.is_set():
                exchange.feed(b" ", more=True)
                await trio.sleep(1)

        before = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip)
            await exchange.run(AsgiApp(endpoint))
        assert exchange.status == 408
        assert exchange.headers[b"connection"] == b"close"
        assert trio.current_time() - before == pytest.approx(10, abs=1.1)


async def test_an_early_answer_drains_the_body_meanwhile_and_closes(autojump_clock: MockClock) -> None:
    """Hypercorn cannot finish a response while its queue of body pieces is full: the application has to take them."""
    async with open_endpoint() as endpoint:
        exchange = Exchange(content_type="text/plain", content_length=1000)
        full = trio.Event()
        exchange.stall = full  # the response gets through only once the body was taken
        for _ in range(10):
            exchange.feed(b"x" * 100, more=True)

        async def open_when_empty() -> None:
            while exchange._incoming.statistics().current_buffer_used:
                await trio.sleep(0.001)
            full.set()

        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(open_when_empty)
                await exchange.run(AsgiApp(endpoint))
        assert (exchange.status, exchange.headers[b"connection"]) == (415, b"close")


async def test_an_early_answer_does_not_drain_for_ever(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        exchange = Exchange(content_type="text/plain", content_length=10**6)
        exchange.stall = trio.Event()

        async def open_later() -> None:
            await trio.sleep(60)
            taken_before = exchange._incoming.statistics().current_buffer_used
            exchange.feed(b"x", more=True)
            await wait_all_tasks_blocked()
            assert exchange._incoming.statistics().current_buffer_used == taken_before + 1
            assert exchange.stall is not None
            exchange.stall.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_later)
            await exchange.run(AsgiApp(endpoint))
        assert exchange.status == 415


async def test_a_refusal_without_a_body_keeps_the_connection(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        reply = await Exchange("GET", accept="text/event-stream").feed(b"").run(AsgiApp(endpoint))
        assert reply.status == 400
        assert b"connection" not in reply.headers


async def test_a_client_that_leaves_in_the_middle_of_its_body_is_not_answered(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        exchange = Exchange().feed(b"{", more=True)
        exchange.disconnect()
        assert (await exchange.run(AsgiApp(endpoint))).status == 0


async def test_a_stream_has_one_reader_of_receive_and_none_before(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        app = AsgiApp(endpoint)
        session_id = await session_of(app)
        exchange = Exchange(mcp_session_id=session_id).feed(request(1, "sleep", seconds=2))
        await exchange.run(app)
        assert exchange.headers[b"content-type"] == b"text/event-stream"
        assert b'"slept":2' in exchange.body
        assert exchange.complete.is_set()
        assert exchange.most_receivers == 1
        assert exchange.receivers == 0


async def test_a_disconnect_ends_the_response_and_not_the_call(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        app = AsgiApp(endpoint)
        session_id = await session_of(app)
        exchange = Exchange(mcp_session_id=session_id).feed(request(1, "count", to=3, every=1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(exchange.run, app)
            await exchange.wait_for(b'"progress":0')
            exchange.disconnect()
        assert not exchange.complete.is_set()
        cursor = exchange.body.split(b"\n")[0].removeprefix(b"id: ").decode()
        await trio.sleep(10)
        back = Exchange("GET", mcp_session_id=session_id, accept="text/event-stream", last_event_id=cursor)
        await back.feed(b"").run(app)
        assert back.body.count(b"data: {") == 4
        assert back.complete.is_set()


async def test_a_reader_that_stalls_is_cut_and_can_come_back(autojump_clock: MockClock) -> None:
    limits = Limits(call_timeout=800)
    async with open_endpoint(limits=limits) as endpoint:
        app = AsgiApp(endpoint)
        session_id = await session_of(app)
        exchange = Exchange(mcp_session_id=session_id).feed(request(1, "count", to=3, every=100))
        before = trio.current_time()
        exchange.stall = trio.Event()
        await exchange.run(app)
        assert trio.current_time() - before == pytest.approx(30, abs=0.1)
        assert app_of(endpoint).counted("write timeout") == 1
        session = endpoint.runtime.supervisor.find(session_id)
        assert session is not None
        assert session.peer.calls == 1, "the call goes on"


async def test_delete_with_a_body_and_get_health_through_asgi(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        app = AsgiApp(endpoint)
        session_id = await session_of(app)
        gone = await Exchange("DELETE", mcp_session_id=session_id, content_length=3).feed(b"abc").run(app)
        assert gone.status == 200
        assert (await Exchange("HEAD", "/livez").feed(b"").run(app)).body == b""
        assert (await Exchange("GET", "/livez").feed(b"").run(app)).body == b"ok\n"


async def test_a_later_http_version_gets_no_connection_header(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        exchange = Exchange(content_type="text/plain").feed(b"{}")
        exchange.scope["http_version"] = "2"
        reply = await exchange.run(AsgiApp(endpoint))
        assert reply.status == 415
        assert b"connection" not in reply.headers


# -- where it is mounted


@pytest.mark.parametrize(
    ("root", "path", "status"),
    [
        ("", "/mcp", 200),
        ("/api", "/api/mcp", 200),
        ("/api", "/mcp", 200),  # a host that takes its own part off the path
        ("/mcp", "/mcp", 200),
        ("/mcp", "/mcp/", 200),
        ("/api", "/api/other", 404),
        ("", "http://localhost:8000/mcp", 200),
        ("", "http://evil.example/mcp", 400),
    ],
)
async def test_the_application_works_under_a_root_path(
    autojump_clock: MockClock, root: str, path: str, status: int
) -> None:
    async with open_endpoint() as endpoint:
        reply = await Exchange(path=path, root=root).feed(initialize()).run(AsgiApp(endpoint))
        assert reply.status == status


# -- lifespan


class Lifespan:
    def __init__(self) -> None:
        self.to_app, self._incoming = trio.open_memory_channel[dict[str, Any]](2)
        self.said: list[dict[str, Any]] = []

    async def run(self, app: AsgiApp) -> None:
        async def send(message: dict[str, Any]) -> None:
            self.said.append(message)

        await app({"type": "lifespan"}, self._incoming.receive, send)

    def send(self, what: str) -> None:
        self.to_app.send_nowait({"type": f"lifespan.{what}"})


async def test_the_lifespan_opens_a_runtime_and_drains_it(autojump_clock: MockClock) -> None:
    app = HostedApp(make_runtime)
    lifespan = Lifespan()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lifespan.run, app)
        lifespan.send("startup")
        await wait_all_tasks_blocked()
        assert lifespan.said == [{"type": "lifespan.startup.complete"}]
        session_id = await session_of(app)
        endpoint = app.endpoint
        assert endpoint is not None
        exchange = Exchange(mcp_session_id=session_id).feed(request(1, "sleep", seconds=5, name="last"))
        nursery.start_soon(exchange.run, app)
        await trio.sleep(1)
        lifespan.send("shutdown")
        await exchange.complete.wait()
        assert b'"slept":5' in exchange.body
    assert lifespan.said[-1] == {"type": "lifespan.shutdown.complete"}
    assert stage_of(endpoint).ended == ["last"]
    assert (await Exchange().feed(initialize()).run(app)).status == 503


async def test_a_runtime_that_cannot_start_says_so(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Any:
        raise ValueError("no disk")

    lifespan = Lifespan()
    lifespan.send("startup")
    await lifespan.run(HostedApp(broken))
    assert lifespan.said == [{"type": "lifespan.startup.failed", "message": "no disk"}]


async def test_without_a_lifespan_the_first_request_says_what_to_do(autojump_clock: MockClock) -> None:
    app = HostedApp(make_runtime)
    reply = await Exchange().feed(initialize()).run(app)
    assert reply.status == 503
    assert b"lifespan=app.lifespan" in reply.body
    async with app.open():
        assert await session_of(app)


def test_an_event_loop_of_neither_trio_nor_asyncio_is_refused() -> None:
    """Driven by hand: no loop is running here."""
    said: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "lifespan.startup"}

    async def send(message: dict[str, Any]) -> None:
        said.append(message)

    drive(lambda: HostedApp(make_runtime)({"type": "lifespan"}, receive, send))
    assert said[0]["type"] == "lifespan.startup.failed"
    assert "Trio or asyncio" in said[0]["message"]


def drive(start: Callable[[], Any]) -> None:
    coroutine = start()
    with pytest.raises(StopIteration):
        coroutine.send(None)


@pytest.mark.defect("D18")
async def test_an_application_is_opened_once_at_a_time() -> None:
    app = HostedApp(make_runtime)
    async with app.open() as endpoint:
        with pytest.raises(LocalProtocolError, match="open already"):
            async with app.open():
                pass
        assert app.endpoint is endpoint, "the first one goes on"
    async with app.open():
        assert app.endpoint is not None
