"""Answers that clients do not read share one bound, on real sockets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from mcptrio._actors import unread as module
from mcptrio.auth.server.principal import Principal
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.message import HttpRequest
from tests.engines import both_engines
from tests.transports.app_for_tests import initialize, notification, request

from .http_peer import HttpClient, serving_endpoint
from .raw_peer import Served, answer_on, read_all
from .test_direct import post

pytestmark = [both_engines, pytest.mark.defect("S7")]

ANSWER = 6_000_000
"""Bytes of an answer; more than a socket's buffers take."""
CONFIG = HttpConfig(max_outbox_memory=5 * ANSWER, write_timeout=60)
"""The server keeps an answer and the bytes of its response, so two answers have room."""


async def leave(server: Served, session: str, **params: str) -> trio.SocketStream:
    """Ask for a large answer, and do not read it."""
    stream = await server.connect()
    body = request(1, "echo", say="x", times=ANSWER, **params)
    await stream.send_all(post(body, "Connection: close", session=session))
    return stream


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(20):
        while not condition():
            await trio.sleep(0.01)


async def test_the_connection_that_has_not_moved_for_longest_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALLED_AFTER", 0.2)
    async with serving_endpoint(CONFIG) as (server, endpoint):
        client = await HttpClient.open(server)
        unread = endpoint.admission.unread
        first = await leave(server, client.session_id)
        await until(lambda: unread.used >= 2 * ANSWER)
        second = await leave(server, client.session_id)
        await until(lambda: unread.used >= 4 * ANSWER)
        await trio.sleep(0.3)
        third = await leave(server, client.session_id)
        await until(lambda: server.count("not_read") == 1)
        assert len(await read_all(first)) < ANSWER
        for stream in (second, third):
            _, answer = await answer_on(stream)
            assert len(answer["result"]["echo"]) == ANSWER
        await until(lambda: unread.used == 0)
        assert server.count("not_read") == 1


async def test_an_answer_that_finds_no_room_is_replaced_by_an_error() -> None:
    async with serving_endpoint(CONFIG) as (server, endpoint):
        client = await HttpClient.open(server)
        unread = endpoint.admission.unread
        first = await leave(server, client.session_id)
        await until(lambda: unread.used >= 2 * ANSWER)
        second = await leave(server, client.session_id)
        await until(lambda: unread.used >= 4 * ANSWER)
        head, answer = await answer_on(await leave(server, client.session_id))
        assert b" 500 " in head.split(b"\r\n")[0]
        assert (answer["id"], answer["error"]["data"]) == (1, {"mayHaveRun": True})
        assert "max_outbox_memory" in answer["error"]["message"]
        for stream in (first, second):
            _, answer = await answer_on(stream)
            assert len(answer["result"]["echo"]) == ANSWER
        await until(lambda: unread.used == 0)
        assert server.count("not_read") == 0


async def by_name(head: HttpRequest) -> Principal:
    return Principal(subject=head.text(b"x-name"))


async def test_clients_that_read_at_the_same_time_do_not_cut_each_other() -> None:
    config = HttpConfig(max_outbox_memory=3 * ANSWER)
    async with serving_endpoint(config, authenticator=by_name) as (server, endpoint):
        unread, streams = endpoint.admission.unread, list[trio.SocketStream]()
        for name in ("a", "b", "c"):
            client = HttpClient(server)
            client.session_id = (await client.send("POST", initialize(), x_name=name)).headers["mcp-session-id"]
            await client.send("POST", notification("notifications/initialized"), x_name=name)
            stream = await server.connect()
            body = request(1, "echo", say="x", times=ANSWER)
            await stream.send_all(post(body, "Connection: close", f"X-Name: {name}", session=client.session_id))
            streams.append(stream)
            await until(lambda: unread.used >= 2 * ANSWER * len(streams))
        for stream in streams:
            _, answer = await answer_on(stream)
            assert len(answer["result"]["echo"]) == ANSWER
        await until(lambda: unread.used == 0)


@pytest.mark.defect("S6")
async def test_a_body_holds_no_memory_while_its_answer_is_not_read() -> None:
    async with serving_endpoint(CONFIG) as (server, endpoint):
        client = await HttpClient.open(server)
        admission = endpoint.admission
        stream = await leave(server, client.session_id, padding="x" * 200_000)
        await until(lambda: admission.unread.used >= 2 * ANSWER)
        assert admission.body_memory.used == 0
        _, answer = await answer_on(stream)
        assert len(answer["result"]["echo"]) == ANSWER
