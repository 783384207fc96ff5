"""Web servers that lie, flood or never end: each call ends with a typed error, in bounded time and memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mcptrio import ConnectionLost, MCPTrioError, RemoteProtocolError, RequestTimeout
from mcptrio.transports.http_client import HttpClientConfig
from tests.client.kit import BOTH
from tests.transports.scripted_http import Answer, Asked, event, result
from tests.transports.test_http_client import DONE, call

OLD, NEW = BOTH
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
