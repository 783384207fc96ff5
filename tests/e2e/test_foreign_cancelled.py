"""A `Cancelled` that does not belong to the task that raises it: a failure of one call, never the end of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import trio

from mcptrio import Context, MCPTrioError, Reconnect, Server, connect
from mcptrio.transports.http_server.listener.listener import Listener
from tests import engines
from tests.engines import both_engines

from .raw_peer import answer, echo, get, serving, status

pytestmark = [both_engines, pytest.mark.defect("C01")]


async def foreign_cancelled() -> trio.Cancelled:
    """Return a `Cancelled` of a scope that has ended, as a shared future or a cache would keep it."""
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            return error
    raise RuntimeError("not cancelled")


def make_server() -> Server:
    server = Server("single flight", "1")

    @server.tool
    async def add(a: int, b: int) -> int:
        await trio.lowlevel.checkpoint()
        return a + b

    @server.tool
    async def fail(wait: bool, group: bool) -> str:
        error: BaseException = await foreign_cancelled()
        if wait:
            await trio.sleep(0.1)
        raise BaseExceptionGroup("several", [error]) if group else error

    @server.tool
    async def fail_at_once() -> str:
        raise KEPT

    return server


KEPT: BaseException


@asynccontextmanager
async def serving_http(server: Server, **options: Any) -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:
        serve = partial(server.serve_http, port=0, engine=engines.current(), drain_timeout=0.2, **options)
        (address,) = await nursery.start(serve)
        yield f"{address.url}/mcp"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"], ids=["stateful", "stateless"])
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("fail_at_once", {}),
        ("fail", {"wait": False, "group": False}),
        ("fail", {"wait": True, "group": False}),
        ("fail", {"wait": True, "group": True}),
    ],
    ids=["at once", "without a wait", "after a wait", "in a group"],
)
async def test_a_handler_that_raises_a_foreign_cancelled_fails_alone(
    protocol: str, tool: str, arguments: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    global KEPT
    KEPT = await foreign_cancelled()
    with trio.fail_after(20):
        async with serving_http(make_server()) as url:
            async with connect(url, protocol=protocol) as client, connect(url, protocol=protocol) as other:
                for _ in range(2):
                    assert (await client.call_tool(tool, arguments)).is_error
                    assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
                    assert (await other.call_tool("add", {"a": 1, "b": 2})).text == "3"
    assert "Cancelled" in caplog.text, "it is logged"


@pytest.mark.parametrize("shield", [False, True], ids=["at once", "while another handler is shielded"])
@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"], ids=["stateful", "stateless"])
async def test_a_handler_that_cancels_the_nursery_of_its_task_does_not_end_the_server(
    protocol: str, shield: bool
) -> None:
    server, held, release = make_server(), trio.Event(), trio.Event()
    runs = 0

    @server.tool
    async def cancel_siblings() -> str:
        nonlocal runs
        runs += 1
        await trio.lowlevel.checkpoint()
        nursery = trio.lowlevel.current_task().parent_nursery
        assert nursery is not None
        nursery.cancel_scope.cancel()
        await trio.lowlevel.checkpoint()
        return "not cancelled"

    @server.tool
    async def hold() -> str:
        with trio.CancelScope(shield=True):
            held.set()
            await release.wait()
        return "held"

    async def call(url: str, tool: str) -> None:
        with suppress(MCPTrioError):
            async with connect(url, protocol=protocol) as client:
                await client.call_tool(tool)

    with trio.fail_after(30):
        async with serving_http(server) as url, connect(url, protocol=protocol) as other:
            for _ in range(3):
                async with trio.open_nursery() as nursery:
                    if shield:
                        nursery.start_soon(call, url, "hold")
                        await held.wait()
                    await call(url, "cancel_siblings")
                    assert (await other.call_tool("add", {"a": 1, "b": 2})).text == "3"
                    release.set()
                    nursery.cancel_scope.cancel()
    assert runs == 3, "it was answered with an error, and not repeated in another session"


async def test_a_supervisor_that_ends_by_itself_ends_the_server() -> None:
    server = make_server()

    @server.tool
    async def cancel_sessions(ctx: Context) -> str:
        ctx._session.runtime.supervisor.nursery.cancel_scope.cancel()
        return "done"

    async def serve(*, task_status: trio.TaskStatus[Any]) -> None:
        with pytest.raises(RuntimeError, match="cannot go on"):
            await server.serve_http(port=0, engine=engines.current(), task_status=task_status)

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            (address,) = await nursery.start(serve)
            with suppress(MCPTrioError):
                async with connect(f"{address.url}/mcp", protocol="2026-07-28", reconnect=Reconnect(tries=0)) as client:
                    await client.call_tool("cancel_sessions")


@pytest.mark.parametrize("group", [False, True], ids=["alone", "in a group"])
async def test_an_application_that_raises_a_foreign_cancelled_ends_its_connection_only(group: bool) -> None:
    """The guard of a connection is the next one, if the guard of a call lets something through."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/faulty":
            error = await foreign_cancelled()
            raise BaseExceptionGroup("several", [error]) if group else error
        if scope["path"] == "/hello":
            await answer(send, 200, b"hello")
            return
        await echo(scope, receive, send)

    async with serving(app) as server, await server.connect() as stream:
        await stream.send_all(get("/first"))
        assert status(await stream.receive_some()) == 200
        assert status(await server.ask(get("/faulty"))) == 500
        assert server.caught("request") == 1
        await stream.send_all(get("/second"))
        assert status(await stream.receive_some()) == 200, "another connection goes on"
        assert await server.is_alive()


def cancel_tasks(listener: Listener) -> None:
    """Do what a foreign `Cancelled` in one of its tasks would."""
    assert listener._nursery is not None
    listener._nursery.cancel_scope.cancel()


def close_socket(listener: Listener) -> None:
    listener._listening[0].socket.close()


@pytest.mark.parametrize("end", [cancel_tasks, close_socket])
async def test_a_listener_that_ends_by_itself_ends_the_server(
    end: Callable[[Listener], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    listeners: list[Listener] = []
    serve_listener = Listener.serve

    async def keep(self: Listener, **options: Any) -> None:
        listeners.append(self)
        await serve_listener(self, **options)

    async def serve(*, task_status: trio.TaskStatus[Any]) -> None:
        with pytest.raises(RuntimeError, match="stopped accepting connections"):
            await make_server().serve_http(port=0, engine=engines.current(), task_status=task_status)

    monkeypatch.setattr(Listener, "serve", keep)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve)
            (listener,) = listeners
            end(listener)
