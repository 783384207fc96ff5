"""A client that is cancelled at every step of the scheduler: one plain outcome, and nothing left behind."""

from __future__ import annotations

import gc
import itertools
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

from mcptrio import MCPTrioError, Reconnect, Server, connect
from tests.client.kit import BOTH, make_server
from tests.tiers import exhaustive, sample

OLD, NEW = BOTH
PROGRAM = Path(__file__).parent / "programs" / "tiny_server.py"


class CancelAt(trio.abc.Instrument):
    """Cancels a scope before the given step of any task."""

    def __init__(self, step: int) -> None:
        self.left = step
        self.scope: trio.CancelScope | None = None

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if self.scope is not None:
            self.left -= 1
            if self.left == 0:
                self.scope.cancel()


class Turns(random.Random):
    """Stands in for Trio's random numbers: of the tasks of each turn, the oldest or the newest runs first.

    The order can change from turn to turn. Only then does a task end before another one that began with it goes on.
    """

    def __init__(self, order: str) -> None:
        super().__init__()
        self.order = itertools.cycle(order.split())

    def shuffle(self, batch: Any) -> None:
        if next(self.order) == "newest":
            batch.reverse()


ORDERS = ["oldest newest", "newest oldest", "oldest", "newest"]


async def use(target: Any, date: str) -> None:
    async with connect(target, protocol=date, reconnect=Reconnect(tries=1, first=0.01)) as client:
        await client.call_tool("count", {"a": 1, "b": 2})
        async with client.listen(tools=True):
            pass


def run_until(step: int, target: Any, date: str, order: str | None = None) -> bool:
    """Use a client and cancel it at this step; False if it was done before."""
    cancel = CancelAt(step)

    async def main() -> None:
        with trio.fail_after(20), trio.CancelScope() as scope:
            cancel.scope = scope
            try:
                await use(target() if callable(target) else target, date)
            except MCPTrioError:
                if not scope.cancel_called:
                    raise
            cancel.scope = None

    with pytest.MonkeyPatch.context() as patch:
        if order is not None:
            patch.setattr("trio._core._run._ALLOW_DETERMINISTIC_SCHEDULING", True)
            patch.setattr("trio._core._run._r", Turns(order))
        trio.run(main, instruments=[cancel], strict_exception_groups=True)
    return cancel.left <= 0


def open_files() -> set[str]:
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the descriptor of the listing itself
            found.add(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")
    return found


def children() -> set[int]:
    """Return the ids of the child processes, those included that ended and were not waited for."""
    return {child.pid for child in psutil.Process().children()}


def check_every_step(target: Any, date: str, order: str | None = None) -> None:
    run_until(10**9, target, date, order)
    gc.collect()
    before = open_files()
    processes = children()
    step = 1
    while run_until(step, target, date, order):
        gc.collect(0)
        began = time.monotonic()
        while (left := open_files() - before) and time.monotonic() - began < 5:
            time.sleep(0.001)  # the other ends of sockets are of this process too, in the thread of the server
        assert not left, f"step {step} left {left}"
        assert children() <= processes, f"step {step} left a process"
        step += 1
    gc.collect()
    assert step > 20, "it was cancelled before it ended, again and again"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a server in a thread of its own, whose steps are not counted."""
    bound: list[int] = []
    ready, stop = threading.Event(), trio.Event()
    token: list[trio.lowlevel.TrioToken] = []

    async def serve() -> None:
        token.append(trio.lowlevel.current_trio_token())
        async with trio.open_nursery() as nursery:
            addresses = await nursery.start(partial(make_server().serve_http, port=0, legacy_sse=True))
            bound.append(int(addresses[0].url.rpartition(":")[2]))
            ready.set()
            await stop.wait()
            nursery.cancel_scope.cancel()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    assert ready.wait(30)
    yield bound[0]
    token[0].run_sync_soon(stop.set)
    thread.join(30)


@pytest.mark.defect("C14")
@pytest.mark.parametrize("order", sample(ORDERS, "oldest newest"))
@pytest.mark.parametrize("date", sample(BOTH, NEW))
def test_a_client_of_a_server_in_this_process_is_cancelled_at_every_step(date: str, order: str) -> None:
    def server() -> Server:
        return make_server()

    check_every_step(server, date, order)


@pytest.mark.defect("C14")
@pytest.mark.parametrize("date", sample(BOTH, OLD))
def test_a_client_over_http_is_cancelled_at_every_step(port: int, date: str) -> None:
    check_every_step(f"http://127.0.0.1:{port}/mcp", date)


@pytest.mark.defect("C14")
@exhaustive
@pytest.mark.parametrize("url", ["ws://127.0.0.1:{}/mcp", "http://127.0.0.1:{}/sse"])
def test_a_client_over_other_transports_is_cancelled_at_every_step(port: int, url: str) -> None:
    check_every_step(url.format(port), OLD)


@pytest.mark.defect("C14")
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@exhaustive
def test_a_client_of_a_process_is_cancelled_at_every_step() -> None:
    check_every_step([sys.executable, "-S", "-E", str(PROGRAM)], OLD)
