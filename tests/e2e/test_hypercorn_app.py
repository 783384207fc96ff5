"""The MCP endpoint as an ASGI application, served by Hypercorn behind the listener."""

from __future__ import annotations

import json
import logging
import socket
from contextvars import ContextVar
from functools import partial
from typing import Any

import hypercorn.trio
import pytest
import trio
from hypercorn.config import Config

from mcptrio.auth.server import Principal
from mcptrio.hypercorn import install_guard
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.message import HttpRequest, Plain
from mcptrio.transports.http_server.hypercorn.asgi import AsgiApp
from mcptrio.transports.http_server.listener.guarded_stream import GuardedStream
from tests.transports.app_for_tests import Ctx, Stage, open_endpoint, request

from .http_peer import HttpClient
from .raw_peer import answer_on, read_all, read_until, serving, status
from .test_direct import post, served, until

SLOW = HttpConfig(stream_after=60)  # no answer becomes a stream because the machine is busy


def engine_served(config: HttpConfig = SLOW, **options: Any) -> Any:
    return served(config, engine="hypercorn", **options)


class Raising(Stage):
    async def echo(self, ctx: Ctx, params: dict[str, Any]) -> dict[str, Any]:
        if params.get("wait"):
            await trio.sleep(0.01)
        raise SystemExit(3) if params.get("exits") else ZeroDivisionError("a handler's fault")


@pytest.mark.parametrize("wait", [False, True])
@pytest.mark.parametrize("exits", [False, True])
async def test_a_handler_that_raises_is_answered_and_its_connection_goes_on(wait: bool, exits: bool) -> None:
    async with engine_served(stage=Raising()) as (server, endpoint):
        client = await HttpClient.open(server)
        async with await server.connect() as stream:
            for number in range(1, 4):
                body = request(number, "echo", wait=wait, exits=exits)
                await stream.send_all(post(body, session=client.session_id))
                head, answer = await answer_on(stream)
                assert (status(head), answer["id"]) == (200, number)
                assert "error" in answer
        await until(lambda: endpoint.calls == 0)
        assert server.caught() == server.caught("request") == 0


@pytest.mark.parametrize("pieces", [2, 7])
@pytest.mark.parametrize("method", ["echo", "sleep"])
async def test_a_body_that_comes_in_pieces_is_waited_for_while_the_connection_is_read(pieces: int, method: str) -> None:
    async with engine_served() as (server, _):
        client = await HttpClient.open(server)
        async with await server.connect() as stream:
            for number in range(1, 4):
                params: dict[str, Any] = {"seconds": 0} if method == "sleep" else {"say": "x" * 200}
                ask = post(request(number, method, **params), session=client.session_id)
                size = -(-len(ask) // pieces)
                for at in range(0, len(ask), size):
                    await stream.send_all(ask[at : at + size])
                    await trio.sleep(0.005)
                _, answer = await answer_on(stream)
                assert answer["id"] == number
                assert "result" in answer


async def test_a_large_body_gives_its_memory_reservation_back() -> None:
    async with engine_served() as (server, endpoint):
        client = await HttpClient.open(server)
        async with await server.connect() as stream:
            for number, method in enumerate(("echo", "sleep", "echo"), 1):
                params: dict[str, Any] = {"seconds": 0} if method == "sleep" else {}
                await stream.send_all(
                    post(request(number, method, say="x" * 300_000, **params), session=client.session_id)
                )
                _, answer = await answer_on(stream)
                assert answer["id"] == number
            await until(lambda: endpoint.admission.body_memory.used == 0)


@pytest.mark.parametrize(("method", "params"), [("echo", {"say": 1}), ("sleep", {"seconds": 0.02})])
async def test_a_peer_that_only_stopped_writing_still_gets_its_answer(method: str, params: dict[str, Any]) -> None:
    async with engine_served() as (server, endpoint):
        client = await HttpClient.open(server)
        async with await server.connect() as stream:
            await stream.send_all(post(request(1, method, **params), session=client.session_id))
            await stream.send_eof()
            received = await read_all(stream)
        assert json.loads(received.partition(b"\r\n\r\n")[2])["id"] == 1
        await until(lambda: endpoint.calls == 0)


@pytest.mark.parametrize("after", [0, 1])
async def test_a_peer_that_is_gone_before_its_answer_leaves_nothing_behind(after: int) -> None:
    stage = Stage()
    async with engine_served(HttpConfig(stream_after=0.02), stage=stage) as (server, endpoint):
        client = await HttpClient.open(server)
        before = server.listener.connections
        for number in range(1, 6):
            stream = await server.connect()
            method, params = ("sleep", {"seconds": 0.03, "name": str(number)}) if after else ("echo", {"say": "x" * 9})
            await stream.send_all(post(request(number, method, **params), session=client.session_id))
            if after:
                await until(lambda number=number: str(number) in stage.begun)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # with a reset
            stream.socket.close()
        await until(lambda: endpoint.calls == 0 and server.listener.connections == before)
        assert sorted(stage.ended) == sorted(stage.begun)
        assert server.caught() == server.caught("request") == 0


async def test_a_connection_that_crashes_leaves_the_handler_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "mcptrio.http")
    stage = Stage()
    healthy = GuardedStream._read_at_once

    async def read_or_crash(self: GuardedStream) -> bytes:
        data = await healthy(self)
        if stage.begun and not stage.ended:
            raise ZeroDivisionError("a bug of ours")
        return data

    async with engine_served(HttpConfig(stream_after=0.02), stage=stage) as (server, endpoint):
        client = await HttpClient.open(server)
        monkeypatch.setattr(GuardedStream, "_read_at_once", read_or_crash)
        stream = await server.connect()
        await stream.send_all(post(request(1, "sleep", seconds=0.2, name="long"), session=client.session_id))
        await until(lambda: stage.begun == ["long"])
        await stream.send_all(b"G")
        await until(lambda: server.caught() == 1)
        assert stage.ended == []
        await until(lambda: endpoint.calls == 0)
        assert stage.ended == ["long"]
        session = endpoint.runtime.supervisor.find(client.session_id or "")
        assert session is not None
        assert session.peer.calls == 0
        assert await client.send("POST", request(2, "echo", say=2))


SOMEBODY = Principal(subject="somebody")


async def test_a_disconnect_is_noticed_while_the_authenticator_waits() -> None:
    asked: list[str] = []

    async def slow(head: HttpRequest) -> Any:
        asked.append(head.method)
        await trio.sleep(0.05)
        return Plain(401, ((b"www-authenticate", b"Bearer"),), b"") if b"x-anonymous" in head.fields else SOMEBODY

    async with open_endpoint(HttpConfig(), authenticator=slow) as endpoint, serving(AsgiApp(endpoint)) as server:
        async with await server.connect() as gone:
            await gone.send_all(post(request(1, "initialize")))
            await until(lambda: len(asked) == 1)
        await until(lambda: server.listener.connections == 0)
        async with await server.connect() as stream:
            ask = post(b"{}", "X-Anonymous: 1")
            await stream.send_all(ask)
            assert status(await read_until(stream, b"\r\n\r\n")) == 401
        fine = post(b"[]"), post(b"[]"), post(b"[]", "Connection: close")
        received = await server.ask(b"".join(fine))  # the others are held meanwhile, and found again
        assert received.count(b"HTTP/1.1 400") == 3
        assert len(asked) == 5
        assert server.caught() == server.caught("request") == 0


MARK: ContextVar[str] = ContextVar("mark", default="none")


async def test_an_authenticator_finds_nothing_of_the_request_before_in_its_context() -> None:
    found: list[str] = []

    async def marking(head: HttpRequest) -> Any:
        found.append(MARK.get())
        MARK.set("mine")
        return SOMEBODY

    async with open_endpoint(HttpConfig(), authenticator=marking) as endpoint, serving(AsgiApp(endpoint)) as server:
        async with await server.connect() as stream:
            for _ in range(3):
                await stream.send_all(post(b"{}"))
                await answer_on(stream)
        assert found == ["none"] * 3


async def test_a_middleware_sees_and_changes_what_passes_as_behind_any_server() -> None:
    seen: list[str] = []

    async with open_endpoint(HttpConfig()) as endpoint:
        app = AsgiApp(endpoint)

        async def middleware(scope: Any, receive: Any, send: Any) -> None:
            async def mark(message: Any) -> None:
                seen.append(message["type"])
                if message["type"] == "http.response.start":
                    message = {**message, "headers": [*message["headers"], (b"x-passed", b"yes")]}
                await send(message)

            await app({**scope, "path": scope["path"].replace("/outside", "/mcp")}, receive, mark)

        async def passing(scope: Any, receive: Any, send: Any) -> None:
            """One that leaves everything as it is, save for the path."""
            scope["path"] = scope["path"].replace("/outside", "/mcp")
            await app(scope, receive, send)

        for between, mark in ((middleware, True), (passing, False)):
            async with serving(between) as server:
                async with await server.connect() as stream:
                    for number in range(1, 4):
                        await stream.send_all(post(request(number, "echo", say=1), path="/outside"))
                        head, _ = await answer_on(stream)
                        assert status(head) == 400  # without a session: but it was the endpoint that said so
                        assert (b"x-passed: yes" in head) is mark
        assert seen.count("http.response.start") == 3


async def test_a_call_that_waits_is_finished_while_the_listener_drains() -> None:
    stage = Stage()
    async with engine_served(stage=stage) as (server, _):
        client = await HttpClient.open(server)
        async with await server.connect() as stream:
            await stream.send_all(post(request(1, "sleep", seconds=0.05, name="long"), session=client.session_id))
            await until(lambda: stage.begun == ["long"])
            server.listener.stop_accepting()
            received = await read_all(stream)
        head, _, body = received.partition(b"\r\n\r\n")
        assert b"connection: close" in head
        assert json.loads(body)["result"] == {"slept": 0.05}


async def test_a_connection_ends_after_as_many_requests_as_it_may_have() -> None:
    async with engine_served(keep_alive_max_requests=2) as (server, _):
        client = await HttpClient.open(server)
        async with await server.connect() as stream:
            for number, last in ((1, False), (2, True)):
                await stream.send_all(post(request(number, "echo", say=1), session=client.session_id))
                head, _ = await answer_on(stream)
                assert (b"connection: close" in head) is last
            assert await read_all(stream) == b""


async def test_an_answer_that_cannot_be_written_is_reported_and_answered_with_500(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "mcptrio.http")
    async with engine_served() as (server, endpoint):
        client = await HttpClient.open(server)

        async def broken(*_: Any) -> Plain:
            return Plain(200, ((b"x-two", b"a\r\nb: c"),), b"{}")

        monkeypatch.setattr(type(endpoint), "answer", broken)
        received = await server.ask(post(request(1, "echo"), session=client.session_id))
        assert status(received) == 500
        assert b"b: c" not in received
        assert server.caught("request") == 1


async def test_every_response_is_in_hypercorns_access_log(caplog: pytest.LogCaptureFixture) -> None:
    before = hypercorn.trio.run.TCPServer  # type: ignore[attr-defined]
    install_guard()
    log = logging.getLogger("access of a test")
    caplog.set_level(logging.INFO, log.name)
    config = Config.from_mapping(bind=["127.0.0.1:0"], graceful_timeout=0.2, worker_class="trio")
    config.accesslog = log
    config.access_log_format = "%(m)s %(U)s %(s)s"
    stop = trio.Event()
    try:
        with trio.fail_after(30):
            async with open_endpoint(HttpConfig()) as endpoint, trio.open_nursery() as nursery:
                app: Any = AsgiApp(endpoint)
                serve = partial(hypercorn.trio.serve, app, config, shutdown_trigger=stop.wait, mode="asgi")
                binds: list[str] = await nursery.start(serve)
                port = int(binds[0].rpartition(":")[2])
                async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                    for _ in range(2):
                        await stream.send_all(post(request(1, "echo")))
                        await answer_on(stream)
                stop.set()
    finally:
        hypercorn.trio.run.TCPServer = before  # type: ignore[attr-defined]
    assert [record.getMessage() for record in caplog.records if record.name == log.name] == ["POST /mcp 400"] * 2
