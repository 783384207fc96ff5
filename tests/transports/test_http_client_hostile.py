"""Web servers that lie, flood or never end: each call ends with a typed error, in bounded time and memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mcptrio import ConnectionLost, MCPError, MCPTrioError, Reconnect, RemoteProtocolError, RequestTimeout
from mcptrio.transports.http_client import HttpClientConfig, HttpRefused
from mcptrio.types import ProgressParams
from tests.client.kit import BOTH
from tests.transports.scripted_http import Answer, Asked, Web, event, result, stateful
from tests.transports.test_http_client import DONE, call, to

OLD, NEW = BOTH
IS_JSON, IS_STREAM = {"content-type": "application/json"}, {"content-type": "text/event-stream"}
SMALL = HttpClientConfig(max_reply=50_000)
both_dates = pytest.mark.parametrize("date", BOTH)


async def endless(piece: bytes, first: bytes = b"") -> AsyncIterator[bytes]:
    yield first
    while True:
        await trio.lowlevel.checkpoint()
        yield piece


@both_dates
@pytest.mark.parametrize(
    "answer",
    [
        Answer(200, b"<html>", {"content-type": "text/html"}),
        Answer(200, b"", {}),
        Answer(204),
        Answer(202),
        Answer(200, b"{", {"content-type": "application/json"}),
        Answer(200, b"[]", {"content-type": "application/json"}),
        Answer(200, b'{"jsonrpc":"2.0","id":12345,"result":{}}', {"content-type": "application/json"}),
        Answer(200, b'{"jsonrpc":"2.0","method":"x"}', {"content-type": "application/json"}),
        Answer(500, b"oops"),
        Answer(404, b"", {}),
        Answer(
            400, b'{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"x"}}', {"content-type": "application/json"}
        ),
        Answer(200, [b"data: {\n\n"]),
        Answer(200, [b"data: \xff\xff\n\n"]),
        Answer(200, [b"data: nothing ends this event"]),
        Answer(200, [b"\n"]),
        Answer(301, b"", {"location": "/elsewhere"}),
    ],
    ids=lambda answer: f"{answer.status}-{str(answer.body)[:20]}",
)
async def test_a_reply_that_is_not_a_response_is_a_typed_error(
    date: str, answer: Answer, autojump_clock: MockClock
) -> None:
    with pytest.raises((RemoteProtocolError, ConnectionLost)):
        await call(lambda _: answer, date=date)


@both_dates
async def test_an_endless_line_is_cut_off(date: str) -> None:
    def handle(_: Asked) -> Answer:
        return Answer(200, endless(b"x" * 10_000, b"data: "), {"content-type": "text/event-stream"})

    with pytest.raises(RemoteProtocolError, match="50000"):
        await call(handle, date=date, http=SMALL)


@both_dates
async def test_an_endless_event_of_many_lines_is_cut_off(date: str) -> None:
    def handle(_: Asked) -> Answer:
        return Answer(200, endless(b"data: xxxxxxxxxx\n" * 100), {"content-type": "text/event-stream"})

    with pytest.raises(RemoteProtocolError):
        await call(handle, date=date, http=SMALL)


@both_dates
async def test_an_endless_reply_is_cut_off(date: str) -> None:
    def handle(_: Asked) -> Answer:
        return Answer(200, endless(b" " * 10_000), {"content-type": "application/json"})

    with pytest.raises(RemoteProtocolError, match="50000"):
        await call(handle, date=date, http=SMALL)


@both_dates
async def test_an_endless_refusal_is_cut_off(date: str) -> None:
    with pytest.raises(MCPTrioError):
        await call(lambda _: Answer(500, endless(b"x" * 10_000), {}), date=date, http=SMALL)


@both_dates
async def test_a_flood_of_comments_does_not_extend_the_timeout(date: str, autojump_clock: MockClock) -> None:
    async def comments() -> AsyncIterator[bytes]:
        while True:
            await trio.sleep(1)
            yield b": still here\n\n"

    with pytest.raises(RequestTimeout):
        await call(lambda _: Answer(200, comments(), {"content-type": "text/event-stream"}), date=date, timeout=30)


@both_dates
async def test_odd_but_legal_streams_are_read(date: str) -> None:
    def handle(asked: Asked) -> Answer:
        answer = event(result(asked, **DONE))
        pieces = [
            b"\xef\xbb\xbf: a comment\r\r",
            b"event: something\ndata: {}\n\n",
            b"retry: abc\nid: with\0nul\n\n",
            b"retry: 99999999999999999999999\r\n\r\n",
            answer.replace(b"\n\n", b"\r\n\r\n"),
            event(result(asked, content=[])),
            b"data: {never read",
        ]
        return Answer(200, [*pieces])

    got: Any = await call(handle, date=date)
    assert got.content


async def test_a_huge_retry_is_clamped(autojump_clock: MockClock) -> None:
    calls: list[Asked] = []

    def handle(asked: Asked) -> Answer:
        calls.append(asked)
        if asked.method == "POST":
            return Answer(200, [event(None, id="e1", retry=99999999999)])
        return Answer(200, [event(result(calls[0], **DONE))])

    assert (await call(handle, timeout=100)).content
    assert calls[1].at - calls[0].at == pytest.approx(60)


async def test_a_reply_on_the_stream_of_another_call_answers_that_call(autojump_clock: MockClock) -> None:
    """A response with the id of another call ends only the stream that it came on."""

    def handle(asked: Asked) -> Answer:
        return Answer(200, [event({"jsonrpc": "2.0", "id": 999, "result": {}}), event(result(asked, **DONE))])

    assert (await call(handle)).content


@both_dates
@pytest.mark.parametrize("form", ["json", "array", "stream"])
async def test_an_error_without_an_id_fails_the_call_whose_reply_it_is(date: str, form: str) -> None:
    def handle(_: Asked) -> Answer:
        error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "the moon is full"}}
        body = json.dumps([error] if form == "array" else error).encode()
        return Answer(200, [event(error)] if form == "stream" else body, {} if form == "stream" else IS_JSON)

    with pytest.raises(MCPError, match="the moon is full"):
        await call(handle, date=date)


NAMELESS = {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "about something else"}}


FORMS = [(date, form) for date in BOTH for form in ("array", "stream of one array", "stream of two events")]


@pytest.mark.parametrize(("date", "form"), [*FORMS, (OLD, "resumed stream")])
@pytest.mark.defect("E26")
async def test_an_error_without_an_id_does_not_replace_the_answer(
    date: str, form: str, autojump_clock: MockClock
) -> None:
    called: list[Asked] = []

    def handle(asked: Asked) -> Answer:
        if asked.method == "GET":
            return Answer(200, [event(result(called[0], **DONE))])
        called.append(asked)
        both = json.dumps([result(asked, **DONE), NAMELESS]).encode()
        match form:
            case "array":
                return Answer(200, both, IS_JSON)
            case "stream of one array":
                return Answer(200, [b"data: " + both + b"\n\n"])
            case "stream of two events":
                return Answer(200, [event(NAMELESS), 30.0, event(result(asked, **DONE))])
        return Answer(200, [event(NAMELESS, id="1")])

    assert (await call(handle, date=date, reconnect=Reconnect())).content[0].text == "done"


@pytest.mark.parametrize("form", ["array", "stream"])
@pytest.mark.defect("E26")
async def test_the_rest_of_an_array_with_an_error_without_an_id_is_delivered(
    form: str, autojump_clock: MockClock
) -> None:
    """Progress, a request of the server and the answer to another call; the error is for the call of the exchange."""
    first, roots = trio.Event(), trio.Event()
    waiting: list[Asked] = []
    reports: list[float] = []

    async def handle(asked: Asked) -> Answer:
        if asked.frame.get("method") is None:
            assert asked.frame["id"] == 77
            roots.set()
            return Answer(202)
        waiting.append(asked)
        if len(waiting) == 1:
            first.set()
            await trio.sleep_forever()
        progress = {"progressToken": asked.frame["params"]["_meta"]["progressToken"], "progress": 1}
        array = [
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress},
            {"jsonrpc": "2.0", "id": 77, "method": "roots/list"},
            NAMELESS,
            result(waiting[0], **DONE),
        ]
        data = json.dumps(array).encode()
        return Answer(200, data, IS_JSON) if form == "array" else Answer(200, [b"data: " + data + b"\n\n"])

    def report(progress: ProgressParams) -> None:
        reports.append(progress.progress)

    async def other() -> None:
        answers.append(await client.call_tool("t", {}))

    answers: list[Any] = []
    options: dict[str, Any] = {"protocol": OLD, "roots": ["file:///x"], "reconnect": Reconnect(tries=0)}
    with trio.fail_after(20):
        async with to(Web(stateful(OLD, handle)), **options) as client, trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await first.wait()
            with pytest.raises(MCPError, match="about something else"):
                await client.call_tool("t", {}, on_progress=report)
            await roots.wait()
    assert (len(answers), reports) == (1, [1])


@both_dates
async def test_the_body_of_a_refusal_need_not_end(date: str, autojump_clock: MockClock) -> None:
    with pytest.raises(HttpRefused, match="500"):
        await call(lambda _: Answer(500, [b"almost", 1e9]), date=date)
    assert trio.current_time() < 10


class Held:
    """Requests that a server never answers, counted while the client waits for them."""

    def __init__(self) -> None:
        self.open = 0

    async def answer(self, _: Asked) -> Answer:
        self.open += 1
        try:
            await trio.sleep_forever()
        finally:
            self.open -= 1
        raise AssertionError

    async def stream(self) -> AsyncIterator[bytes]:
        self.open += 1
        try:
            yield b": nothing yet\n\n"
            await trio.sleep_forever()
        finally:
            self.open -= 1


async def test_a_notification_that_is_never_answered_is_given_up(autojump_clock: MockClock) -> None:
    held = Held()
    web = Web(stateful(OLD, held.answer))
    async with to(web, protocol=OLD, timeout=1, reconnect=Reconnect(tries=1)) as client:
        for _ in range(3):
            with pytest.raises(RequestTimeout):
                await client.call_tool("t", {})
        await trio.testing.wait_all_tasks_blocked()
        assert held.open == len(web.of("notifications/cancelled")) == 3
        await trio.sleep(100)
        assert (held.open, len(web.of("notifications/cancelled"))) == (0, 3)  # each was sent once


class Slow:
    """A server that asks for roots during a call, and takes a while over each message that is no request."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.got: list[str] = []
        self.handled = trio.Event()

    async def answer(self, asked: Asked) -> Answer:
        if asked.rpc == "tools/call":
            return Answer(200, self.call(asked), IS_STREAM)
        self.got.append(asked.rpc or "answer")
        await trio.sleep(self.seconds)  # a client that leaves ends it
        self.handled.set()
        return Answer(202)

    async def call(self, asked: Asked) -> AsyncIterator[bytes]:
        yield event({"jsonrpc": "2.0", "id": 77, "method": "roots/list"})
        await self.handled.wait()
        yield event(result(asked, **DONE))


@pytest.mark.parametrize("seconds", [40, 500])
@pytest.mark.defect("C19")
async def test_a_server_may_take_its_time_over_a_notification_or_an_answer(
    seconds: float, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    slow = Slow(seconds)
    async with to(Web(stateful(OLD, slow.answer)), protocol=OLD, roots=["file:///x"], timeout=800) as client:
        assert (await client.call_tool("t", {})).content
        slow.handled = trio.Event()
        await client.notify("notifications/example", {})
        await slow.handled.wait()
        await trio.sleep(2000)
    assert slow.got == ["answer", "notifications/example"]
    assert caplog.records == []


@pytest.mark.defect("C19")
async def test_a_message_that_arrived_and_is_not_accepted_in_time_is_not_repeated(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    slow = Slow(1e9)
    options: dict[str, Any] = {"protocol": OLD, "roots": ["file:///x"], "http": HttpClientConfig(accept_timeout=20)}
    async with to(Web(stateful(OLD, slow.answer)), **options) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("t", {}, timeout=30)
        await client.notify("notifications/example", {})
        await trio.sleep(2000)
    assert sorted(slow.got) == ["answer", "notifications/cancelled", "notifications/example"]
    assert len(caplog.records) == 3
    assert "an answer was not accepted: the server did not answer within 20 s" in caplog.messages


async def test_a_call_that_is_answered_on_another_stream_closes_its_own(autojump_clock: MockClock) -> None:
    held = Held()
    answers, more = trio.open_memory_channel[bytes](10)

    async def own_stream() -> AsyncIterator[bytes]:
        async for data in more:
            yield data

    def handle(asked: Asked) -> Answer:
        answers.send_nowait(event(result(asked, **DONE)))
        return Answer(200, held.stream(), IS_STREAM)

    rest = stateful(OLD, handle)
    web = Web(lambda asked: Answer(200, own_stream(), IS_STREAM) if asked.method == "GET" else rest(asked))
    async with to(web, protocol=OLD) as client:
        for _ in range(3):
            assert (await client.call_tool("t", {})).content
        await trio.sleep(1)
        assert held.open == 0


@pytest.mark.defect("E26")
async def test_a_call_that_is_answered_on_the_stream_of_another_call_closes_its_own(autojump_clock: MockClock) -> None:
    held = Held()
    first: list[Asked] = []

    async def both(second: Asked) -> AsyncIterator[bytes]:
        yield event(result(first[0], **DONE))
        await trio.sleep(5)
        yield event(result(second, **DONE))

    def handle(asked: Asked) -> Answer:
        if first:
            return Answer(200, both(asked), IS_STREAM)
        first.append(asked)
        return Answer(200, held.stream(), IS_STREAM)

    async with to(Web(stateful(OLD, handle)), protocol=OLD) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, "t", {})
        await trio.testing.wait_all_tasks_blocked()
        assert held.open == 1
        nursery.start_soon(client.call_tool, "t", {})
        await trio.sleep(1)
        assert held.open == 0
        assert len(nursery.child_tasks) == 1, "the other call waits for its own answer"


async def test_an_unreadable_answer_in_an_array_closes_the_stream_of_its_call(autojump_clock: MockClock) -> None:
    held = Held()

    async def stream(asked: Asked) -> AsyncIterator[bytes]:
        yield b"data: " + json.dumps([{"jsonrpc": "2.0", "id": asked.frame["id"], "error": 5}]).encode() + b"\n\n"
        async for data in held.stream():
            yield data

    web = Web(stateful(OLD, lambda asked: Answer(200, stream(asked), IS_STREAM)))
    async with to(web, protocol=OLD) as client:
        with pytest.raises(RemoteProtocolError):
            await client.call_tool("t", {})
        await trio.sleep(1)
        assert held.open == 0
