"""The memory of the messages of one WebSocket: nothing stays reserved, whenever it ends."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.message_memory import MessageMemory

from .app_for_tests import open_endpoint

pytestmark = pytest.mark.defect("S6")

CONFIG = HttpConfig(websocket_max_message=10, max_body_memory=10, body_timeout=60)


async def test_memory_is_reserved_at_full_size_and_then_held_at_the_real_one() -> None:
    async with open_endpoint(CONFIG) as endpoint:
        table, memory = endpoint.admission.body_memory, MessageMemory(endpoint.admission, "ann")
        assert await memory.reserve()
        assert table.held == {"ann": 10}
        memory.complete(4)
        assert table.used == 4
        memory.handled()
        assert table.used == 0


async def test_closing_gives_everything_back_once() -> None:
    async with open_endpoint(HttpConfig(websocket_max_message=4, max_body_memory=10)) as endpoint:
        table, memory = endpoint.admission.body_memory, MessageMemory(endpoint.admission, "ann")
        assert await memory.reserve()
        assert await memory.reserve()
        memory.close()
        assert table.used == 0
        memory.handled()
        memory.complete(1)
        memory.close()
        assert not await memory.reserve()
        assert table.used == 0


async def test_a_wait_ends_without_memory_after_the_timeout(autojump_clock: MockClock) -> None:
    async with open_endpoint(CONFIG) as endpoint:
        table, memory = endpoint.admission.body_memory, MessageMemory(endpoint.admission, "ann")
        assert table.take("bob", 10)
        began = trio.current_time()
        assert not await memory.reserve()
        assert trio.current_time() - began == 60
        assert (table.used, table.waiting) == (10, 0)


@pytest.mark.parametrize("granted", [False, True], ids=["waiting", "granted at the same moment"])
@pytest.mark.parametrize("how", ["close", "cancel"])
async def test_a_wait_that_is_ended_reserves_nothing(how: str, granted: bool) -> None:
    async with open_endpoint(CONFIG) as endpoint:
        table, memory = endpoint.admission.body_memory, MessageMemory(endpoint.admission, "ann")
        assert table.take("bob", 10)
        results: list[bool] = []

        async def wait() -> None:
            results.append(await memory.reserve())

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await wait_all_tasks_blocked()
                assert table.waiting == 1
                if granted:
                    table.give_back("bob", 10)
                if how == "cancel":
                    nursery.cancel_scope.cancel()
                else:
                    memory.close()
        memory.close()
        assert True not in results or how == "cancel"
        assert (table.used, table.waiting) == (0 if granted else 10, 0)
