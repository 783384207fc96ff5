"""Request after request on one connection: nothing of one reaches the next, and every place that was taken is left."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import pytest
import trio

from mcptrio import Context, Limits, Server
from mcptrio.auth.server import Principal
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.endpoint.message import Authenticator, HttpRequest
from mcptrio.transports.http_server.hypercorn.asgi import AsgiApp
from mcptrio.transports.http_server.listener.guarded_stream import GuardedStream
from tests import engines
from tests.engines import both_engines
from tests.stateless.kit import DATE, accept, meta
from tests.transports.app_for_tests import request

from .raw_peer import Served, answer_on, read_all, read_until, serving, status

pytestmark = both_engines

TENANT: ContextVar[str] = ContextVar("tenant", default="none")


@dataclass
class Name:
    name: str


def application(trail: list[str]) -> Server:
    server = Server("one connection", limits=Limits(busy_timeout=0.2))

    @server.session
    @asynccontextmanager
    async def around(request: object) -> AsyncIterator[None]:
        trail.append("enter")
        try:
            yield
        finally:
            trail.append("leave")

    @server.tool
    async def tenant(wait: bool) -> str:
        if wait:
            await trio.sleep(0.001)
        return TENANT.get()

    @server.tool
    async def fail(wait: bool) -> str:
        if wait:
            await trio.sleep(0.001)
        raise RuntimeError("on purpose")

    @server.tool
    async def sleep(seconds: float) -> str:
        await trio.sleep(seconds)
        return "slept"

    @server.tool
    async def greet(ctx: Context) -> str:
        trail.append("ask")
        answer = await ctx.elicit("Who?", Name, key="name")
        return f"Hello {answer.value.name if answer.value else '-'}"

    return server


@asynccontextmanager
async def served(
    config: HttpConfig | None = None,
    authenticator: Authenticator | None = None,
    *,
    trail: list[str] | None = None,
    **listener: Any,
) -> AsyncIterator[tuple[Served, Endpoint]]:
    async with application([] if trail is None else trail)._app.make_runtime().open() as runtime:
        # No answer becomes a stream because the machine is busy.
        endpoint = Endpoint(runtime, config or HttpConfig(stream_after=60), None, authenticator)
        direct = endpoint if engines.current() == "direct" else None
        async with serving(AsgiApp(endpoint), direct=direct, **listener) as server:
            yield server, endpoint


def post(method: str, *lines: str, number: int = 1, **params: Any) -> bytes:
    body = request(number, method, **params, _meta=meta())
    name = [f"Mcp-Name: {params['name']}"] if "name" in params else []
    known = ["Accept: application/json, text/event-stream", "Content-Type: application/json"]
    extra = [*known, f"MCP-Protocol-Version: {DATE}", f"Mcp-Method: {method}", *name, *lines]
    head = "".join(f"{line}\r\n" for line in extra)
    return f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body


def text_of(answer: Any) -> str:
    text: str = answer["result"]["content"][0]["text"]
    return text


def call(tool: str, *lines: str, number: int = 1, **arguments: Any) -> bytes:
    return post("tools/call", *lines, number=number, name=tool, arguments=arguments)


def split(answers: bytes) -> list[tuple[bytes, Any]]:
    """The heads and bodies of whole answers."""
    found = []
    while answers:
        head, _, rest = answers.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        assert len(rest) >= length
        found.append((head, json.loads(rest[:length])))
        answers = rest[length:]
    return found


async def until(true: Callable[[], bool]) -> None:
    with trio.fail_after(30):
        while not true():
            await trio.sleep(0.005)


@pytest.mark.parametrize("wait", [False, True])
async def test_context_variables_of_an_authenticator_do_not_reach_the_next_request(wait: bool) -> None:
    """Behind a proxy the next request on a connection is another client's."""

    async def authenticate(head: HttpRequest) -> Principal:
        if tenant := head.text(b"x-tenant"):
            TENANT.set(tenant)
        return Principal(subject="somebody")

    async with served(authenticator=authenticate) as (server, _), await server.connect() as stream:
        for lines, found in [(["X-Tenant: blue"], "blue"), ([], "none"), ([], "none")]:
            await stream.send_all(call("tenant", *lines, wait=wait))
            _, answer = await answer_on(stream)
            assert text_of(answer) == found


@pytest.mark.parametrize("requests_before", [0, 1])
async def test_a_request_that_comes_in_the_moment_its_connection_is_late_is_served(
    monkeypatch: pytest.MonkeyPatch, requests_before: int
) -> None:
    """The bytes are there, and the deadline passes before the task that reads them has its turn."""
    read, left = GuardedStream._read_at_once, requests_before

    async def read_late(self: GuardedStream) -> bytes:
        nonlocal left
        data = await read(self)
        if b"sleep" in data:
            left -= 1
            if left == -1:
                self.timer.deadline = 0
                self.timer.look(trio.current_time())
        return data

    monkeypatch.setattr(GuardedStream, "_read_at_once", read_late)
    async with served() as (server, _), await server.connect() as stream:
        for number in range(1, requests_before + 3):
            await stream.send_all(call("sleep", number=number, seconds=0.01))
            head, answer = await answer_on(stream)
            assert status(head) == 200
            assert answer["id"] == number
            assert text_of(answer) == "slept"


@pytest.mark.parametrize("piece", [7, 100_000], ids=["in pieces", "at once"])
async def test_pipelined_calls_are_answered_in_order_whether_they_wait_or_not(piece: int) -> None:
    trail: list[str] = []
    waits = [True, False, False, True, True, False, True]
    lines: list[list[str]] = [[]] * (len(waits) - 1) + [["Connection: close"]]
    asked = b"".join(
        call("tenant", *line, number=number, wait=wait)
        for number, (line, wait) in enumerate(zip(lines, waits, strict=True))
    )
    async with served(trail=trail) as (server, _), await server.connect() as stream:
        for start in range(0, len(asked), piece):
            await stream.send_all(asked[start : start + piece])
        answers = split(await read_all(stream))
    assert [answer["id"] for _, answer in answers] == list(range(len(waits)))
    assert [b"connection: close" in head.lower() for head, _ in answers] == [False] * (len(waits) - 1) + [True]
    assert trail == ["enter", "leave"] * len(waits), "one after the other, each once"


@pytest.mark.parametrize("wait", [False, True])
async def test_the_last_request_that_a_connection_may_bring_closes_it(wait: bool) -> None:
    async with served(keep_alive_max_requests=3) as (server, _), await server.connect() as stream:
        for number in range(2):
            await stream.send_all(call("tenant", number=number, wait=wait))
            assert (await answer_on(stream))[1]["id"] == number
        await stream.send_all(call("tenant", number=3, wait=wait))
        ((head, answer),) = split(await read_all(stream))
        assert b"connection: close" in head
        assert answer["id"] == 3


async def test_a_handler_that_asks_outlives_its_connection_and_answers_on_another() -> None:
    trail: list[str] = []
    async with served(trail=trail) as (server, endpoint):
        async with await server.connect() as stream:
            await stream.send_all(call("greet"))
            asked = (await answer_on(stream))[1]["result"]
            await stream.send_all(call("tenant", number=2, wait=True))
            assert (await answer_on(stream))[1]["id"] == 2, "the connection is free for others"
        await until(lambda: server.listener.connections == 0)
        assert endpoint.calls == 0, "no client waits for it"
        async with await server.connect() as stream:
            more = {"requestState": asked["requestState"], "inputResponses": {"name": accept(name="Ada")}}
            await stream.send_all(post("tools/call", number=3, name="greet", arguments={}, **more))
            assert text_of((await answer_on(stream))[1]) == "Hello Ada"
            await stream.send_all(call("tenant", number=4, wait=False))
            assert (await answer_on(stream))[1]["id"] == 4
        assert trail.count("ask") == 1, "it was not run again"
        assert trail.count("enter") == trail.count("leave")
        assert endpoint.calls == 0
        await until(lambda: not endpoint.runtime.supervisor.exchanges)


@pytest.mark.slow
async def test_every_admission_place_is_given_back(caplog: pytest.LogCaptureFixture) -> None:
    """However a request ends: refused, answered, failed, after a wait or without, cut off early or late."""
    config = HttpConfig(stream_after=0.5, max_listeners=1)

    async def authenticate(head: HttpRequest) -> Principal:
        return Principal(subject=head.text(b"x-tenant") or "anyone")

    trail: list[str] = []
    async with served(config, authenticate, trail=trail) as (server, endpoint):
        before = trio.lowlevel.current_statistics().tasks_living

        def is_quiet() -> bool:
            admission, runtime = endpoint.admission, endpoint.runtime
            counts = (
                admission.places.used,
                admission.places.waiting,
                endpoint.exchanges.listen_places.used,
                len(admission.places.held),
            )
            return not any(counts) and not runtime.supervisor.exchanges and server.listener.connections == 0

        listen = post("subscriptions/listen", notifications={"toolsListChanged": True})
        for lines in ([], ["X-Tenant: blue"]):
            async with await server.connect() as stream:
                calls: list[tuple[str, dict[str, Any], int]] = [
                    ("tenant", {"wait": False}, 200),
                    ("tenant", {"wait": True}, 200),
                    ("fail", {"wait": False}, 200),
                    ("fail", {"wait": True}, 200),
                    ("tenant", {"wait": "no boolean"}, 200),
                    ("unknown", {}, 200),
                    ("tenant", {"wait": False}, 200),
                ]
                for tool, arguments, code in calls:
                    await stream.send_all(call(tool, *lines, **arguments))
                    assert status((await answer_on(stream))[0]) == code
                asked = call("tenant", *lines, wait=True)
                await stream.send_all(asked.replace(b"Mcp-Name: tenant", b"Mcp-Name: others"))
                assert status((await answer_on(stream))[0]) == 400
                await stream.send_all(call("sleep", *lines, seconds=0.8))
                assert b"slept" in await read_until(stream, b"0\r\n\r\n"), "as a stream"
            for seconds in (0, 0.7):  # before and after it became a stream
                async with await server.connect() as stream:
                    await stream.send_all(call("sleep", *lines, seconds=60))
                    await until(lambda: endpoint.calls == 1)
                    await trio.sleep(seconds)
                await until(is_quiet)
            async with await server.connect() as stream, await server.connect() as other:
                await stream.send_all(listen)
                await read_until(stream, b"acknowledged")
                await other.send_all(listen)
                assert status((await answer_on(other))[0]) == 503
                assert endpoint.exchanges.listen_places.used == 1
            await until(is_quiet)
        await until(lambda: trio.lowlevel.current_statistics().tasks_living <= before + 2)  # the alarm, the deadlines
        assert server.caught() == 0
        assert server.caught("request") == 0
        assert trail.count("enter") == trail.count("leave") == 2 * 11
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert errors == ["tool 'fail' failed"] * 4
