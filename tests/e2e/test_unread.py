"""Answers that clients do not read share one bound, on real sockets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from mcptrio.transports.http_server.config import HttpConfig
from tests.engines import both_engines
from tests.transports.app_for_tests import request

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


async def test_the_connection_that_has_not_moved_for_longest_is_closed() -> None:
    async with serving_endpoint(CONFIG) as (server, endpoint):
        client = await HttpClient.open(server)
        unread = endpoint.admission.unread
        first = await leave(server, client.session_id)
        await until(lambda: unread.used >= 2 * ANSWER)
        second = await leave(server, client.session_id)
        await until(lambda: unread.used >= 4 * ANSWER)
        third = await leave(server, client.session_id)
        await until(lambda: server.count("not_read") == 1)
        assert len(await read_all(first)) < ANSWER
        for stream in (second, third):
            _, answer = await answer_on(stream)
            assert len(answer["result"]["echo"]) == ANSWER
        await until(lambda: unread.used == 0)
        assert server.count("not_read") == 1


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
