"""A worker begins to drain while it has a request that nothing was done with yet: the client gets its answer.

Other workers go on, so that replacing a worker costs no call. Each test begins the drain at one point of the way of a
request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from mcptrio import Server
from mcptrio._actors.homes import Homes
from mcptrio._actors.shares import Shares
from mcptrio.stores.redis.directory import RedisDirectory
from mcptrio.transports.http_server.endpoint.admission import Admission
from tests.stateless.kit import Trail
from tests.transports.app_for_tests import Client, head, initialize, plain, request, result_of

from .posting import posting_workers
from .test_remembered import drain, passivate
from .two_workers import Worker, two_workers, until

Send = Callable[[Client], Awaitable[object]]


def begin_drain(worker: Worker) -> None:
    worker.cluster.drain()
    worker.endpoint.runtime.supervisor.begin_drain()


async def call(client: Client) -> None:
    assert result_of(await client.post(request(2, "echo", say="hello"))) == {"echo": "hello"}


async def listen(client: Client) -> None:
    (await client.listen()).hang_up()


async def delete(client: Client) -> None:
    reply = await plain(client.endpoint, client.head("DELETE"))
    assert reply.status == 200


@pytest.fixture(params=[call, listen, delete], ids=lambda send: send.__name__)
def send(request: pytest.FixtureRequest) -> Send:
    sent: Send = request.param
    return sent


async def test_while_the_session_is_claimed(url: str, send: Send, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session is at home here then; it leaves when the request is answered."""
    async with two_workers(url) as (one, _):
        client = await Client.open(one.endpoint)
        await passivate(one, client)
        claim = RedisDirectory.claim

        async def late(self: RedisDirectory, *args: Any) -> Any:
            found = await claim(self, *args)
            begin_drain(one)
            return found

        monkeypatch.setattr(RedisDirectory, "claim", late)
        await send(client)


async def test_before_the_session_is_claimed(url: str, send: Send, monkeypatch: pytest.MonkeyPatch) -> None:
    """R12: another worker claims the session."""
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        await passivate(one, client)
        wait, homes = Shares.wait, one.endpoint.runtime.homes

        async def late(self: Shares, *args: Any, **options: Any) -> bool:
            if homes is not None and self is homes.activations:
                begin_drain(one)
            return await wait(self, *args, **options)

        monkeypatch.setattr(Shares, "wait", late)
        await send(client)
        assert list(one.sessions) == []
        if send is not delete:
            assert list(other.sessions) == [client.session_id]


async def test_while_a_session_is_claimed_for_a_worker_that_drains(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then both drain. The worker that has the session serves it."""
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        await drain(one)
        claim = RedisDirectory.claim

        async def late(self: RedisDirectory, *args: Any) -> Any:
            found = await claim(self, *args)
            begin_drain(other)
            return found

        monkeypatch.setattr(RedisDirectory, "claim", late)
        await call(client)


@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
async def test_while_a_call_waits_for_a_place(url: str, leaves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        enter = Admission.enter

        async def late(self: Admission, *args: Any) -> Any:
            if self is one.endpoint.parts.admission and not one.endpoint.parts.draining:
                begin_drain(one)
                if leaves:
                    await passivate(one, client)
            return await enter(self, *args)

        monkeypatch.setattr(Admission, "enter", late)
        await call(client)
        assert list((other if leaves else one).sessions) == [client.session_id]


async def test_while_a_session_begins(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_workers(url) as (one, other):
        enter = Admission.enter

        async def late(self: Admission, *args: Any) -> Any:
            begin_drain(one)
            return await enter(self, *args)

        monkeypatch.setattr(Admission, "enter", late)
        reply = await plain(one.endpoint, head(), initialize())
        assert reply.status == 200
        monkeypatch.undo()
        client = Client(other.endpoint, dict(reply.headers)[b"mcp-session-id"].decode())
        await call(client)
        assert list(other.sessions) == [client.session_id]


async def test_a_session_that_the_drain_ends_before_it_is_stored_is_refused(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result of initialize without an id would be that of a server without sessions."""
    async with two_workers(url) as (one, _):
        begin = Homes.begin

        async def late(self: Homes, *args: Any) -> None:
            await drain(one)
            await begin(self, *args)

        monkeypatch.setattr(Homes, "begin", late)
        reply = await plain(one.endpoint, head(), initialize())
        assert reply.status == 503
        assert dict(reply.headers)[b"retry-after"] == b"5"


async def test_a_stateless_call_that_begins_during_a_drain_ends_well(url: str) -> None:
    """The drain waits for it too."""
    cues = [trio.Event(), trio.Event()]

    def make_server(trail: Trail, cue: trio.Event) -> Server:
        server = Server("orders")

        @server.tool
        async def wait(number: int) -> int:
            trail("begun")
            await cues[number].wait()
            return number

        return server

    async with posting_workers(make_server, url, 1) as [one], trio.open_nursery() as nursery:
        supervisor, replies, drained = one.poster.endpoint.runtime.supervisor, list[Any](), trio.Event()

        async def post(number: int) -> None:
            reply = await one.poster.call("wait", {"number": number})
            replies.append(reply.result["structuredContent"])

        async def end() -> None:
            one.cluster.drain()
            await supervisor.drain(60)
            drained.set()

        nursery.start_soon(post, 0)
        await until(lambda: len(one.trail.done) == 1)
        nursery.start_soon(end)
        await until(lambda: supervisor.draining)
        nursery.start_soon(post, 1)
        await until(lambda: len(one.trail.done) == 2)
        for number, cue in enumerate(cues):
            assert not drained.is_set()
            cue.set()
            await until(lambda: len(replies) == number + 1)  # noqa: B023
        await drained.wait()
        assert replies == [{"result": 0}, {"result": 1}]
