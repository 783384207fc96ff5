"""Large requests count as memory until their calls end, however they are answered."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio import Context, Limits, Server, telemetry
from mcptrio._actors.shares import Shares
from mcptrio._wire.jsonrpc import DEFAULT_LIMITS, LARGE_MESSAGE, decode
from mcptrio._wire.sized import memory_for, memory_of, with_size
from mcptrio.errors import RemoteProtocolError
from mcptrio.extensions.tasks import Tasks
from mcptrio.transports.pipe.server import Pipe, serve_pipe
from mcptrio.transports.websocket.server import _Bounds
from tests.extensions.kit import WITH_TASKS
from tests.stateless.kit import Poster, accept, endpoint_of, meta

from .app_for_tests import exchange, head, initialize, request

TEXT = "x" * 2 * LARGE_MESSAGE
Json = dict[str, Any]


@dataclass
class Word:
    word: str


def make_server(limits: Limits | None = None) -> Server:
    server = Server("memory", limits=limits or Limits(max_call_memory=5 * len(TEXT), busy_timeout=1))
    server.add_extension(Tasks())

    @server.tool
    async def work(text: str = "", seconds: float = 10) -> str:
        await trio.sleep(seconds)
        return "done"

    @server.tool
    async def fail(text: str) -> str:
        await trio.sleep(1)
        raise ValueError

    @server.tool(task=True)
    async def report(text: str) -> str:
        await trio.sleep(10)
        return "done"

    @server.tool(replay=True)
    async def ask(ctx: Context, text: str = "") -> str:
        answer = await ctx.elicit("Really?", Word, key="q")
        return str(answer.action)

    @server.tool
    async def ask_and_work(ctx: Context, text: str = "") -> str:
        await ctx.elicit("Really?", Word, key="q")
        await trio.sleep(10)
        return "done"

    return server


@asynccontextmanager
async def clients(*addresses: str, server: Server | None = None) -> AsyncIterator[tuple[Shares, list[Poster]]]:
    """Yield the memory of calls, and a client for each address."""
    async with endpoint_of(server or make_server()) as endpoint:
        yield endpoint.runtime.call_memory, [Poster(endpoint, client=(each, 1)) for each in addresses]


@pytest.mark.defect("S6")
@pytest.mark.parametrize("tool", ["work", "fail"])
async def test_a_call_counts_until_it_ends_also_if_its_answer_is_a_stream(tool: str, autojump_clock: MockClock) -> None:
    async with clients("a") as (memory, (client,)), trio.open_nursery() as nursery:
        nursery.start_soon(client.call, tool, {"text": TEXT})
        await trio.sleep(0.5)  # the answer is a stream by now
        assert len(TEXT) < memory.used < len(TEXT) + 4000
        await trio.sleep(20)
        assert memory.used == 0


@pytest.mark.defect("S6")
@pytest.mark.parametrize(("length", "used"), [(1000, False), (5000, True), (70_000, True)])
async def test_a_request_over_4_kib_counts(length: int, used: bool, autojump_clock: MockClock) -> None:
    async with clients("a") as (memory, (client,)), trio.open_nursery() as nursery:
        nursery.start_soon(client.call, "work", {"text": "x" * length})
        await trio.sleep(0.5)
        assert (memory.used > length) == used
        nursery.cancel_scope.cancel()


@pytest.mark.defect("S6")
async def test_a_call_that_is_cancelled_gives_its_memory_back(autojump_clock: MockClock) -> None:
    async with clients("a") as (memory, (client,)):
        reader = await client.stream("tools/call", {"name": "work", "arguments": {"text": TEXT}})
        assert memory.used > len(TEXT)
        reader.reply.events.detach("gone")
        await wait_all_tasks_blocked()
        assert memory.used == 0


@pytest.mark.defect("S7")
async def test_large_requests_beyond_the_limit_are_refused(autojump_clock: MockClock) -> None:
    seen: list[object] = []
    async with clients("a", "b") as (_, (client, other)), trio.open_nursery() as nursery:
        client.endpoint.runtime.hub.add(seen.append)
        await other.call("work", {"seconds": 0})
        for _ in range(3):
            nursery.start_soon(client.call, "work", {"text": TEXT})
        await trio.sleep(0.5)
        refused = await client.call("work", {"text": TEXT})
        assert refused.status == 503
        assert refused.error["data"]["limit"] == "max_call_memory"
        assert any(isinstance(event, telemetry.LimitHit) and event.name == "max_call_memory" for event in seen)
        assert (await client.call("work", {"seconds": 0})).text == "done"  # small ones are served
        assert (await other.call("work", {"text": TEXT, "seconds": 0})).text == "done"
        nursery.cancel_scope.cancel()


async def test_a_large_request_waits_for_memory(autojump_clock: MockClock) -> None:
    server = make_server(Limits(max_call_memory=2 * len(TEXT), busy_timeout=60))
    async with clients("a", server=server) as (memory, (client,)):
        replies = []

        async def call() -> None:
            replies.append(await client.call("work", {"text": TEXT}))

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(call)
        assert [reply.text for reply in replies] == ["done"] * 4
        assert memory.used == memory.waiting == 0


@pytest.mark.defect("S7")
async def test_parked_calls_are_bounded_by_their_memory_too(autojump_clock: MockClock) -> None:
    """They are stored: the largest owner loses its oldest one, and nothing else waits for their memory."""
    async with clients("a", "b") as (memory, (client, other)):
        small = await other.call("ask")
        mine = await other.call("ask", {"text": TEXT})
        asked = [await client.call("ask", {"text": TEXT}) for _ in range(6)]
        parking = client.endpoint.runtime.parking
        assert len(parking) == 1 + 2  # three large ones do not fit together
        assert memory.used == 0
        for each, text in ((small, {}), (mine, {"text": TEXT})):
            assert (await other.retry(each, "ask", text, q=accept(word="yes"))).text == "accept"
        replies = [await client.retry(each, "ask", {"text": TEXT}, q=accept(word="yes")) for each in asked]
        assert [reply.text for reply in replies] == ["accept"] * 6  # those that were cancelled are replayed
        assert (memory.used, parking._memory, len(parking)) == (0, 0, 0)


@pytest.mark.defect("S7")
async def test_a_retry_needs_memory_and_its_call_counts_for_both(autojump_clock: MockClock) -> None:
    async with clients("a", "b") as (memory, (client, other)), trio.open_nursery() as nursery:
        asked = await client.call("ask_and_work", {"text": TEXT})
        nursery.start_soon(partial(other.call, "work", {"text": TEXT * 5, "seconds": 100}))
        await trio.sleep(0.1)
        answer = {"q": accept(word="yes"), "more": {"action": TEXT}}
        refused = await client.retry(asked, "ask_and_work", {"text": TEXT}, **answer)
        assert refused.error["data"]["limit"] == "max_call_memory"
        await trio.sleep(100)
        nursery.start_soon(partial(client.retry, asked, "ask_and_work", {"text": TEXT}, **answer))
        await trio.sleep(0.5)
        assert memory.used > 3 * len(TEXT)
        await trio.sleep(20)
        assert memory.used == 0


@pytest.mark.defect("S6")
async def test_a_state_in_the_parameters_does_not_avoid_the_bound(autojump_clock: MockClock) -> None:
    server = make_server(Limits(max_call_memory=3 * len(TEXT), busy_timeout=1))
    async with endpoint_of(server) as endpoint, trio.open_nursery() as nursery:
        opened = await exchange(endpoint, head(), initialize())
        inside = {"mcp_session_id": dict(opened.headers)[b"mcp-session-id"].decode()}
        await exchange(endpoint, head(**inside), b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        replies: list[int] = []

        async def call(number: int) -> None:
            body = request(number, "tools/call", name="work", arguments={"text": TEXT}, requestState="")
            replies.append((await exchange(endpoint, head(**inside), body)).status)

        for number in range(1, 6):
            nursery.start_soon(call, number)
        await trio.sleep(5)
        assert sorted(replies) == [200, 200, 503, 503, 503]


@pytest.mark.defect("S7")
async def test_a_task_counts_until_it_ends(autojump_clock: MockClock) -> None:
    async with clients("a") as (memory, (client,)):
        created = await client.call("report", {"text": TEXT}, _meta=meta(WITH_TASKS))
        assert created.result["taskId"]
        assert len(TEXT) < memory.used < len(TEXT) + 4000
        await trio.sleep(20)
        assert memory.used == 0


@pytest.mark.defect("S7")
async def test_large_requests_that_wait_in_a_session_are_few(autojump_clock: MockClock) -> None:
    text = "x" * 3_000_000
    server = make_server(Limits(max_call_memory=100_000_000, busy_timeout=1, running=1))
    async with endpoint_of(server) as endpoint, trio.open_nursery() as nursery:
        opened = await exchange(endpoint, head(), initialize())
        session = dict(opened.headers)[b"mcp-session-id"].decode()
        inside = {"mcp_session_id": session}
        ready = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
        await exchange(endpoint, head(**inside), ready)
        replies: list[int] = []

        async def call(number: int) -> None:
            body = request(number, "tools/call", name="work", arguments={"text": text, "seconds": 3600})
            replies.append((await exchange(endpoint, head(**inside), body)).status)

        for number in range(1, 6):
            nursery.start_soon(call, number)
        await trio.sleep(5)
        assert sorted(replies) == [200, 200, 200, 503, 503]  # one runs, two wait
        nursery.cancel_scope.cancel()


class Messages(Pipe):
    """A pipe whose peer sends messages, and keeps what it receives."""

    def __init__(self, messages: Sequence[bytes]) -> None:
        self.messages = list(messages)
        self.answers: list[Json] = []

    async def receive(self) -> list[bytes | RemoteProtocolError]:
        if not self.messages:
            await trio.sleep_forever()
        return [self.messages.pop(0)]

    async def send(self, messages: list[bytes]) -> None:
        self.answers += map(msgspec.json.decode, messages)


@pytest.mark.defect("S6")
async def test_calls_over_a_socket_count_too(autojump_clock: MockClock) -> None:
    calls = [
        request(number, "tools/call", name="work", arguments={"text": TEXT}, _meta=meta()) for number in range(1, 6)
    ]
    async with endpoint_of(make_server()) as endpoint, trio.open_nursery() as nursery:
        pipe = Messages(calls)
        serve: Callable[[], Awaitable[object]] = lambda: serve_pipe(  # noqa: E731
            endpoint.runtime, pipe, transport="websocket", owner="a", bounds=_Bounds(endpoint.admission, "a")
        )
        nursery.start_soon(serve)
        await trio.sleep(1)
        assert [answer["error"]["data"]["limit"] for answer in pipe.answers] == ["max_call_memory"] * 2
        await trio.sleep(20)
        assert len(pipe.answers) == 5
        assert endpoint.runtime.call_memory.used == 0
        nursery.cancel_scope.cancel()


def test_each_request_of_a_batch_has_its_own_size() -> None:
    large, small = request(1, "a", text="x" * 300_000), request(2, "ping")
    notice = b'{"jsonrpc":"2.0","method":"c"}'
    data = b"[" + b",".join([large, *[notice] * 50, small]) + b"]"
    sized = with_size(decode(data), data, DEFAULT_LIMITS)
    assert sized == decode(data)
    assert 300_000 < memory_for(sized) < 301_000
    assert memory_for(decode(data)) == 0


@pytest.mark.parametrize("value", [[[]] * 30_000, [{}] * 30_000, [{"": 0}] * 20_000, [12345] * 90_000, "x" * 300_000])
def test_the_estimated_memory_is_at_least_what_a_decoded_message_takes(value: Any) -> None:
    data = request(1, "m", value=value)
    tracemalloc.start()
    try:
        frame = decode(data)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken * 0.9 < memory_of(data, DEFAULT_LIMITS) < 6 * taken
    assert frame
