"""Large pieces of input take turns of the event loop, so that many connections of one client do not fill it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio
import trio.testing

from mcptrio._actors.shares import owner_of
from mcptrio.auth.server import Principal
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.message import HttpRequest
from tests.engines import both_engines
from tests.transports.app_for_tests import initialize, request

from .http_peer import HttpClient, serving_endpoint
from .raw_peer import answer_on, read_all
from .test_direct import post

pytestmark = [both_engines, pytest.mark.defect("S7")]

SIZE = 512 * 1024
CONNECTIONS = 32
TURNS = 75
"""Without turns of the owner 25 to 68 turns of the loop take everything in, with them 86 to 178."""


def body(session: str) -> bytes:
    return post(request(1, "ping", padding="x" * SIZE), "Connection: close", session=session)


def refused(session: str) -> bytes:
    """Return a body that is read away, because the session is unknown."""
    return body("unknown")


class Counter(trio.abc.Instrument):
    turns = 0

    def after_io_wait(self, timeout: float) -> None:
        self.turns += 1


@pytest.mark.parametrize("make", [body, refused])
async def test_one_client_reads_two_large_pieces_in_a_turn(make: Callable[[str], bytes]) -> None:
    async with serving_endpoint(HttpConfig()) as (server, endpoint):
        await endpoint.runtime.turns.take("another client")
        client = await HttpClient.open(server)
        counter = Counter()
        data = make(client.session_id)
        streams = [await server.connect() for _ in range(CONNECTIONS)]

        async def send(stream: trio.SocketStream) -> None:
            await stream.send_all(data)
            assert b"HTTP/1.1" in await read_all(stream)

        trio.lowlevel.add_instrument(counter)
        async with trio.open_nursery() as nursery:
            for stream in streams:
                nursery.start_soon(send, stream)
        trio.lowlevel.remove_instrument(counter)
        assert counter.turns >= TURNS


async def by_name(head: HttpRequest) -> Principal:
    return Principal(subject=head.text(b"x-name"))


async def test_a_connection_belongs_to_the_caller_of_the_request_that_is_served() -> None:
    async with serving_endpoint(HttpConfig(), authenticator=by_name) as (server, _):
        owners = list[str]()
        async with await server.connect() as stream:
            for name in ("ada", "bob"):
                message = post(initialize(), f"X-Name: {name}")
                (guarded,) = server.listener._live
                owners.append(guarded.owner)
                await stream.send_all(message)
                await answer_on(stream)
                await trio.testing.wait_all_tasks_blocked(0.05)
            owners.append(guarded.owner)
        assert owners == [owner_of(guarded.address)] * 3
