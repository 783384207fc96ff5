"""HTTP+SSE, client side: the time until the server has sent the URL for POSTs, and until it accepts them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import pytest
import trio
from trio.testing import MockClock

from mcptrio import ConnectionLost, Reconnect, RemoteProtocolError, RequestTimeout, connect
from mcptrio.transports.http_client import AuthRequest, AuthResponse
from mcptrio.transports.legacy_sse.client import LegacySseTransport
from tests.transports.scripted_http import URL, Answer, Asked, Handler, Web, event, result

ENDPOINT = b"event: endpoint\ndata: /messages?session_id=1\n\n"


class SlowSignIn:
    """An authorization whose user takes five minutes."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}

    async def authorize(self, request: AuthRequest) -> dict[str, str]:
        return self.headers

    async def on_response(self, response: AuthResponse) -> bool:
        if response.status != 401:
            return False
        await trio.sleep(300)
        self.headers = {"Authorization": "Bearer good"}
        return True


async def endpoint_of(web: Web, **options: Any) -> str:
    async with LegacySseTransport(url=URL, client=web.client(), **options).open(Mock()) as link:
        await trio.sleep(100)  # an idle stream stays open
        return link.endpoint


@pytest.mark.defect("E10")
async def test_a_sign_in_may_take_longer_than_the_server_has_for_its_url(autojump_clock: MockClock) -> None:
    def handle(asked: Asked) -> Answer:
        return Answer(200, [ENDPOINT, 1e9]) if "authorization" in asked.headers else Answer(401)

    assert await endpoint_of(Web(handle), auth=SlowSignIn()) == "http://server.test/messages?session_id=1"


async def test_a_server_that_does_not_answer_or_sends_no_url_is_given_up(autojump_clock: MockClock) -> None:
    async def never(asked: Asked) -> Answer:
        await trio.sleep_forever()
        raise AssertionError

    with pytest.RaisesGroup(pytest.RaisesExc(ConnectionLost, match="did not answer within 10 s")):
        await endpoint_of(Web(never))
    assert trio.current_time() == pytest.approx(10, abs=0.1)
    for pieces in ([b":\n\n", 1e9], [b":\n\n"]):
        began = trio.current_time()
        with pytest.RaisesGroup(pytest.RaisesExc(RemoteProtocolError, match="did not send the URL")):
            await endpoint_of(Web(lambda _, pieces=pieces: Answer(200, pieces)))  # type: ignore[misc]
        assert trio.current_time() - began == pytest.approx(10 if len(pieces) > 1 else 0, abs=0.1)


def old_server(events: trio.MemorySendChannel[bytes], more: trio.MemoryReceiveChannel[bytes], then: Handler) -> Web:
    """A server of HTTP+SSE: the handshake is done, everything else is `then`'s."""

    async def stream() -> AsyncIterator[bytes]:
        yield ENDPOINT
        async for data in more:
            yield data

    async def handle(asked: Asked) -> Answer:
        if asked.url == URL:
            return (
                Answer(200, stream(), {"content-type": "text/event-stream"}) if asked.method == "GET" else Answer(405)
            )
        if asked.rpc == "initialize":
            info = {"name": "old", "version": "1"}
            values = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": info}
            await events.send(event(result(asked, **values)))
            return Answer(202)
        if asked.rpc == "notifications/initialized":
            return Answer(202)
        answer = then(asked)
        return answer if isinstance(answer, Answer) else await answer

    return Web(handle)


@pytest.mark.parametrize("answered", [True, False])
async def test_a_post_that_is_never_accepted_is_given_up_after_its_request(
    answered: bool, autojump_clock: MockClock
) -> None:
    """The answer to a request comes on the stream, so its POST may take as long as the request, but not for ever."""
    events, more = trio.open_memory_channel[bytes](10)
    held = 0

    async def handle(asked: Asked) -> Answer:
        nonlocal held
        held += 1
        try:
            if answered and asked.rpc == "tools/call":
                await trio.sleep(50)  # longer than a message may take that is no request
                await events.send(event(result(asked, content=[])))
            await trio.sleep_forever()
        finally:
            held -= 1
        raise AssertionError

    web = old_server(events, more, handle)
    async with connect(URL, http_client=web.client(), timeout=60, reconnect=Reconnect(tries=0)) as client:
        if answered:
            assert (await client.call_tool("t", {})).content == ()
        else:
            with pytest.raises(RequestTimeout):
                await client.call_tool("t", {})
        assert held
        await trio.sleep(31)
        assert held == 0


@pytest.mark.defect("C19")
async def test_a_server_may_take_its_time_over_a_notification(autojump_clock: MockClock) -> None:
    events, more = trio.open_memory_channel[bytes](10)
    got: list[float] = []

    async def handle(asked: Asked) -> Answer:
        got.append(trio.current_time())
        await trio.sleep(40)  # a client that leaves ends it
        got.append(trio.current_time())
        return Answer(202)

    async with connect(URL, http_client=old_server(events, more, handle).client()) as client:
        await client.notify("notifications/example", {})
        await trio.sleep(2000)
    assert got == [pytest.approx(0, abs=1), pytest.approx(40, abs=1)]
