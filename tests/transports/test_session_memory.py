"""Large messages that a session keeps count as memory: requests and notifications that wait, and answers."""

from __future__ import annotations

import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import trio
from attrs import define
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio import Context, Limits, Server
from mcptrio._actors.shares import Shares
from mcptrio._wire.jsonrpc import LARGE_MESSAGE, Error, Notification, Request, Response
from mcptrio._wire.sized import COUNTED, SizedObject, memory_for
from mcptrio.errors import MCPError
from mcptrio.extensions.tasks import Tasks
from mcptrio.transports.decoding import decode_small
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.endpoint.message import Plain
from mcptrio.transports.pipe.server import serve_pipe
from mcptrio.transports.websocket.server import _Bounds
from tests.extensions.kit import WITH_TASKS
from tests.stateless.kit import Poster, accept, endpoint_of, meta

from .app_for_tests import Reader, exchange, head, initialize, notification, request, stream
from .test_call_memory import Messages, Word

SIZE = 2 * LARGE_MESSAGE
TEXT = "x" * SIZE
READY = notification("notifications/initialized")
Json = dict[str, Any]


@define(eq=False)
class Client:
    """A client with a session."""

    endpoint: Endpoint
    headers: Json

    async def post(self, body: bytes) -> int:
        reply = await exchange(self.endpoint, head(**self.headers), body)
        await wait_all_tasks_blocked()  # the session has taken it out of its inbox
        return reply.status

    async def ask(self, number: int, tool: str, **arguments: Any) -> tuple[Reader, Json]:
        """Call a tool; return its stream and the question that it asks."""
        body = request(number, "tools/call", name=tool, arguments=arguments)
        reader = await stream(self.endpoint, head(**self.headers), body)
        return reader, await reader.frame()

    async def answer(self, question: Json, result: Json) -> int:
        return await self.post(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": result}).encode())


@asynccontextmanager
async def opened(server: Server) -> AsyncIterator[tuple[Shares, Client]]:
    async with endpoint_of(server) as endpoint:
        reply = await exchange(endpoint, head(), initialize(elicitation={}))
        client = Client(endpoint, {"mcp_session_id": dict(reply.headers)[b"mcp-session-id"].decode()})
        await client.post(READY)
        yield endpoint.runtime.call_memory, client


def make_server(**limits: Any) -> Server:
    server = Server("memory", limits=Limits(**{"max_call_memory": 5 * SIZE, "busy_timeout": 1, **limits}))
    server.add_extension(Tasks())

    @server.tool
    async def work(text: str = "", seconds: float = 10) -> str:
        await trio.sleep(seconds)
        return "done"

    @server.tool
    async def ask(ctx: Context, questions: int = 1) -> str:
        for number in range(questions):
            await ctx.elicit(f"Question {number}?", Word)
        await trio.sleep(10)
        return "done"

    @server.tool(task=True)
    async def report(ctx: Context) -> str:
        await ctx.elicit("Really?", Word, key="q")
        await trio.sleep(10)
        return "done"

    @server.on_roots_changed
    async def changed(ctx: Context) -> None:
        await trio.sleep(10)

    return server


def in_words(word: str) -> Json:
    return {"action": "accept", "content": {"word": word}}


# -- requests and notifications that wait for their turn


@pytest.mark.defect("S7")
async def test_requests_that_wait_for_their_turn_count(autojump_clock: MockClock) -> None:
    async with opened(make_server(running=1)) as (memory, client), trio.open_nursery() as nursery:
        for number in (1, 2, 3):
            body = request(number, "tools/call", name="work", arguments={"text": TEXT})
            nursery.start_soon(client.post, body)
            await wait_all_tasks_blocked()  # the first one runs
        assert 3 * SIZE < memory.used < 3.1 * SIZE
        cancelled = notification("notifications/cancelled", requestId=3)
        await client.post(cancelled)
        assert 2 * SIZE < memory.used < 2.1 * SIZE
        await trio.sleep(12)
        assert SIZE < memory.used < 1.1 * SIZE
        await trio.sleep(10)
        assert memory.used == 0


@pytest.mark.defect("S7")
@pytest.mark.parametrize("crashes", [False, True])
async def test_requests_that_wait_count_until_their_session_ends(crashes: bool, autojump_clock: MockClock) -> None:
    async with opened(make_server(running=1)) as (memory, client), trio.open_nursery() as nursery:
        for number in (1, 2, 3):
            nursery.start_soon(client.post, request(number, "tools/call", name="work", arguments={"text": TEXT}))
        await trio.sleep(1)
        assert memory.used > 3 * SIZE
        if crashes:
            (session,) = client.endpoint.runtime.supervisor
            assert session.nursery is not None
            session.nursery.cancel_scope.cancel()
        else:
            await exchange(client.endpoint, head("DELETE", **client.headers))
        await trio.sleep(1)
        assert memory.used == 0


@pytest.mark.defect("S7")
async def test_notifications_that_wait_for_their_turn_count_and_are_bounded(autojump_clock: MockClock) -> None:
    changed = notification("notifications/roots/list_changed", text=TEXT)
    async with opened(make_server(running=1)) as (memory, client):
        replies = [await client.post(changed) for _ in range(4)]
        assert replies == [202] * 3 + [503]  # the last quarter is for owners that hold less than a quarter
        assert 3 * SIZE < memory.used < 3.1 * SIZE
        await trio.sleep(60)
        assert memory.used == 0
        assert await client.post(changed) == 202


@pytest.mark.defect("S7")
async def test_only_so_many_notifications_wait_in_a_session(autojump_clock: MockClock) -> None:
    changed = notification("notifications/roots/list_changed")
    async with opened(make_server(running=1, waiting=4)) as (_, client):
        assert [await client.post(changed) for _ in range(6)] == [202] * 5 + [503]  # one runs, four wait
        assert await client.post(notification("notifications/cancelled", requestId=9)) == 202  # starts no handler


# -- answers


@pytest.mark.defect("S7")
async def test_answers_count_until_the_call_ends(autojump_clock: MockClock) -> None:
    async with opened(make_server()) as (memory, client):
        reader, question = await client.ask(1, "ask", questions=3)
        for number in range(3):
            assert await client.answer(question, in_words(TEXT)) == 202
            if number < 2:
                question = await reader.frame()
        await trio.sleep(1)
        assert 3 * SIZE < memory.used < 3.1 * SIZE
        assert (await reader.frame())["result"]["content"][0]["text"] == "done"
        assert memory.used == 0


@pytest.mark.defect("S7")
async def test_an_answer_without_a_question_does_not_count(autojump_clock: MockClock) -> None:
    async with opened(make_server()) as (memory, client):
        assert await client.answer({"id": 77}, in_words(TEXT)) == 202
        await wait_all_tasks_blocked()
        assert memory.used == 0


@pytest.mark.defect("S7")
async def test_an_answer_that_does_not_fit_can_be_sent_again(autojump_clock: MockClock) -> None:
    async with opened(make_server()) as (_, client), trio.open_nursery() as nursery:
        reader, question = await client.ask(1, "ask")
        for number in range(2, 5):
            nursery.start_soon(client.post, request(number, "tools/call", name="work", arguments={"text": TEXT}))
        await trio.sleep(0.5)
        assert await client.answer(question, in_words(TEXT)) == 503
        assert await client.answer(question, in_words("x" * 1000)) == 202  # a small one is always accepted
        assert (await reader.frame())["result"]["content"][0]["text"] == "done"


@pytest.mark.defect("S7")
async def test_over_a_socket_the_handler_gets_the_error_for_an_answer_that_does_not_fit(
    autojump_clock: MockClock,
) -> None:
    server, seen = make_server(max_call_memory=SIZE), list[MCPError]()

    @server.tool
    async def ask_once(ctx: Context) -> str:
        try:
            await ctx.elicit("Question?", Word)
        except MCPError as error:
            seen.append(error)
        return "refused"

    answer = json.dumps({"jsonrpc": "2.0", "id": 1, "result": in_words(TEXT)}).encode()
    pipe = Messages(
        [initialize(elicitation={}), READY, request(1, "tools/call", name="ask_once", arguments={}), answer]
    )
    async with endpoint_of(server) as endpoint, trio.open_nursery() as nursery:
        bounds = _Bounds(endpoint.admission, "a")
        endpoint.runtime.call_memory.take_anyway("b", 10)
        nursery.start_soon(partial(serve_pipe, endpoint.runtime, pipe, transport="websocket", owner="a", bounds=bounds))
        await trio.sleep(1)
        assert pipe.answers[-1]["result"]["content"][0]["text"] == "refused"
        assert "overloaded" in seen[0].message
        nursery.cancel_scope.cancel()


@pytest.mark.defect("S7")
async def test_answers_of_earlier_rounds_count_too(autojump_clock: MockClock) -> None:
    async with endpoint_of(make_server(max_call_memory=10 * SIZE)) as endpoint, trio.open_nursery() as nursery:
        client, memory = Poster(endpoint), endpoint.runtime.call_memory
        reply = await client.call("ask", {"questions": 3})
        for _ in range(2):
            ((key, _),) = reply.asked.items()
            reply = await client.retry(reply, "ask", {"questions": 3}, **{key: accept(word=TEXT)})
        assert 2 * SIZE < endpoint.runtime.parking._memory < 3.2 * SIZE  # the parked call has two answers
        ((key, _),) = reply.asked.items()
        nursery.start_soon(partial(client.retry, reply, "ask", {"questions": 3}, **{key: accept(word=TEXT)}))
        await trio.sleep(1)
        assert 3 * SIZE < memory.used < 3.2 * SIZE
        await trio.sleep(20)
        assert (memory.used, endpoint.runtime.parking._memory) == (0, 0)


@pytest.mark.defect("S7")
async def test_arguments_that_each_round_repeats_count_twice_at_most(autojump_clock: MockClock) -> None:
    server = make_server(max_call_memory=10 * SIZE)

    @server.tool
    async def ask_about(text: str, ctx: Context) -> str:
        for number in range(5):
            await ctx.elicit(f"Question {number}?", Word)
        return "done"

    async with endpoint_of(server) as endpoint:
        client = Poster(endpoint)
        reply = await client.call("ask_about", {"text": TEXT})
        for _ in range(4):
            ((key, _),) = reply.asked.items()
            reply = await client.retry(reply, "ask_about", {"text": TEXT}, **{key: accept(word="x")})
        assert 2 * SIZE < endpoint.runtime.parking._memory < 2.2 * SIZE


@pytest.mark.defect("S7")
async def test_an_answer_to_a_task_counts_until_the_task_ends(autojump_clock: MockClock) -> None:
    async with endpoint_of(make_server()) as endpoint:
        client, memory = Poster(endpoint), endpoint.runtime.call_memory
        created = await client.call("report", _meta=meta(WITH_TASKS))
        task = {"taskId": created.result["taskId"], "_meta": meta(WITH_TASKS)}
        await wait_all_tasks_blocked()
        await client.post(
            "tasks/update", {**task, "inputResponses": {"other": accept(word=TEXT)}}, mcp_name=task["taskId"]
        )
        assert memory.used == 0  # it answered no question
        await client.post("tasks/update", {**task, "inputResponses": {"q": accept(word=TEXT)}}, mcp_name=task["taskId"])
        assert SIZE < memory.used < 1.1 * SIZE
        await trio.sleep(20)
        assert memory.used == 0


# -- messages that are not served yet


@pytest.mark.defect("S7")
@pytest.mark.parametrize("stateful", [True, False])
async def test_a_message_is_decoded_only_when_there_is_memory_for_it(stateful: bool, autojump_clock: MockClock) -> None:
    """A body of 64 KiB may take twenty times as much when it is decoded."""
    async with opened(make_server()) as (memory, client), trio.open_nursery() as nursery:
        before, statuses = len(decoded()), list[int]()

        async def post(number: int) -> None:
            if stateful:
                body = request(number, "tools/call", name="work", arguments={"text": TEXT, "seconds": 0})
                statuses.append((await exchange(client.endpoint, head(**client.headers), body)).status)
            else:
                statuses.append((await Poster(client.endpoint).call("work", {"text": TEXT, "seconds": 0})).status)

        memory.take_anyway("other", 5 * SIZE)
        for number in range(1, 9):
            nursery.start_soon(post, number)
        await trio.sleep(0.5)
        assert len(decoded()) == before
        await trio.sleep(1)
        assert statuses == [503] * 8
        memory.give_back("other", 5 * SIZE)
        await post(9)
        assert statuses[8:] == [200]
        assert memory.used == 0


@pytest.mark.defect("S7")
async def test_a_message_that_waits_for_a_place_counts(autojump_clock: MockClock) -> None:
    server = make_server(busy_timeout=60, max_call_memory=20 * SIZE)
    async with endpoint_of(server, HttpConfig(max_calls=1)) as endpoint, trio.open_nursery() as nursery:
        memory = endpoint.runtime.call_memory
        for _ in range(3):
            nursery.start_soon(partial(Poster(endpoint).call, "work", {"text": TEXT}))
        await trio.sleep(1)
        assert 3 * SIZE < memory.used < 3.2 * SIZE
        await trio.sleep(10)
        assert 2 * SIZE < memory.used < 2.2 * SIZE
        await trio.sleep(20)
        assert memory.used == 0


def decoded() -> list[SizedObject]:
    return [each for each in gc.get_objects() if type(each) is SizedObject]


# -- answers of batches


BATCHES = "2025-03-26"


@asynccontextmanager
async def batching(**limits: Any) -> AsyncIterator[tuple[Shares, Client]]:
    server = make_server(**{"max_call_memory": 20 * SIZE, **limits})

    @server.tool
    async def give(seconds: float = 0) -> str:
        await trio.sleep(seconds)
        return TEXT

    async with endpoint_of(server) as endpoint:
        reply = await exchange(endpoint, head(), initialize(BATCHES))
        session = dict(reply.headers)[b"mcp-session-id"].decode()
        client = Client(endpoint, {"mcp_session_id": session})
        await client.post(READY)
        yield endpoint.runtime.call_memory, client


def calls(*seconds: float) -> bytes:
    each = [request(at, "tools/call", name="give", arguments={"seconds": s}) for at, s in enumerate(seconds)]
    return b"[" + b",".join(each) + b"]"


async def answers(client: Client, batch: bytes) -> list[Json]:
    reply = await exchange(client.endpoint, head(**client.headers), batch)
    found = json.loads(reply.body) if isinstance(reply, Plain) else await Reader(reply).frame()
    assert isinstance(found, list)
    return sorted(found, key=lambda each: int(each["id"]))


@pytest.mark.defect("S7")
@pytest.mark.parametrize("end", ["answered", "cancelled", "deleted"])
async def test_answers_of_a_batch_count_until_it_is_answered(end: str, autojump_clock: MockClock) -> None:
    async with batching() as (memory, client), trio.open_nursery() as nursery:

        async def post() -> None:
            with suppress(AssertionError):  # a session that was deleted has no answer
                assert len(await answers(client, calls(0, 1, 20))) == 2 + (end == "answered")

        nursery.start_soon(post)
        await trio.sleep(10)
        assert 4 * SIZE < memory.used < 4.1 * SIZE  # each answer, and its part of the message
        if end == "cancelled":
            await client.post(notification("notifications/cancelled", requestId=2))
        elif end == "deleted":
            await exchange(client.endpoint, head("DELETE", **client.headers))
        await trio.sleep(15)
        assert memory.used == 0


@pytest.mark.defect("S7")
async def test_an_answer_of_a_batch_that_finds_no_memory_is_an_error(autojump_clock: MockClock) -> None:
    async with batching(max_call_memory=8 * SIZE) as (memory, client):
        first, second, third, fourth = await answers(client, calls(0, 1, 2, 3))
        assert "result" in first
        assert "result" in second
        assert "max_call_memory" in third["error"]["message"]
        assert fourth["error"]["data"] == {"mayHaveRun": True}
        assert memory.used == 0
        assert "result" in (await answers(client, calls(0)))[0]


# -- parameters that are not kept


@pytest.mark.defect("S6")
@pytest.mark.parametrize("stateful", [True, False])
async def test_a_stream_that_is_not_read_keeps_no_parameters(stateful: bool, autojump_clock: MockClock) -> None:
    server = make_server()

    @server.tool
    async def talk(text: str, ctx: Context) -> str:
        await ctx.info("word")
        return "done"

    params = {"name": "talk", "arguments": {"text": TEXT}}
    quiet = {**meta(), "io.modelcontextprotocol/logLevel": "debug"}
    async with opened(server) as (memory, client):
        if stateful:
            unread = await exchange(client.endpoint, head(**client.headers), request(1, "tools/call", **params))
        else:
            unread = (await Poster(client.endpoint).stream("tools/call", {**params, "_meta": quiet})).reply
        await trio.sleep(1)
        assert memory.used == 0  # the call has ended
        assert not isinstance(unread, Plain)
        assert not any(each.get("name") == "talk" for each in decoded())


# -- the size of a message


@pytest.mark.parametrize("length", [1000, 5000])
def test_parameters_and_results_know_their_size_if_they_count(length: int) -> None:
    text = "x" * length
    for body in (
        request(1, "m", text=text),
        notification("m", text=text),
        json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"text": text}}).encode(),
    ):
        frame = decode_small(body)
        assert isinstance(frame, Request | Notification | Response)
        assert (length < memory_for(frame) < length + 4000) is (length > COUNTED)


def test_a_large_error_is_shortened() -> None:
    """A handler may keep the exception, and nothing counts it."""
    body = {"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "x" * 5000, "data": {"text": TEXT}}}
    frame = decode_small(json.dumps(body).encode())
    assert frame == Error(1, -1, "x" * 1000)
    body["error"] = {"code": -1, "message": "no", "data": {"text": "x"}}
    assert decode_small(json.dumps(body).encode()) == Error(1, -1, "no", {"text": "x"})
