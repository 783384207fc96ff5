"""Clocks that jump, and a process that stood still."""

from __future__ import annotations

import time
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from .conftest import Open
from .serving import Trail, make_server

HOUR, DAY = 3600.0, 86400.0


@pytest.mark.parametrize("jump", [HOUR, -HOUR, DAY, -DAY])
async def test_fault_wall_clock_jumps(
    jump: float, open_watched: Open, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F33: no session ends, no call is cut short or kept for ever; only what expires by the calendar does."""
    trail = Trail()
    async with open_watched(make_server(trail, idle_timeout=100, parked_ttl=50)) as watched:
        guest, asker, idler = (
            await watched.guest("stateful"),
            await watched.guest("stateless"),
            await watched.guest("stateful"),
        )
        parked = await watched.call(asker, "ask")
        answer = await watched.begin(guest, "wait", {"seconds": 20.0})
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + jump)
        frames: list[dict[str, Any]] = []
        await guest.read(answer, frames)
        assert guest.text(guest.outcome(frames, 1)) == guest.word
        await guest.echo()
        ((key, _),) = parked["result"]["inputRequests"].items()
        given = {key: {"action": "accept", "content": {"word": asker.word}}}
        state = parked["result"]["requestState"]
        retried = await watched.call(asker, "ask", requestState=state, inputResponses=given)
        if jump > 0:
            assert retried["error"]["code"] == -32602, "by the calendar it has expired"
            watched.blame("a requestState was refused: expired", asker, 2)
        else:
            assert asker.text(retried) == f"{asker.word} {asker.word}"
        await trio.sleep(60)
        assert len(watched.runtime.parking) == 0, "what is parked is let go by the clock that never jumps"
        await trio.sleep(60)
        assert watched.runtime.supervisor.find(idler.session) is None  # type: ignore[attr-defined]


async def test_fault_process_stood_still(open_watched: Open, mock_clock: MockClock) -> None:
    """F34: ten minutes of a stopped process do not count as idle time; a session that is idle later ends as usual."""
    async with open_watched(make_server(idle_timeout=60)) as watched:
        mock_clock.autojump_threshold = 0
        guest = await watched.guest("stateful")
        await trio.sleep(30)
        mock_clock.autojump_threshold = float("inf")
        await wait_all_tasks_blocked()
        mock_clock.jump(600)
        mock_clock.autojump_threshold = 0
        await trio.sleep(2)
        watched.blame("the process did not run for 600 s")
        assert watched.runtime.supervisor.find(guest.session) is not None  # type: ignore[attr-defined]
        await guest.echo()
        await trio.sleep(62)
        assert watched.runtime.supervisor.find(guest.session) is None  # type: ignore[attr-defined]
