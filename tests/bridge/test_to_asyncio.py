"""Calls from Trio to asyncio whose loop ends in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import trio
import trio.testing

from mcptrio._bridge.to_asyncio import run_in_asyncio


class Closing:
    """A way to a loop that its thread closes between two calls."""

    given_up = False

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.calls = 0

    def to_asyncio(self, fn: Callable[[], object], /) -> None:
        self.calls += 1
        if self.calls > 1:
            raise RuntimeError("Event loop is closed")

    def to_trio(self, fn: Callable[[], object], /) -> None:
        fn()


async def test_a_cancellation_while_the_loop_is_being_closed_does_not_end_trio() -> None:
    way = Closing()

    async def never() -> None:
        raise AssertionError

    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_in_asyncio, way, never)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    finally:
        way.loop.close()
    assert way.calls == 2
