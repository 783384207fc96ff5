"""Handlers that wait, on every transport: each has a task of its own that debuggers can name and look into."""

from __future__ import annotations

import gc
import json
import linecache
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from mcptrio import Context, Server
from mcptrio._actors.exchange import Exchange
from mcptrio._actors.handlers import Handlers
from mcptrio._actors.service import Actor
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.stateless import ExchangeLink
from tests.stateless.kit import DATE, meta
from tests.transports.app_for_tests import Stage, request

from .http_peer import HttpClient
from .raw_peer import answer_on, read_until, status
from .test_direct import post, served, until
from .tool_callers import CALLERS, DATES


def stateless(request_id: int, method: str, **params: Any) -> bytes:
    body = request(request_id, method, _meta=meta(), **params)
    return post(body, f"MCP-Protocol-Version: {DATE}", f"Mcp-Method: {method}")


async def test_pipelined_requests_whose_handlers_wait_are_answered_in_order(engine: str) -> None:
    async with served(HttpConfig(stream_after=60), engine=engine) as (server, _):
        client = await HttpClient.open(server)
        asks = []
        for number in range(1, 31):
            method, params = ("sleep", {"seconds": 0.003}) if number % 3 else ("echo", {"say": number})
            close = ["Connection: close"] if number == 30 else []
            asks.append(post(request(number, method, **params), *close, session=client.session_id))
        received = await server.ask(b"".join(asks))
        answers = [json.loads(part.partition(b"\r\n\r\n")[2]) for part in received.split(b"HTTP/1.1 ")[1:]]
        assert [answer["id"] for answer in answers] == list(range(1, 31))
        assert server.caught() == 0


@pytest.mark.parametrize("after", [0.0, 0.03])
async def test_without_a_session_a_peer_that_goes_away_cancels_its_call(after: float, engine: str) -> None:
    stage = Stage()
    async with served(HttpConfig(stream_after=0.02), engine=engine, stage=stage) as (server, endpoint):
        async with await server.connect() as stream:
            await stream.send_all(stateless(1, "sleep", seconds=60, name="long"))
            await until(lambda: stage.begun == ["long"])
            await trio.sleep(after)
        await until(lambda: stage.ended == ["long"])
        await until(lambda: endpoint.calls == 0 and not endpoint.runtime.supervisor.exchanges)
        await until(lambda: server.listener.connections == 0)
        assert server.caught() == 0


async def test_a_session_that_is_deleted_ends_the_calls_that_its_connections_carried(engine: str) -> None:
    stage = Stage()
    async with served(engine=engine, stage=stage) as (server, endpoint):
        client = await HttpClient.open(server)
        async with await server.connect() as stream:
            await stream.send_all(post(request(1, "sleep", seconds=60, name="long"), session=client.session_id))
            await until(lambda: stage.begun == ["long"])
            await (await client.send("DELETE")).body()
            assert status(await read_until(stream, b"\r\n\r\n")) in (200, 404)
        assert stage.ended == ["long"]
        await until(lambda: endpoint.calls == 0 and not endpoint.runtime.supervisor.sessions)


@pytest.mark.parametrize("wait", [False, True])
async def test_a_crash_around_a_handler_fails_its_call_and_gives_its_place_back(
    wait: bool, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = Handlers._handle

    async def crash(self: Any, call: Any, start: Any) -> Any:
        if start.method == "initialize":
            return await handle(self, call, start)
        if wait:
            await trio.sleep(0.01)
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(Handlers, "_handle", crash)
    async with served(engine=engine) as (server, endpoint):
        client = await HttpClient.open(server)
        async with await server.connect() as stream:
            await stream.send_all(stateless(1, "echo"))
            head, body = await answer_on(stream)
            assert (status(head), body["error"]["message"]) == (200, "internal error")
            await stream.send_all(post(request(2, "echo"), session=client.session_id))
            head, body = await answer_on(stream)
            assert (status(head), body["error"]["message"]) == (200, "internal error")
        await until(lambda: endpoint.calls == 0)
        await until(lambda: not endpoint.runtime.supervisor.exchanges)


@pytest.mark.slow
async def test_a_connection_that_served_many_waiting_handlers_holds_on_to_none_of_them(engine: str) -> None:
    def population() -> Counter[str]:
        gc.collect()
        # Without scopes: Trio's own queue of deadlines lets go of up to a thousand of them only when they come.
        wanted = (
            "Call",
            "Inbox",
            "Task",
            "PostStream",
            "Exchange",
            "Context",
        )
        return Counter(type(thing).__name__ for thing in gc.get_objects() if type(thing).__name__ in wanted)

    async with served(HttpConfig(stream_after=0.5), engine=engine) as (server, _):
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


@pytest.mark.slow
async def test_a_request_whose_handler_never_waits_leaves_no_garbage(engine: str) -> None:
    """A reference cycle stays until the collector runs, and a server makes thousands of these objects a second."""
    async with served(HttpConfig(stream_after=0.5), engine=engine) as (server, _), await server.connect() as stream:
        gc.collect()
        gc.disable()
        try:
            for number in range(5):
                await stream.send_all(stateless(number, "echo", say=1))
                await answer_on(stream)
            await trio.sleep(0.6)  # the alarm lets go of those that were answered
            left = [each for each in gc.get_objects() if isinstance(each, ExchangeLink | Exchange)]
        finally:
            gc.enable()
    assert len(left) <= 2, "at most those of the last request"


# -- the task tree


class Digger:
    """A tool that waits until it is released."""

    def __init__(self) -> None:
        self.server = Server("deep")
        self.sessions: list[Actor] = []
        self.release = trio.Event()
        self.server.add_tool(self.dig, name="dig")

    async def dig(self, ctx: Context) -> str:
        self.sessions.append(ctx._session)
        await self.release.wait()  # the line that a debugger shows
        return "done"


def all_tasks(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    yield task
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from all_tasks(child)


@pytest.mark.defect("C06")
@pytest.mark.parametrize("date", DATES.values(), ids=DATES)
@pytest.mark.parametrize("transport", CALLERS)
async def test_the_task_tree_names_a_tool_that_waits_and_shows_its_line(transport: str, date: str) -> None:
    digger = Digger()
    digger.release.set()
    with trio.fail_after(15):
        async with CALLERS[transport](digger.server, date) as call, trio.open_nursery() as nursery:
            await call("dig")  # the first call that waits may keep the task of the reader
            digger.release = trio.Event()
            nursery.start_soon(call, "dig")
            await until(lambda: len(digger.sessions) == 2)
            await until(lambda: len(digger.release._tasks) == 1)
            session = digger.sessions[-1]
            root = trio.lowlevel.current_root_task()
            assert root is not None
            (task,) = [task for task in all_tasks(root) if task.name.startswith("tools/call dig")]
            assert task.name == f"tools/call dig · {session.label}"
            stateless_http = isinstance(session, Exchange)
            assert stateless_http == (date == DATE and transport.startswith("http"))
            nursery_of_session = session.runtime.supervisor.calls if stateless_http else session.nursery
            assert task.parent_nursery is nursery_of_session
            lines = [linecache.getline(f.f_code.co_filename, line).strip() for f, line in task.iter_await_frames()]
            assert "await self.release.wait()  # the line that a debugger shows" in lines
            digger.release.set()
