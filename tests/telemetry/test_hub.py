"""The hub: which listener gets which events, and that listeners do not disturb each other."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import Any

import pytest

from mcptrio.telemetry import Dropped, Event, Hub, LimitHit


class Picky:
    """Hears one class only."""

    hears = frozenset({LimitHit})

    def __init__(self) -> None:
        self.heard: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.heard.append(event)


def test_a_hub_without_listeners_is_false_and_wants_nothing() -> None:
    hub = Hub()
    assert not hub
    assert not hub.wants(LimitHit)
    hub.emit(LimitHit(name="x"))


def test_a_listener_gets_every_event_or_the_classes_that_it_names() -> None:
    everything: list[Event] = []
    picky = Picky()
    hub = Hub([picky, everything.append])
    events = [LimitHit(name="a"), Dropped(kind="b"), LimitHit(name="c")]
    for event in events:
        hub.emit(event)
    assert everything == events
    assert picky.heard == [events[0], events[2]]


def test_events_without_a_listener_are_not_wanted() -> None:
    """Otherwise every call would pay for an event that is thrown away."""
    hub = Hub([Picky()])
    assert hub.wants(LimitHit)
    assert not hub.wants(Dropped)
    hub.add(print)
    assert hub.wants(Dropped)
    hub.remove(print)
    assert not hub.wants(Dropped)


def test_a_bound_method_can_be_removed_again() -> None:
    heard: list[Any] = []
    hub = Hub()
    hub.add(heard.append)
    hub.remove(heard.append)
    assert not hub


def test_a_listener_that_fails_is_logged_and_the_others_get_the_event(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Event] = []

    def fail(event: Event) -> None:
        raise RuntimeError("defect")

    hub = Hub([fail, heard.append])
    with caplog.at_level(logging.ERROR, "mcptrio"):
        hub.emit(LimitHit(name="x"))
    assert heard == [LimitHit(name="x")]
    assert "listener failed on LimitHit" in caplog.text


def test_importing_the_events_imports_no_listener() -> None:
    code = "import sys, mcptrio.telemetry; sys.exit(any(name.startswith('mcptrio.telemetry.') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
