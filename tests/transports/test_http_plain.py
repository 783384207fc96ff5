"""The responses to plain requests as they are written, and the inbox of the app that makes them."""

from __future__ import annotations

import h11
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcptrio.transports.http_server.framing import Head
from mcptrio.transports.http_server.inbox import Inbox
from mcptrio.transports.http_server.message import CLOSE, EVENTS, JSON, Headers
from mcptrio.transports.http_server.plain import BrokenResponse, PlainReply, handed_on

Fields = list[tuple[bytes, bytes]]


def reply(method: bytes = b"GET", *headers: tuple[bytes, bytes]) -> PlainReply:
    return PlainReply(Head(method=method, target=b"/", version=b"1.1", headers=((b"host", b"x"), *headers)))


def read(method: bytes, data: bytes) -> tuple[int, dict[bytes, bytes], bytes]:
    """What another parser makes of a response."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(data)
    response = client.next_event()
    assert isinstance(response, h11.Response)
    body = b""
    while isinstance(event := client.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    return response.status_code, dict(response.headers), body


@pytest.mark.parametrize(
    ("method", "status", "headers", "body", "read_back"),
    [
        (b"GET", 200, [(b"content-length", b"4")], [b"ab", b"cd"], b"abcd"),
        (b"GET", 200, [(b"content-length", b"0")], [], b""),
        (b"GET", 200, [], [b"ab", b"", b"cd"], b"abcd"),
        (b"POST", 404, [(b"Transfer-Encoding", b"chunked")], [b"no"], b"no"),
        (b"GET", 204, [], [], b""),
        (b"GET", 304, [(b"content-length", b"7")], [], b""),
        (b"HEAD", 200, [(b"content-length", b"7")], [], b""),
    ],
)
def test_another_parser_reads_what_the_app_said(
    method: bytes, status: int, headers: Fields, body: list[bytes], read_back: bytes
) -> None:
    writer = reply(method)
    data = writer.start(status, [*headers, (b"x-mine", b"1")])
    data += b"".join(writer.body(part) for part in body)
    data += writer.end()
    assert writer.ended
    code, fields, whole = read(method, data)
    assert (code, fields[b"x-mine"], whole) == (status, b"1", read_back)
    assert b"connection" not in fields


@pytest.mark.parametrize(
    ("asked", "said"),
    [((b"connection", b"close"), None), (None, (b"connection", b"close")), (None, (b"Connection", b"Close"))],
)
def test_either_side_may_want_the_connection_to_end(
    asked: tuple[bytes, bytes] | None, said: tuple[bytes, bytes] | None
) -> None:
    writer = reply(b"GET", *([asked] if asked else []))
    head = writer.start(200, [(b"content-length", b"0"), *([said] if said else [])])
    assert not writer.keeps
    assert head.lower().count(b"connection: close\r\n") == 1


@pytest.mark.parametrize(
    "header",
    [
        (b"x-mine", b"a\r\nset-cookie: b"),
        (b"x-mine", b"a\nb"),
        (b"x-mine\r\nx", b"a"),
        (b"x mine", b"a"),
        (b"", b"a"),
        (b"x-mine", b"a\0"),
        (b"content-length", b"-1"),
        (b"content-length", b"1, 1"),
    ],
)
def test_a_header_that_would_say_something_else_is_not_written(header: tuple[bytes, bytes]) -> None:
    with pytest.raises(BrokenResponse):
        reply().start(200, [header])


def test_a_body_is_as_long_as_it_was_declared() -> None:
    writer = reply()
    writer.start(200, [(b"content-length", b"3")])
    with pytest.raises(BrokenResponse):
        writer.body(b"long")
    writer = reply()
    writer.start(200, [(b"content-length", b"3")])
    writer.body(b"s")
    with pytest.raises(BrokenResponse):
        writer.end()
    assert not writer.ended


@pytest.mark.parametrize("method", [b"POST", b"HEAD"])
@pytest.mark.parametrize("status", [200, 202, 404])
@pytest.mark.parametrize("headers", [JSON, EVENTS, (), (*JSON, (b"mcp-session-id", b"x"))])
@pytest.mark.parametrize("keeps", [True, False])
def test_another_parser_reads_an_answer_that_was_written_whole(
    method: bytes, status: int, headers: Headers, keeps: bool
) -> None:
    writer = reply(method)
    writer.keeps = keeps
    data = writer.whole(status, headers, b"body", [(b"date", b"now")], b"date: now\r\n")
    assert writer.ended
    code, fields, body = read(method, data)
    assert (code, body) == (status, b"" if method == b"HEAD" else b"body")
    assert fields.pop(b"connection", b"keep") == (b"keep" if keeps else b"close")
    assert fields == {**dict(headers), b"content-length": b"4", b"date": b"now"}


def test_an_answer_that_was_written_whole_may_close_and_may_not_break_out_of_its_headers() -> None:
    writer = reply(b"POST")
    _, fields, _ = read(b"POST", writer.whole(503, (CLOSE,), b"", [], b""))
    assert fields[b"connection"] == b"close"
    assert not writer.keeps
    with pytest.raises(BrokenResponse):
        reply(b"POST").whole(200, ((b"a", b"b\r\nc: d"),), b"", [], b"")


def test_the_app_sees_no_offer_to_speak_another_protocol() -> None:
    headers = ((b"host", b"x"), (b"upgrade", b"h2c"), (b"http2-settings", b"AAA"), (b"accept", b"*/*"))
    head = Head(method=b"GET", target=b"/", version=b"1.1", headers=headers)
    assert handed_on(head) == [(b"host", b"x"), (b"accept", b"*/*")]


# -- the inbox


async def test_a_whole_body_is_taken_at_once_or_received() -> None:
    inbox = Inbox(10, None)
    inbox.put_whole(b"body")
    assert inbox.take_whole(4) == b"body"
    await inbox.put({"type": "http.disconnect"})
    assert (await inbox.receive())["type"] == "http.disconnect"
    for longest in (3, None):
        inbox = Inbox(10, None)
        inbox.put_whole(b"body")
        if longest is not None:
            assert inbox.take_whole(longest) is None
        assert await inbox.receive() == {"type": "http.request", "body": b"body", "more_body": False}
        assert inbox.take_whole(100) is None


async def test_who_receives_waits_and_who_puts_too_much_waits(nursery: trio.Nursery) -> None:
    inbox = Inbox(1, None)
    got: list[object] = []

    async def receive() -> None:
        got.append((await inbox.receive())["type"])

    nursery.start_soon(receive)
    await wait_all_tasks_blocked()
    assert got == []
    await inbox.put({"type": "http.request", "body": b"", "more_body": True})
    await wait_all_tasks_blocked()
    assert got == ["http.request"]
    await inbox.put({"type": "http.request", "body": b"", "more_body": True})
    with trio.move_on_after(0) as impatient:
        await inbox.put({"type": "http.request", "body": b"", "more_body": True})
    assert impatient.cancelled_caught
    await inbox.put({"type": "http.disconnect"})  # never waits
    await inbox.put({"type": "http.request", "body": b"late", "more_body": True})  # nor does what nobody will read
    assert [(await inbox.receive())["type"] for _ in range(3)] == ["http.request", "http.disconnect", "http.disconnect"]
