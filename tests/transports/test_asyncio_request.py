"""The ASGI application called by asyncio: its lifespan, one request in two halves, and loops that end badly."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import threading
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest
import trio
import uvloop
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.routing import Mount

from mcptrio import Context, Server
from mcptrio._bridge import guest
from mcptrio._bridge.guest import current_guest, open_guest
from mcptrio.errors import DeclarationError, LocalProtocolError
from mcptrio.transports.http_server.hypercorn.asyncio_request import Application, AsyncioRequest
from mcptrio.transports.http_server.hypercorn.hosted import HostedApp

caller: ContextVar[str] = ContextVar("caller", default="unset")


class Stage:
    """A server whose tools report what becomes of them."""

    def __init__(self) -> None:
        self.server = Server("stage", version="1")
        self.seen: list[str] = []
        self.guests: set[Any] = set()

        @self.server.tool
        async def echo(text: str) -> str:
            self.guests.add(current_guest())
            return f"{text} {caller.get()}"

        @self.server.tool
        async def wait(ctx: Context) -> str:
            self.seen.append("waiting")
            try:
                await trio.sleep_forever()
            finally:
                self.seen.append("cancelled")
            return ""

        @self.server.tool
        async def flood(ctx: Context) -> str:
            for step in range(10_000):
                await ctx.log("info", "x" * 1000)
                self.seen.append(str(step))
            return "all"


def call(tool: str, **arguments: Any) -> bytes:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/logLevel": "info",
    }
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


class Exchange:
    """One HTTP request as an ASGI server has it."""

    def __init__(self, body: bytes, tool: str = "echo") -> None:
        self.body = body
        self.tool = tool
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self.arrived = asyncio.Event()
        self.arrived.set()
        self.before_send: Callable[[], Awaitable[object]] | None = None

    async def receive(self) -> dict[str, Any]:
        await self.arrived.wait()
        if self.body:
            body, self.body = self.body, b""
            return {"type": "http.request", "body": body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if self.before_send is not None:
            await self.before_send()
        self.sent.append(message)

    async def run(self, app: Application, **others: str) -> Exchange:
        headers = {
            "host": "127.0.0.1:8000",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": self.tool,
            **others,
        }
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "http_version": "1.1",
            "client": ("127.0.0.1", 1),
        }
        await app(scope, self.receive, self.send)
        return self

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def content(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_call_is_answered_and_context_variables_reach_it(stage: Stage, factory: Any) -> None:
    async def main() -> None:
        app = stage.server.asgi()
        async with app.lifespan():
            caller.set("somebody")
            reply = await Exchange(call("echo", text="hi")).run(app)
            assert reply.status == 200
            assert b"hi somebody" in reply.content

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())
    assert not trio.lowlevel.in_trio_run()


def test_all_applications_of_a_loop_share_one_trio_run(stage: Stage) -> None:
    async def main() -> None:
        one, two = stage.server.asgi(), stage.server.asgi()
        async with one.lifespan(), two.lifespan():
            for app in (one, two):
                await Exchange(call("echo", text="hi")).run(app)
            assert len(stage.guests) == 1
        async with one.lifespan():
            await Exchange(call("echo", text="hi")).run(one)
            assert len(stage.guests) == 2, "the run ended with its last application"

    asyncio.run(main())


def test_two_loops_in_two_threads_have_a_trio_run_each(stage: Stage) -> None:
    async def main() -> None:
        app = stage.server.asgi()
        async with app.lifespan():
            await Exchange(call("echo", text="hi")).run(app)
            await asyncio.sleep(0.1)

    threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(stage.guests) == 2


def test_a_disconnect_cancels_a_stateless_call(stage: Stage) -> None:
    async def main() -> None:
        app = stage.server.asgi()
        async with app.lifespan():
            exchange = Exchange(call("wait"), "wait")
            running = asyncio.ensure_future(exchange.run(app))
            await until(lambda: exchange.sent)
            exchange.gone.set()
            await asyncio.wait_for(running, 5)
            assert stage.seen == ["waiting", "cancelled"]

    asyncio.run(main())


def test_a_cancelled_request_ends_its_trio_half_before_it_ends_itself(stage: Stage) -> None:
    async def main() -> None:
        app = stage.server.asgi()
        async with app.lifespan():
            running = asyncio.ensure_future(Exchange(call("wait"), "wait").run(app))
            await until(lambda: stage.seen)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await until(lambda: stage.seen == ["waiting", "cancelled"])

    asyncio.run(main())


@pytest.mark.parametrize("middleware", [False, True], ids=["alone", "behind middleware"])
def test_a_refusal_does_not_wait_for_the_body(stage: Stage, middleware: bool) -> None:
    async def main() -> None:
        app = stage.server.asgi()
        whole: Application = behind_middleware(app) if middleware else app
        async with app.lifespan():
            exchange = Exchange(call("echo", text="hi"))
            exchange.arrived.clear()
            running = asyncio.ensure_future(exchange.run(whole, **{"content-type": "text/plain"}))
            await until(lambda: len(exchange.sent) >= 2)
            assert exchange.status == 415
            exchange.arrived.set()
            await asyncio.wait_for(running, 10)
            assert running.cancelling() == 0

    asyncio.run(main())


def behind_middleware(app: HostedApp) -> Application:
    """Mount the application as FastAPI's `@app.middleware("http")` does: `receive` opens a task group of anyio."""

    async def pass_on(request: Any, call_next: Any) -> Any:
        return await call_next(request)

    return BaseHTTPMiddleware(Starlette(routes=[Mount("/", app)]), dispatch=pass_on)


def test_a_call_behind_middleware_is_answered(stage: Stage) -> None:
    async def main() -> None:
        app = stage.server.asgi()
        async with app.lifespan():
            for late in (False, True):
                exchange = Exchange(call("echo", text="hi"))
                if late:
                    exchange.arrived.clear()
                    asyncio.get_running_loop().call_later(0.05, exchange.arrived.set)
                reply = await asyncio.wait_for(exchange.run(behind_middleware(app)), 10)
                assert reply.status == 200
                assert b"hi" in reply.content

    asyncio.run(main())


def test_a_body_that_never_arrives_is_waited_for_within_its_timeout(stage: Stage) -> None:
    async def main() -> None:
        app = stage.server.asgi(body_timeout=0.1)
        async with app.lifespan():
            exchange = Exchange(call("echo", text="hi"))
            exchange.arrived.clear()
            running = asyncio.ensure_future(exchange.run(app))
            await until(lambda: exchange.sent)
            assert exchange.status == 408
            await asyncio.wait_for(running, 10)

    asyncio.run(main())


def test_a_request_that_is_cancelled_before_its_body_ends(stage: Stage) -> None:
    async def main() -> None:
        app = stage.server.asgi()
        async with app.lifespan():
            exchange = Exchange(call("echo", text="hi"))
            exchange.arrived.clear()
            running = asyncio.ensure_future(exchange.run(app))
            await asyncio.sleep(0.01)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(running, 10)
            assert exchange.sent == []

    asyncio.run(main())


def test_a_client_that_does_not_read_stops_the_handler_and_is_cut(stage: Stage) -> None:
    async def main() -> None:
        app = stage.server.asgi(write_timeout=0.3)
        async with app.lifespan():
            exchange = Exchange(call("flood"), "flood")

            async def stall() -> None:
                if len(exchange.sent) > 2:
                    await asyncio.Event().wait()

            exchange.before_send = stall
            await asyncio.wait_for(exchange.run(app), 10)
            assert len(stage.seen) < 10_000, "back-pressure reached the handler"
            assert exchange.sent[-1].get("more_body", True), "the response has no end, so the server closes it"

    asyncio.run(main())


def test_the_last_message_is_sent_within_the_write_timeout(stage: Stage) -> None:
    async def main() -> None:
        app = stage.server.asgi(write_timeout=0.2)
        async with app.lifespan():
            exchange = Exchange(call("echo", text="hi"))
            exchange.before_send = asyncio.Event().wait
            await asyncio.wait_for(exchange.run(app), 5)
            assert exchange.sent == []

    asyncio.run(main())


@pytest.mark.parametrize("error", [OSError("gone"), ValueError("broken host")])
def test_a_send_that_fails_ends_the_request(stage: Stage, error: Exception) -> None:
    async def main() -> None:
        app = stage.server.asgi()
        async with app.lifespan():
            exchange = Exchange(call("flood"), "flood")

            async def fail() -> None:
                if len(exchange.sent) > 2:
                    raise error

            exchange.before_send = fail
            if isinstance(error, OSError):  # the client is gone: nothing to report
                await asyncio.wait_for(exchange.run(app), 5)
            else:
                with pytest.raises(ValueError, match="broken host"):
                    await asyncio.wait_for(exchange.run(app), 5)

    asyncio.run(main())


def test_without_a_lifespan_every_request_is_refused_and_the_log_says_what_to_add_once(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        app = stage.server.asgi()
        for _ in range(3):
            reply = await Exchange(call("echo", text="hi")).run(app)
            assert reply.status == 503
            assert b"FastAPI(lifespan=app.lifespan)" in reply.content

    asyncio.run(main())
    assert caplog.text.count("FastAPI(lifespan=app.lifespan)") == 1


@pytest.mark.defect("U3")
def test_trio_only_functions_name_the_asyncio_alternative(stage: Stage) -> None:
    async def main() -> None:
        app = stage.server.asgi()
        for needs_trio in (stage.server.serve_http, stage.server.serve_stdio):
            with pytest.raises(DeclarationError, match=r"server\.asgi\(\)"):
                await needs_trio()
        with pytest.raises(DeclarationError, match=r"FastAPI\(lifespan=app\.lifespan\)"):
            async with app.open():
                pass
        async with app.lifespan():
            with pytest.raises(DeclarationError, match=r"server\.asgi\(\)"):
                await stage.server.serve_http()  # asyncio code, though a Trio run exists in this thread
            with pytest.raises(LocalProtocolError, match="open already"):
                async with app.lifespan():
                    pass
            assert (await Exchange(call("echo", text="hi")).run(app)).status == 200

    asyncio.run(main())


class Stubborn:
    """A tool that ignores its cancellation until it is freed."""

    def __init__(self, server: Server) -> None:
        self.free, self.running = threading.Event(), threading.Event()

        @server.tool
        async def stubborn() -> str:
            self.running.set()
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self.free.wait)
            return ""

    async def call_and_cancel(self, app: HostedApp) -> None:
        request = asyncio.ensure_future(Exchange(call("stubborn"), "stubborn").run(app))
        await until(self.running.is_set)
        request.cancel()


def test_a_handler_that_cannot_be_stopped_does_not_keep_the_host_from_ending(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stubborn = Stubborn(stage.server)

    async def main() -> None:
        app = stage.server.asgi(drain_timeout=0.1)
        async with app.lifespan():
            await stubborn.call_and_cancel(app)

    asyncio.run(main())
    assert "is left behind" in caplog.text
    stubborn.free.set()
    asyncio.run(ended())


def test_a_second_lifespan_says_that_a_handler_of_the_first_does_not_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubborn = Stubborn(stage.server)
    monkeypatch.setattr(guest, "_FINISH", 0.1)

    async def main() -> None:
        app = stage.server.asgi(drain_timeout=0.1)
        async with app.lifespan():
            await stubborn.call_and_cancel(app)
        with pytest.raises(LocalProtocolError, match="ignores its cancellation"):
            async with app.lifespan():
                pass
        stubborn.free.set()
        async with stage.server.asgi().lifespan():
            pass

    asyncio.run(main())


def test_a_handler_that_cannot_be_stopped_does_not_keep_a_cancelled_host_from_ending(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stubborn = Stubborn(stage.server)

    async def main() -> None:
        app = stage.server.asgi(drain_timeout=0.1)
        async with app.lifespan():
            await stubborn.call_and_cancel(app)
            main_task.cancel()
            await asyncio.sleep(60)

    loop = asyncio.new_event_loop()
    main_task = loop.create_task(main())
    guard = threading.Timer(30, stubborn.free.set)  # without the bound this test would end here, and fail
    guard.start()
    try:
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(main_task)
        assert "is left behind" in caplog.text
    finally:
        guard.cancel()
        stubborn.free.set()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.1))
        loop.close()
    asyncio.run(ended())


def test_a_request_in_another_loop_than_the_lifespan_is_refused(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    replies: list[Exchange] = []

    async def elsewhere(app: HostedApp) -> None:
        replies.append(await Exchange(call("echo", text="hi")).run(app))

    async def main() -> None:
        app = stage.server.asgi()
        async with app.lifespan():
            await asyncio.to_thread(lambda: asyncio.run(elsewhere(app)))
            assert (await Exchange(call("echo", text="hi")).run(app)).status == 200

    asyncio.run(main())
    assert replies[0].status == 503
    assert b"another event loop" in replies[0].content
    assert "another event loop" in caplog.text


async def ended() -> None:
    """The next loop of the thread brings a Trio run that was left behind to its end."""
    async with open_guest():
        pass


def test_a_request_ends_whose_reader_never_began() -> None:
    """The Trio half ends in the turn of the loop in which it asked for a message: the reader is cancelled unbegun."""

    async def main() -> None:
        request: AsyncioRequest

        class Ended:
            loop = asyncio.get_running_loop()

            @property
            def nursery(self) -> Ended:
                return self

            def start_soon(self, *_: Any, **__: Any) -> None:
                request._read()
                request._ended = True

        async def receive() -> Any:
            raise AssertionError("the reader has begun")

        async def send(_: Any) -> None: ...

        request = AsyncioRequest(Ended(), receive, send, write_timeout=1)  # type: ignore[arg-type]
        task = asyncio.create_task(request.serve(send, {"type": "http", "method": "GET", "path": "/"}))  # type: ignore[arg-type]
        await asyncio.wait({task}, timeout=5)
        if not task.done():
            request._reader = None
            request._ring()
        assert task.done()
        await task

    asyncio.run(main())


def test_messages_are_read_ahead_within_a_bound(stage: Stage) -> None:
    taken = 0

    async def receive() -> dict[str, Any]:
        nonlocal taken
        taken += 1
        return {"type": "http.request", "body": b"x" * 1000, "more_body": True}

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await trio.lowlevel.checkpoint()
        for _ in range(5):
            await receive()

    async def main() -> None:
        async with open_guest() as guest:
            request = AsyncioRequest(guest, receive, Exchange(b"").send, write_timeout=1)
            await request.serve(slow, {"type": "http", "method": "POST", "path": "/"})

    asyncio.run(main())
    assert taken <= 5 + 2


def test_a_first_read_that_is_interrupted_leaves_no_reader_behind() -> None:
    """The Trio half answers before the body has arrived, and waits for a disconnect at the same time."""
    reading, most = 0, 0

    async def receive() -> dict[str, Any]:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)  # as middleware that waits for tasks of its own
            reading -= 1
        raise AssertionError("unreachable")

    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        async with trio.open_nursery() as nursery:
            await send({"type": "http.response.start", "status": 401})
            nursery.start_soon(receive)
            await send({"type": "http.response.body", "body": b"", "more_body": True})
            nursery.cancel_scope.cancel()

    async def main() -> None:
        async with open_guest() as guest:
            before = asyncio.all_tasks()
            request = AsyncioRequest(guest, receive, Exchange(b"").send, write_timeout=1)
            await request.serve(refuse, {"type": "http", "method": "POST", "path": "/"})
            assert asyncio.all_tasks() == before
            assert reading == 0

    asyncio.run(main())
    assert most == 1, "two reads at the same time"


# -- loops that end badly


def test_a_cancelled_main_task_ends_trio(stage: Stage) -> None:
    """As `asyncio.run` does on Ctrl-C."""

    async def main() -> None:
        app = stage.server.asgi()
        async with app.lifespan():
            running = asyncio.ensure_future(Exchange(call("wait"), "wait").run(app))
            await until(lambda: stage.seen)
            signal.raise_signal(signal.SIGINT)
            await running

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert stage.seen == ["waiting", "cancelled"]
    assert not trio.lowlevel.in_trio_run()


def test_a_ctrl_c_that_arrives_in_trio_code_reaches_the_program(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """Without `asyncio.run` the program has only Python's own handler, and Trio installs one."""

    @stage.server.tool
    async def interrupt() -> str:
        signal.raise_signal(signal.SIGINT)
        await trio.lowlevel.checkpoint()
        return ""

    async def main() -> None:
        app = stage.server.asgi()
        async with app.lifespan():
            await Exchange(call("interrupt"), "interrupt").run(app)
            await asyncio.sleep(5)

    loop = asyncio.new_event_loop()
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(main())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0.1))
    loop.close()
    assert not trio.lowlevel.in_trio_run()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_loop_that_is_closed_without_a_shutdown_leaves_room_for_the_next(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> Any:
        try:
            yield
        finally:
            ended.append("lifespan")

    server = Server("left", lifespan=lifespan)
    app = server.asgi()
    left = app.lifespan()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(left.__aenter__())
    loop.close()
    assert trio.lowlevel.in_trio_run(), "it was left open"

    async def main() -> None:
        other = stage.server.asgi()
        async with other.lifespan():
            assert (await Exchange(call("echo", text="hi")).run(other)).status == 200

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert ended == ["lifespan"]
    assert "the asyncio loop was closed before" in caplog.text
    assert not trio.lowlevel.in_trio_run()


def test_two_open_loops_in_one_thread_are_refused() -> None:
    async def enter(manager: Any) -> None:
        await manager.__aenter__()

    async def leave(manager: Any) -> None:
        await manager.__aexit__(None, None, None)

    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    manager = open_guest()
    first.run_until_complete(enter(manager))
    with pytest.raises(LocalProtocolError, match="one event loop per thread"):
        second.run_until_complete(enter(open_guest()))
    first.run_until_complete(leave(manager))
    first.close()
    second.close()
