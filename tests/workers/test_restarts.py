"""When a worker that died is started again, as a table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio._workers.restarts import (
    EXIT_NOT_STARTED,
    EXIT_TOO_MANY_DEATHS,
    GiveUp,
    Restart,
    RestartPolicy,
    delay_before,
)

# (slot, time, was it ready, do others serve) of each death
Deaths = list[tuple[int, float, bool, bool]]


def outcomes(policy: RestartPolicy, deaths: Deaths) -> list[float | int]:
    """The delay after each death; the exit code where it gives up."""
    found: list[float | int] = []
    for slot, now, was_ready, others_ready in deaths:
        policy, then = policy.died(slot, now, was_ready=was_ready, others_ready=others_ready)
        found.append(then.delay if isinstance(then, Restart) else then.code)
    return found


SERVED = RestartPolicy(2).ready()


@pytest.mark.parametrize(
    ("policy", "deaths", "expected"),
    [
        pytest.param(SERVED, [(0, 0, True, True)], [0.0], id="the first death costs no time"),
        pytest.param(
            SERVED,
            [(0, 0, True, True), (0, 1, True, True), (0, 2, True, True), (0, 3, True, True)],
            [0.0, 0.0, 0.2, 0.4],
            id="a slot that keeps dying is delayed",
        ),
        pytest.param(
            SERVED,
            [(0, 0, True, True), (1, 0, True, True), (0, 1, True, True), (1, 1, True, True)],
            [0.0, 0.0, 0.0, 0.0],
            id="each slot has its own delay",
        ),
        pytest.param(
            SERVED,
            [(0, float(at), True, True) for at in range(5)],
            [0.0, 0.0, 0.2, 0.4, EXIT_TOO_MANY_DEATHS],
            id="workers + 2 deaths in 30 s are tolerated, one more is not",
        ),
        pytest.param(
            SERVED,
            [(0, at * 31.0, True, True) for at in range(8)],
            [0.0] * 8,
            id="deaths that lie further apart are forgotten",
        ),
        pytest.param(
            SERVED,
            [(0, float(at), False, True) for at in range(9)],
            [0.0, 0.0, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0],
            id="a worker that cannot start while others serve is only delayed",
        ),
        pytest.param(
            SERVED,
            [(0, float(at), False, False) for at in range(5)],
            [0.0, 0.0, 0.2, 0.4, EXIT_TOO_MANY_DEATHS],
            id="where no other serves it counts",
        ),
        pytest.param(
            RestartPolicy(4),
            [(0, 0, False, False), (0, 1, False, False), (0, 2, False, False)],
            [0.0, 0.0, EXIT_NOT_STARTED],
            id="three deaths in a row before any was ready end the start",
        ),
    ],
)
def test_each_death_has_its_consequence(policy: RestartPolicy, deaths: Deaths, expected: list[float | int]) -> None:
    assert outcomes(policy, deaths) == pytest.approx(expected)


def test_a_worker_that_was_ready_ends_the_start() -> None:
    policy, _ = RestartPolicy(2).died(0, 0.0, was_ready=False, others_ready=False)
    policy, _ = policy.died(0, 1.0, was_ready=False, others_ready=False)
    policy, then = policy.ready().died(0, 2.0, was_ready=False, others_ready=True)
    assert then == Restart(0.2)


@given(st.integers(1, 16), st.lists(st.tuples(st.integers(0, 15), st.floats(0, 10), st.booleans()), max_size=60))
def test_a_cluster_that_gives_up_had_more_deaths_than_it_tolerates(
    workers: int, deaths: list[tuple[int, float, bool]]
) -> None:
    policy, now = RestartPolicy(workers).ready(), 0.0
    for count, (slot, pause, others) in enumerate(deaths, 1):
        now += pause
        policy, then = policy.died(slot, now, was_ready=True, others_ready=others)
        if isinstance(then, GiveUp):
            assert count > workers + 2
            assert then.code == EXIT_TOO_MANY_DEATHS
            return
        assert 0 <= then.delay <= 5


def test_no_delay_is_longer_than_five_seconds() -> None:
    assert [delay_before(restart) for restart in (1, 2, 3, 4, 50, 5000)] == [0, 0, 0.2, 0.4, 5, 5]
