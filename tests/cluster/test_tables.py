"""The state tables of a worker's lease and of the routing of a request: every row, and their general promises."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio.cluster import ClusterConfig
from mcptrio.cluster.lease import LEASE_TABLE, LeaseAction, LeaseEvent, LeaseState, WorkerLease
from mcptrio.cluster.placement import (
    MAX_DENIALS,
    ROUTE_TABLE,
    UNREACHABLE_FOR,
    Outcome,
    RoutePlace,
    RouteStep,
    SessionRoute,
)

JOINING, LIVE, EXPIRED, DRAINING = LeaseState
RENEWED, RAN_OUT, DEAD, DRAIN = LeaseEvent
NOTHING, CHECK, NEW_ID = LeaseAction


@pytest.mark.parametrize(
    ("state", "event", "then", "action"),
    [
        (JOINING, RENEWED, LIVE, NOTHING),
        (JOINING, RAN_OUT, JOINING, NOTHING),
        (JOINING, DEAD, JOINING, NEW_ID),
        (JOINING, DRAIN, JOINING, NOTHING),
        (LIVE, RENEWED, LIVE, NOTHING),
        (LIVE, RAN_OUT, EXPIRED, NOTHING),
        (LIVE, DEAD, JOINING, NEW_ID),
        (LIVE, DRAIN, DRAINING, NOTHING),
        (EXPIRED, RENEWED, LIVE, CHECK),
        (EXPIRED, RAN_OUT, EXPIRED, NOTHING),
        (EXPIRED, DEAD, JOINING, NEW_ID),
        (EXPIRED, DRAIN, EXPIRED, NOTHING),
        (DRAINING, RENEWED, DRAINING, NOTHING),
        (DRAINING, RAN_OUT, EXPIRED, NOTHING),
        (DRAINING, DEAD, JOINING, NEW_ID),
        (DRAINING, DRAIN, DRAINING, NOTHING),
    ],
)
def test_every_row_of_the_lease_table(
    state: LeaseState, event: LeaseEvent, then: LeaseState, action: LeaseAction
) -> None:
    lease, found = WorkerLease(2.0, state).step(event)
    assert (lease.state, found) == (then, action)
    assert ((state, event) in LEASE_TABLE) == ((then, action) != (state, NOTHING) or event is RENEWED)


def test_a_lease_counts_from_when_the_renewal_was_sent() -> None:
    lease, _ = WorkerLease(2.0).renewed(10.0)
    assert lease.until == 12.0
    assert lease.serves(11.9)
    assert not lease.serves(12.0)
    assert lease.at(11.9).state is LIVE
    assert lease.at(12.0).state is EXPIRED
    later, _ = lease.renewed(9.0)  # the reply to an earlier renewal
    assert later.until == 12.0


@given(st.lists(st.sampled_from(LeaseEvent)))
def test_a_worker_that_drains_never_claims_again(events: list[LeaseEvent]) -> None:
    """R12: whatever happens to its lease."""
    lease = WorkerLease(2.0)
    drained = False
    for event in events:
        lease, _ = lease.step(event)
        drained = drained or event is DRAIN
        assert not (drained and lease.may_claim)
        assert not lease.may_claim or lease.state is LIVE


@pytest.mark.parametrize(
    ("place", "outcome", "then", "step"),
    [
        (RoutePlace.CLAIMING, Outcome.NONE, RoutePlace.DONE, RouteStep.NOT_FOUND),
        (RoutePlace.CLAIMING, Outcome.MINE, RoutePlace.DONE, RouteStep.SERVE),
        (RoutePlace.CLAIMING, Outcome.AT, RoutePlace.REMOTE, RouteStep.FORWARD),
        (RoutePlace.REMOTE, Outcome.ANSWERED, RoutePlace.DONE, RouteStep.REPLY),
        (RoutePlace.REMOTE, Outcome.NOT_HOME, RoutePlace.CLAIMING, RouteStep.CLAIM),
        (RoutePlace.REMOTE, Outcome.UNREACHABLE, RoutePlace.CLAIMING, RouteStep.PAUSE),
        (RoutePlace.REMOTE, Outcome.BROKEN, RoutePlace.DONE, RouteStep.MAY_HAVE_RUN),
    ],
)
def test_every_row_of_the_routing_table(place: RoutePlace, outcome: Outcome, then: RoutePlace, step: RouteStep) -> None:
    route, found = SessionRoute(place).step(outcome)
    assert (route.place, found) == (then, step)


def test_any_other_step_of_the_routing_is_an_error() -> None:
    assert len(ROUTE_TABLE) == 7
    for pair in set(product(RoutePlace, Outcome)) - set(ROUTE_TABLE):
        with pytest.raises(KeyError):
            SessionRoute(pair[0]).step(pair[1])


def test_a_session_that_is_nowhere_is_refused_after_three_denials() -> None:
    route, steps = SessionRoute(), []
    for _ in range(MAX_DENIALS + 1):
        route, _ = route.step(Outcome.AT)
        route, step = route.step(Outcome.NOT_HOME)
        steps.append(step)
    assert steps == [RouteStep.CLAIM] * MAX_DENIALS + [RouteStep.UNAVAILABLE]


@pytest.mark.parametrize(
    ("later", "lease", "step"),
    [
        (UNREACHABLE_FOR - 0.01, 200, RouteStep.PAUSE),
        (UNREACHABLE_FOR, 200, RouteStep.UNAVAILABLE),  # it lives, and cannot be reached
        (UNREACHABLE_FOR + 5, 100, RouteStep.PAUSE),  # its lease will end
    ],
)
def test_an_unreachable_worker(later: float, lease: int, step: RouteStep) -> None:
    route, _ = SessionRoute(RoutePlace.REMOTE).step(Outcome.UNREACHABLE, 10.0, 100)
    route, _ = route.step(Outcome.AT)
    route, found = route.step(Outcome.UNREACHABLE, 10.0 + later, lease)
    assert found is step


def test_the_pauses_grow_to_a_bound() -> None:
    route, pauses = SessionRoute(), []
    for _ in range(6):
        route, _ = route.step(Outcome.AT)
        route, _ = route.step(Outcome.UNREACHABLE)
        pauses.append(route.pause)
    assert pauses == [0.02, 0.04, 0.08, 0.16, 0.2, 0.2]


@pytest.mark.parametrize(
    "wrong",
    [
        {"lease": 0.0},
        {"lease": 10_000},
        {"socket_directory": "relative"},
        {"socket_directory": "/" + "x" * 100},
        {"forward_address": "orders"},
        {"forward_address": "10.0.0.1:7000"},  # without TLS
        {"forward_address": "localhost:70000"},
        {"forward_ca": "ca.pem"},
        {"forward_ca": "ca.pem", "forward_cert": "cert.pem", "forward_key": "key.pem"},
        {"on_store_loss": "panic"},
        {"slot": ""},
        {"slot": "a b"},
    ],
)
def test_a_wrong_setting_is_refused_with_its_name(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"ClusterConfig.{next(iter(wrong))}"):
        ClusterConfig(**wrong)  # type: ignore[arg-type]
