"""The listener's responses to framing that ASGI cannot see, on real connections (P4, P8, P15; H12 to H34, W01)."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.engines import both_engines

from .raw_peer import answer, echo, get, post, read_all, read_body, read_until, serving, status

pytestmark = both_engines


def echoed(response: bytes) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(response.partition(b"\r\n\r\n")[2])
    return answer


@pytest.mark.parametrize(
    ("request_bytes", "code"),
    [
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (b"post / HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: \x00\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 20_000 + b"\r\n\r\n", 431),
        (b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03", 400),
    ],
)
async def test_bad_framing_is_answered_and_the_connection_closed(request_bytes: bytes, code: int) -> None:
    async with serving(echo) as server:
        async with await server.connect() as stream:
            await stream.send_all(request_bytes)
            response = await read_all(stream)
        assert status(response) == code
        assert b"connection: close" in response
        refused = [event for event in server.events if getattr(event, "kind", "") == "request_refused"]
        assert [event.detail[:3] for event in refused] == [str(code)]
        assert server.count("request_refused") == 1


async def test_bad_framing_later_on_a_connection_does_not_harm_what_came_before() -> None:
    async with serving(echo) as server:
        response = await server.ask(get("/1") + post("/2", b"two") + b"post /3 HTTP/1.1\r\nHost: x\r\n\r\n")
        first, second, third = response.split(b"HTTP/1.1 ")[1:]
        assert echoed(first)["path"] == "/1"
        assert echoed(second)["body"] == "two"
        assert third.startswith(b"405")


async def test_p4_http2_by_prior_knowledge_is_refused() -> None:
    async with serving(echo) as server:
        response = await server.ask(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        assert status(response) == 505


@pytest.mark.parametrize("body", [None, b"{}"])
async def test_p8_an_offer_of_h2c_is_ignored_with_and_without_a_body(body: bytes | None) -> None:
    """The JDK's client offers h2c on every cleartext request, and must be served in HTTP/1.1."""
    offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAAA")
    request = get("/", *offer) if body is None else post("/", body, *offer)
    async with serving(echo) as server:
        async with await server.connect() as stream:
            for _ in range(2):  # and the connection stays in use
                await stream.send_all(request)
                response = await read_until(stream, b"}")
                assert status(response) == 200
                assert "upgrade" not in dict(echoed(response)["headers"])


async def test_an_absolute_target_reaches_the_app_as_a_path_and_as_it_was_sent() -> None:
    async with serving(echo) as server:
        response = await server.ask(b"GET http://evil.example/mcp?a=b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert echoed(response)["path"] == "/mcp"
        assert echoed(response)["target"] == "http://evil.example/mcp?a=b"


async def test_h30_a_body_declared_too_large_is_refused_before_it_is_asked_for() -> None:
    async with serving(echo, max_body=10) as server:
        async with await server.connect() as stream:
            await stream.send_all(
                b"POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n"
            )
            response = await read_all(stream)
        assert status(response) == 413
        assert b" 100 " not in response
        async with await server.connect() as stream:
            await stream.send_all(b"POST /big HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
            assert await read_until(stream, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            await stream.send_all(b"hi")
            assert echoed(await read_until(stream, b"}"))["body"] == "hi"


async def test_100_is_sent_only_when_the_app_asks_for_the_body() -> None:
    """A refused upload (no token, say) is answered before a byte of it is on its way."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await answer(send, 401, b"no")

    async with serving(app) as server:
        async with await server.connect() as stream:
            await stream.send_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\nExpect: 100-continue\r\n\r\n")
            response = await read_all(stream)
        assert status(response) == 401


async def test_w01_a_head_that_comes_too_slowly_is_answered_with_408() -> None:
    async with serving(echo, header_timeout=0.3) as server:
        async with await server.connect() as stream, trio.open_nursery() as nursery:

            @nursery.start_soon
            async def drip() -> None:
                for byte in get("/" + "a" * 1000):
                    try:
                        await stream.send_all(bytes([byte]))
                    except trio.BrokenResourceError:
                        return
                    await trio.sleep(0.02)

            started = trio.current_time()
            assert status(await read_all(stream)) == 408
            assert 0.2 < trio.current_time() - started < 10, "a byte each 20 ms would take twenty seconds"
            nursery.cancel_scope.cancel()


async def test_a_connection_that_never_says_anything_is_closed() -> None:
    async with serving(echo, header_timeout=0.1) as server:
        async with await server.connect() as stream:
            assert await read_all(stream) == b""


async def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    release = trio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await read_body(receive)
        if scope["path"] == "/slow":
            await release.wait()
        await answer(send, 200, b"ok")

    async with serving(app, keep_alive_timeout=0.1, header_timeout=0.1) as server:
        async with await server.connect() as busy:
            await busy.send_all(get("/slow"))
            async with await server.connect() as idle:
                await idle.send_all(get("/"))
                assert (await read_all(idle)).endswith(b"ok")  # and then closed
            release.set()
            assert status(await busy.receive_some()) == 200


async def test_a_chunked_body_is_read_whole() -> None:
    async with serving(echo) as server:
        async with await server.connect() as stream:
            await stream.send_all(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            for piece in (b"2\r\nab\r", b"\n3;x=y\r\ncde\r\n0", b"\r\nTrailer: x\r\n", b"\r\n"):
                await stream.send_all(piece)
                await wait_all_tasks_blocked()
            assert echoed(await read_until(stream, b"}"))["body"] == "abcde"


async def test_a_broken_chunk_is_answered_with_400() -> None:
    async with serving(echo) as server:
        async with await server.connect() as stream:
            await stream.send_all(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n")
            assert status(await read_all(stream)) == 400
        await wait_all_tasks_blocked()
        assert server.caught() == 0
        assert server.listener.connections == 0


async def test_h34_pipelined_requests_are_served_in_order() -> None:
    async with serving(echo) as server:
        async with await server.connect() as stream:
            await stream.send_all(b"".join(post(f"/{n}", b"x" * n) for n in range(20)))
            data = b""
            while data.count(b"HTTP/1.1 200") < 20 or not data.endswith(b"}"):
                data += await stream.receive_some()
        assert [echoed(part)["path"] for part in data.split(b"HTTP/1.1 ")[1:]] == [f"/{n}" for n in range(20)]


async def test_head_and_body_leave_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    from mcptrio.transports.http_server.listener.guarded_stream import GuardedStream

    writes: list[bytes] = []
    send_now = GuardedStream.send_now

    def recorded(self: GuardedStream, data: bytes) -> bytes:
        writes.append(data)
        return send_now(self, data)

    monkeypatch.setattr(GuardedStream, "send_now", recorded)
    async with serving(echo) as server:
        await server.ask(get("/", close=True))
        assert len(writes) == 1
