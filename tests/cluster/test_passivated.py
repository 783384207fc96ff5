"""A passivated session is its record in the store: nothing of it stays in the worker."""

from __future__ import annotations

import gc
from collections import Counter

from tests.redis_server import RedisServer
from tests.transports.app_for_tests import Client, app_of, request, result_of

from .two_workers import Worker, until, working

SESSIONS = 100


async def passivate_many(worker: Worker) -> set[str]:
    """Open sessions, use each once, and passivate them."""
    ids, homes = set(), worker.endpoint.runtime.homes
    assert homes is not None
    for _ in range(SESSIONS):
        client = await Client.open(worker.endpoint)
        assert result_of(await client.post(request(1, "ping"))) == {}
        homes.leave_soon(worker.sessions[client.session_id])
        ids.add(client.session_id)
    await until(lambda: not homes.moving)
    app_of(worker.endpoint).events.clear()
    return ids


def objects() -> Counter[str]:
    """Return how many objects of each class of the package there are."""
    gc.collect()
    types = (type(thing) for thing in gc.get_objects())
    return Counter(kind.__qualname__ for kind in types if kind.__module__.startswith("mcptrio"))


async def test_nothing_of_passivated_sessions_stays_in_the_worker(redis_server: RedisServer) -> None:
    async with working(redis_server.url) as worker:
        await passivate_many(worker)  # caches have their size
        before = objects()
        ids = await passivate_many(worker)
        grown = {name: count for name, count in (objects() - before).items() if count >= SESSIONS / 4}
        assert grown == {}
        names = {type(thing).__name__ for thing in gc.get_objects() if isinstance(thing, dict) and ids & thing.keys()}
        assert names == set()
        kept = [thing for thing in gc.get_objects() if isinstance(thing, set | frozenset) and thing is not ids]
        assert [len(thing) for thing in kept if ids & thing] == []
