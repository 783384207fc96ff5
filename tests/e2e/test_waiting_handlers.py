"""Handlers that wait: they keep the task of the connection, on either lane, and nobody else has to care."""

from __future__ import annotations

import gc
import json
from collections import Counter
from typing import Any

import pytest
import trio

from mcptrio._actors.exchange import Exchange
from mcptrio._actors.handling import Handling
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.exchange import ExchangeLink
from tests.stateless.kit import DATE, meta
from tests.transports.app_for_tests import Stage, request

from .http_peer import HttpClient
from .raw_peer import answer_on, read_until, status
from .test_express import post, served, until


def stateless(request_id: int, method: str, **params: Any) -> bytes:
    body = request(request_id, method, _meta=meta(), **params)
    return post(body, f"MCP-Protocol-Version: {DATE}", f"Mcp-Method: {method}")


async def test_pipelined_requests_whose_handlers_wait_are_answered_in_order(lane: str) -> None:
    async with served(lane=lane) as (server, _):
        client = await HttpClient.open(server)
        asks = []
        for number in range(1, 31):
            method, params = ("sleep", {"seconds": 0.003}) if number % 3 else ("echo", {"say": number})
            close = ["Connection: close"] if number == 30 else []
            asks.append(post(request(number, method, **params), *close, session=client.session_id))
        told = await server.ask(b"".join(asks))
        answers = [json.loads(part.partition(b"\r\n\r\n")[2]) for part in told.split(b"HTTP/1.1 ")[1:]]
        assert [answer["id"] for answer in answers] == list(range(1, 31))
        assert server.listener.guard_caught == 0


@pytest.mark.parametrize("after", [0.0, 0.03])
async def test_without_a_session_a_peer_that_goes_away_cancels_its_call(after: float, lane: str) -> None:
    stage = Stage()
    async with served(HttpConfig(stream_after=0.02), lane=lane, stage=stage) as (server, endpoint):
        async with await server.connect() as stream:
            await stream.send_all(stateless(1, "sleep", seconds=60, name="long"))
            await until(lambda: stage.begun == ["long"])
            await trio.sleep(after)
        await until(lambda: stage.ended == ["long"])
        await until(lambda: endpoint.calls == 0 and not endpoint.runtime.supervisor.exchanges)
        await until(lambda: server.listener.connections == 0)
        assert server.listener.guard_caught == 0


async def test_a_session_that_is_deleted_ends_the_calls_that_its_connections_carried(lane: str) -> None:
    stage = Stage()
    async with served(lane=lane, stage=stage) as (server, endpoint):
        client = await HttpClient.open(server)
        async with await server.connect() as stream:
            await stream.send_all(post(request(1, "sleep", seconds=60, name="long"), session=client.session_id))
            await until(lambda: stage.begun == ["long"])
            await (await client.send("DELETE")).body()
            assert status(await read_until(stream, b"\r\n\r\n")) in (200, 404)
        assert stage.ended == ["long"]
        await until(lambda: endpoint.calls == 0 and not endpoint.runtime.supervisor.sessions)


@pytest.mark.parametrize("wait", [False, True])
async def test_a_crash_beside_a_handler_is_answered_and_gives_its_place_back(
    wait: bool, lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Handling._run

    async def crash(self: Any, call: Any, start: Any) -> Any:
        if start.method == "initialize":
            return await run(self, call, start)
        if wait:
            await trio.sleep(0.01)
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(Handling, "_run", crash)
    async with served(lane=lane) as (server, endpoint):
        client = await HttpClient.open(server)
        async with await server.connect() as stream:
            await stream.send_all(stateless(1, "echo"))
            head, _ = await answer_on(stream)
            assert status(head) == 500
            await stream.send_all(post(request(2, "echo"), session=client.session_id))
            head, _ = await answer_on(stream)
            assert status(head) == 404
        await until(lambda: endpoint.calls == 0)
        await until(lambda: not list(endpoint.runtime.supervisor))


async def test_a_connection_that_served_many_waiting_handlers_holds_on_to_none_of_them(lane: str) -> None:
    def population() -> Counter[str]:
        gc.collect()
        # Without scopes: Trio's own queue of deadlines lets go of up to a thousand of them only when they come.
        wanted = (
            "Call",
            "Loan",
            "Unfinished",
            "Known",
            "OwnStream",
            "Inbox",
            "Task",
            "PostStream",
            "Exchange",
            "Context",
        )
        return Counter(type(thing).__name__ for thing in gc.get_objects() if type(thing).__name__ in wanted)

    async with served(HttpConfig(stream_after=0.5), lane=lane) as (server, _):
        client = await HttpClient.open(server)
        async with await server.connect() as stream:

            async def serve(numbers: range) -> None:
                for number in numbers:
                    await stream.send_all(post(request(number, "sleep", seconds=0), session=client.session_id))
                    await answer_on(stream)
                    await stream.send_all(stateless(number, "sleep", seconds=0))
                    await answer_on(stream)
                await trio.sleep(0.6)  # the alarm lets go of those that were answered

            await serve(range(1, 5))
            before = population()
            await serve(range(5, 105))
            grown = population() - before
            assert sum(grown.values()) < 10, grown


async def test_a_request_whose_handler_never_waits_leaves_no_garbage(lane: str) -> None:
    """What refers to itself stays until the collector looks for it, and a server makes thousands of these a second."""
    async with served(lane=lane) as (server, _), await server.connect() as stream:
        gc.collect()
        gc.disable()
        try:
            for number in range(5):
                await stream.send_all(stateless(number, "echo", say=1))
                await answer_on(stream)
            left = [each for each in gc.get_objects() if isinstance(each, ExchangeLink | Exchange)]
        finally:
            gc.enable()
    assert len(left) <= 2, "at most those of the last request"
