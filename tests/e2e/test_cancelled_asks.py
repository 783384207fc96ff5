"""Cancelling a call that asks, over real sockets, at every step of the scheduler."""

from __future__ import annotations

import pytest
import trio

from mcptrio import connect
from tests.stateless.asking_cases import every_date_that_asks, text
from tests.stateless.test_cancelling import AskingServer, cancel_calls_at_every_step, elicit, left_over

from .test_client_http import served


@pytest.mark.parametrize("engine", ["hypercorn", "direct"])
@every_date_that_asks
async def test_cancelling_the_client_at_any_step_leaves_nothing_behind(date: str, engine: str) -> None:
    asking = AskingServer(parked_ttl=0.5)
    async with served(asking.server, engine=engine) as port:
        async with connect(f"http://127.0.0.1:{port}/mcp", protocol=date, elicit=elicit) as client:
            assert text(await client.call_tool("limited")) == "accept"
            await cancel_calls_at_every_step(client, "limited")
            with trio.fail_after(20):
                while left_over(asking.runtime):
                    await trio.sleep(0.1)
            assert text(await client.call_tool("limited")) == "accept"
