"""Messages that clients do not read share one bound, on every kind of stream. The writes of sockets are in `e2e`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio import Context, Server
from mcptrio._actors.unread import STALLED_AFTER, Unread
from mcptrio._eras.stateless import LOG_LEVEL
from mcptrio._peer.messages import Cause
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.pipe.server import serve_pipe
from mcptrio.transports.websocket.server import _Bounds
from tests.stateless.kit import Poster, endpoint_of, meta

from .app_for_tests import Reader, exchange, head, initialize, notification, request, stream
from .test_call_memory import Messages
from .test_legacy_sse import OldClient

pytestmark = pytest.mark.defect("S7")

SIZE = 100_000
CONFIG = HttpConfig(max_outbox_memory=3 * SIZE, legacy_sse=True)
HANDSHAKE = [initialize("2024-11-05"), notification("notifications/initialized")]


@define(eq=False)
class Kit:
    """A server whose clients may leave three messages unread."""

    endpoint: Endpoint
    ended: list[str] = field(factory=list)
    """The callers whose calls have ended."""

    @property
    def unread(self) -> Unread:
        return self.endpoint.admission.unread


@asynccontextmanager
async def opened() -> AsyncIterator[Kit]:
    server = Server("unread")

    @server.tool
    async def give() -> str:
        return "x" * SIZE

    @server.tool
    async def say(who: str, ctx: Context) -> None:
        await ctx.info("x" * SIZE)
        try:
            await trio.sleep_forever()
        finally:
            kit.ended.append(who)

    async with endpoint_of(server, CONFIG) as endpoint:
        kit = Kit(endpoint)
        yield kit
        await wait_all_tasks_blocked()
        assert (kit.unread.used, kit.unread.room.used) == (0, 0)


async def test_the_stream_of_a_stateless_request_is_cut(autojump_clock: MockClock) -> None:
    async with opened() as kit:
        readers: list[Reader] = []
        for who, address in [("first", "a"), ("second", "a"), ("other", "b")]:
            poster = Poster(kit.endpoint, client=(address, 1))
            params = {"name": "say", "arguments": {"who": who}, "_meta": meta(**{LOG_LEVEL: "debug"})}
            readers.append(await poster.stream("tools/call", params))
            await trio.sleep(STALLED_AFTER)
        assert kit.ended == ["first"], "the oldest one of the owner that has most"
        assert 2 * SIZE < kit.unread.used < 2.1 * SIZE
        assert await readers[0].rest() == []
        for reader in readers[1:]:
            assert (await reader.frame())["method"] == "notifications/message"
            reader.hang_up()


async def test_a_stream_of_a_session_that_is_not_read_is_cut_and_its_call_goes_on(autojump_clock: MockClock) -> None:
    async with opened() as kit:
        readers: list[Reader] = []
        for who, address in [("first", "a"), ("second", "a"), ("other", "b")]:
            opening = await exchange(kit.endpoint, head(client=(address, 1)), initialize())
            session = dict(opening.headers)[b"mcp-session-id"].decode()
            call = request(1, "tools/call", name="say", arguments={"who": who})
            readers.append(await stream(kit.endpoint, head(mcp_session_id=session, client=(address, 1)), call))
            await trio.sleep(STALLED_AFTER)
        assert [reader.reply.events.detached for reader in readers] == ["not read", None, None]  # type: ignore[attr-defined]
        assert 2 * SIZE < kit.unread.used < 2.1 * SIZE
        assert kit.ended == []
        for reader in readers:
            reader.hang_up()


async def test_an_old_session_whose_answers_are_not_read_ends(autojump_clock: MockClock) -> None:
    async with opened() as kit:
        clients = [await OldClient.open(kit.endpoint) for _ in range(3)]
        for client in clients:
            for message in (*HANDSHAKE, *calls(1)):
                await client.post(message)
                await trio.sleep(STALLED_AFTER)
        assert len(list(kit.endpoint.runtime.supervisor)) == 2
        assert await clients[0].reader.rest() == []
        assert (await clients[1].reader.frame())["id"] == 0
        for client in clients[1:]:
            client.reader.hang_up()


class Stalled(Messages):
    """A socket whose peer does not read after the answer to `initialize`."""

    async def send(self, messages: list[bytes]) -> None:
        await super().send(messages)
        if self.answers[-1]["id"] != 0:
            await trio.sleep_forever()


async def test_a_socket_whose_answers_are_not_read_ends(autojump_clock: MockClock) -> None:
    async with opened() as kit, trio.open_nursery() as nursery:
        over: dict[str, Cause | None] = {}

        async def serve(who: str, messages: list[bytes]) -> None:
            bounds = _Bounds(kit.endpoint.admission, who)
            pipe = Stalled(messages)
            session = await serve_pipe(kit.endpoint.runtime, pipe, transport="websocket", owner=who, bounds=bounds)
            over[who] = session.ended

        for who, count in [("a", 3), ("b", 2)]:  # the writer has taken the first answer of each
            nursery.start_soon(serve, who, [*HANDSHAKE, *calls(count)])
            await trio.sleep(STALLED_AFTER)
        await trio.sleep(20)
        assert over == {"a": Cause.DISCONNECT}
        assert SIZE < kit.unread.used < 1.1 * SIZE
        nursery.cancel_scope.cancel()


def calls(count: int) -> list[bytes]:
    return [request(number, "tools/call", name="give", arguments={}) for number in range(1, count + 1)]
