"""Random orders of requests, progress and answers: each request times out at its own deadline, and none is lost."""

from __future__ import annotations

from contextlib import AbstractContextManager
from math import inf
from typing import Any

import trio
from hypothesis import example, given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio.client.timeouts import TimedReply, Timeouts
from mcptrio.errors import RequestTimeout

# Things happen at whole seconds and limits end between them: never both at the same moment.
LIMITS = st.sampled_from([0.25, 3.25, 7.25, 20.25, inf])
NUMBERS = st.integers(0, 2)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), LIMITS, LIMITS),
        st.tuples(st.sampled_from(["cancel", "answer", "progress"]), NUMBERS),
        st.tuples(st.sampled_from(["question", "said", "nothing"])),
    ),
    max_size=40,
)
END = 120
Events = list[tuple[Any, ...]]


def expected(events: Events) -> dict[int, float]:
    """Compute the expected outcome the slow way: look at everything every quarter of a second."""
    waiting: dict[int, list[float]] = {}  # number -> idle limit, what is left of it, what is left in total
    still: set[int] = set()
    late: dict[int, float] = {}
    begun = questions = 0
    for quarter in range(END * 4):
        second, rest = divmod(quarter, 4)
        match events[second] if rest == 0 and second < len(events) else ("nothing",):
            case ("begin", idle, total):
                waiting[begun] = [idle, idle, total]
                begun += 1
            case ("cancel" | "answer", number):
                waiting.pop(number, None)
            case ("progress", number) if number in waiting:
                waiting[number][1] = waiting[number][0]
            case ("question",):
                questions += 1
                still |= waiting.keys()
            case ("said",) if questions:
                questions -= 1
                still = still if questions else set()
        for number in [number for number in waiting if number not in still]:
            wait = waiting[number]
            wait[1:] = wait[1] - 0.25, wait[2] - 0.25
            if min(wait) <= 0:
                late[number] = (quarter + 1) / 4
                del waiting[number]
    return late


async def observed(events: Events) -> dict[int, float]:
    timeouts, late = Timeouts(), dict[int, float]()
    waits: list[tuple[TimedReply, trio.CancelScope]] = []
    questions: list[AbstractContextManager[None]] = []

    async def ask(number: int, wait: TimedReply, scope: trio.CancelScope) -> None:
        timeouts.begin(wait)
        with scope:
            try:
                await wait.wait()
            except RequestTimeout:
                late[number] = trio.current_time()
            finally:
                timeouts.end(wait)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(timeouts.keep_time)
        for second, event in enumerate(events):
            await trio.sleep_until(second)
            match event:
                case ("begin", idle, total):
                    waits.append((TimedReply(method="x", idle=idle, total=total, left=total), trio.CancelScope()))
                    nursery.start_soon(ask, len(waits) - 1, *waits[-1])
                case ("cancel", number) if number < len(waits):
                    waits[number][1].cancel()
                case ("answer", number) if number < len(waits):
                    waits[number][0].settle({})
                case ("progress", number) if number < len(waits):
                    waits[number][0].progressed({})
                case ("question",):
                    questions.append(timeouts.answering())
                    questions[-1].__enter__()
                case ("said",) if questions:
                    questions.pop(0).__exit__(None, None, None)
            await wait_all_tasks_blocked()
        await trio.sleep_until(END)
        for _, scope in waits:
            scope.cancel()
        timeouts.stop()
    assert timeouts._waiting == timeouts._still == set()
    return late


@given(EVENTS)
@example([("begin", 3.25, inf), ("question",), ("progress", 0), ("nothing",), ("said",)])
@example(
    [("begin", 7.25, 20.25), ("question",), ("begin", 20.25, 3.25), ("question",), ("said",), ("cancel", 0), ("said",)]
)
def test_every_request_is_late_at_its_own_moment_and_leaves_nothing_behind(events: Events) -> None:
    assert trio.run(observed, events, clock=MockClock(autojump_threshold=0)) == expected(events)
