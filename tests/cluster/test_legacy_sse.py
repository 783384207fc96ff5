"""HTTP+SSE with two workers: the connection is at one of them, messages reach the other."""

from __future__ import annotations

from mcptrio.stores.redis.listing import list_cluster
from mcptrio.transports.http_server.config import HttpConfig
from tests.redis_server import running_server
from tests.transports.app_for_tests import head, initialize, notification, plain, request
from tests.transports.test_legacy_sse import OldClient

from .test_two_workers import by_header
from .two_workers import Worker, two_workers, until, working

LEGACY = HttpConfig(legacy_sse=True)


def at(worker: Worker, client: OldClient) -> OldClient:
    """The client, sending its messages to this worker."""
    there = OldClient(worker.endpoint, client.reader, "")
    there.path, there.query = client.path, client.query
    return there


async def test_messages_reach_the_worker_that_has_the_connection(url: str) -> None:
    async with two_workers(url, config=LEGACY) as (one, other):
        client = await OldClient.open(one.endpoint)
        there = at(other, client)
        for number, body in enumerate((initialize("2024-11-05"), request(1, "echo", say="hi"))):
            assert (await there.post(body)).status == 202
            assert (await client.reader.frame())["id"] == number
            if not number:
                assert (await there.post(notification("notifications/initialized"))).status == 202
        listing = await list_cluster(one.store.connection, one.store.name, 10)
        assert listing is not None
        assert [(session.home, session.pinned) for session in listing.sessions] == [(one.id, True)]
        client.reader.hang_up()
        await until(lambda: not one.sessions)
        await one.store.flush()
        assert (await there.post(request(2, "echo", say="late"))).status == 404
        listing = await list_cluster(one.store.connection, one.store.name, 10)
        assert listing is not None
        assert listing.sessions == []


async def test_a_message_is_served_by_a_worker_that_drains(url: str) -> None:
    async with two_workers(url, config=LEGACY) as (one, other):
        client = await OldClient.open(one.endpoint)
        await client.post(initialize("2024-11-05"))
        await client.reader.frame()
        await client.post(notification("notifications/initialized"))
        one.endpoint.runtime.supervisor.begin_drain()
        assert (await at(other, client).post(notification("notifications/cancelled", requestId=9))).status == 202
        one.endpoint.runtime.supervisor.draining = False


async def test_the_session_of_another_client_is_unknown_at_every_worker(url: str) -> None:
    async with two_workers(url, config=LEGACY, authenticator=by_header) as (one, other):
        client = await OldClient.open(one.endpoint, x_user="ada")
        there = at(other, client)
        assert (await there.post(initialize("2024-11-05"), x_user="bob")).status == 404
        assert (await there.post(initialize("2024-11-05"), x_user="ada")).status == 202
        assert (await client.reader.frame())["id"] == 0


async def test_invented_sessions_are_not_looked_for(url: str) -> None:
    """The MAC of an id is checked before the store is asked."""
    async with two_workers(url, config=LEGACY) as (one, other):
        client = at(other, await OldClient.open(one.endpoint))
        client.query = client.query[:-1] + (b"y" if client.query.endswith(b"x") else b"x")
        looked: list[str] = []
        other.cluster.look = looked.append  # type: ignore[method-assign, assignment]
        assert (await client.post(initialize("2024-11-05"))).status == 404
        assert looked == []


async def test_a_connection_is_refused_while_the_store_cannot_be_written() -> None:
    with running_server() as redis:
        async with working(redis.url, "1", config=LEGACY) as one:
            redis.stop()
            await until(lambda: not one.store.connection.connected)
            reply = await plain(one.endpoint, head("GET", "/sse"))
            assert (reply.status, dict(reply.headers)[b"retry-after"]) == (503, b"1")
            await until(lambda: not one.sessions)
