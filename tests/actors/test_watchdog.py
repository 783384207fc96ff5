"""The watchdog: it names the task that blocks the loop while it is blocked, and otherwise costs nothing visible."""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mcptrio import telemetry
from mcptrio._actors.runtime import Runtime
from mcptrio._actors.watchdog import UNREADY_ABOVE, Watchdog, name_culprit
from mcptrio.stores import MemoryBus, MemoryStore

from .kit import App


class Alarm(logging.Handler):
    """Sets an event when something is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.rang = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.rang.set()


@pytest.fixture
def alarm() -> Iterator[Alarm]:
    alarm = Alarm()
    logger = logging.getLogger("mcptrio.watchdog")
    logger.addHandler(alarm)
    yield alarm
    logger.removeHandler(alarm)


def watchdogs() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "mcptrio watchdog"]


def new_runtime() -> Runtime:
    return Runtime(app=App(), store=MemoryStore(), bus=MemoryBus())


def block_until(rang: threading.Event) -> bool:
    return rang.wait(10)


async def test_a_handler_that_blocks_the_loop_is_named_while_it_blocks(alarm: Alarm) -> None:
    """Afterwards would be too late: a handler that never returns could not be found (F11)."""
    events: list[Any] = []
    heard = trio.Event()

    def hear(event: Any) -> None:
        events.append(event)
        heard.set()

    async def refund() -> None:
        assert block_until(alarm.rang), "nothing was logged while the loop was blocked"

    with Watchdog(telemetry.Hub([hear]), every=0.01, stall_after=0.2).watching():
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(refund, name="tools/call")
                await heard.wait()
    (record,) = alarm.records
    assert record.levelno == logging.WARNING
    assert "in block_until" in str(record.stack_info)
    (stalled,) = events
    assert stalled.seconds >= 0.2
    # The function that was called by Trio or by us, not the one in the standard library that it blocks in.
    assert re.fullmatch(r"tools/call: .*refund \(test_watchdog\.py:\d+\)", stalled.culprit)
    assert stalled.culprit in record.getMessage()


async def test_the_lag_of_a_running_loop_is_measured_without_blaming_a_task(alarm: Alarm) -> None:
    lags: list[float] = []
    enough = trio.Event()

    def on_lag(lag: float) -> None:
        lags.append(lag)
        if len(lags) == 5:
            enough.set()

    with Watchdog(telemetry.Hub(), on_lag, every=0.001, stall_after=5).watching():
        with trio.fail_after(30):
            await enough.wait()
    assert all(0 <= lag < 5 for lag in lags)
    assert alarm.records == []


async def test_a_loop_that_waits_for_something_to_do_is_not_blocked() -> None:
    loop = threading.get_ident()

    def look() -> bool:
        began = perf_counter()
        while perf_counter() - began < 10:
            if name_culprit(sys._current_frames()[loop]) is None:
                return True
        return False

    assert await trio.to_thread.run_sync(look)


async def test_after_a_long_stall_the_watchdog_reports_a_stall_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("mcptrio._actors.watchdog.perf_counter", lambda: now)
    watchdog = Watchdog(telemetry.Hub())
    watchdog._asked_at = now
    now += UNREADY_ABOVE / 2
    watchdog._answer()
    assert not watchdog.stalled
    watchdog._asked_at = now
    now += UNREADY_ABOVE + 0.1
    watchdog._answer()
    assert watchdog.stalled
    now += 3
    assert not watchdog.stalled


async def test_a_runtime_has_a_watchdog_only_if_it_is_given_one_and_ends_it(autojump_clock: MockClock) -> None:
    """A stdio server must not pay for a thread; and the clock of a test goes its own way."""
    before = len(watchdogs())
    async with new_runtime().open():
        assert len(watchdogs()) == before
    runtime = new_runtime()
    runtime.watchdog = Watchdog(runtime.hub)
    heard: list[Any] = []
    runtime.listeners.append(heard.append)
    async with runtime.open():
        assert len(watchdogs()) == before + 1
        await trio.sleep(3600)
        runtime.hub.emit(telemetry.LimitHit(name="x"))
    assert len(watchdogs()) == before
    runtime.hub.emit(telemetry.LimitHit(name="afterwards"))
    assert heard == [telemetry.LimitHit(name="x")]


async def test_a_lifespan_may_block_while_no_request_can_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a model or certificates at the start was reported as a blocked event loop."""
    before = len(watchdogs())
    seen: list[int] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        seen.append(len(watchdogs()))
        yield
        seen.append(len(watchdogs()))

    runtime = new_runtime()
    runtime.watchdog = Watchdog(runtime.hub)
    monkeypatch.setattr(type(runtime.app), "lifespan_context", lambda app: lifespan())
    async with runtime.open():
        assert len(watchdogs()) == before + 1
    assert seen == [before, before]


def test_a_watchdog_that_is_stopping_does_not_probe_the_loop() -> None:
    """The loop waits for the watchdog's thread then: a probe would report that wait as a blocked loop."""

    class Ending(threading.Event):
        def clear(self) -> None:
            super().clear()
            watchdog._stop.set()

    watchdog = Watchdog(telemetry.Hub(), every=0.0)
    watchdog._answered = Ending()
    watchdog._watch(None, threading.get_ident())  # type: ignore[arg-type]  # asking it would fail
