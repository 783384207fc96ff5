"""The metrics page: what is counted, that its text can be read, and that no peer can make it grow."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mcptrio import telemetry
from mcptrio.server.workers import label_samples
from mcptrio.telemetry.metrics import GAUGES, Metrics, merge_pages

LINE = re.compile(r'^([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\.)*",?)+)\})? (-?[0-9.e+-]+|\+Inf|NaN)$')
LABEL = re.compile(r'([a-z]+)="((?:[^"\\]|\\.)*)"')


def read(text: str) -> dict[tuple[str, ...], float]:
    """A page as samples, keyed by the name and the labels' values; fails on anything Prometheus would not take."""
    assert text.endswith("\n")
    found: dict[tuple[str, ...], float] = {}
    typed: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            continue
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in typed, f"{name} comes twice"
            typed[name] = kind
            continue
        match = LINE.match(line)
        assert match, line
        name = match[1]
        assert name in typed or re.sub("_(bucket|sum|count)$", "", name) in typed
        key = (name, *(value for _, value in LABEL.findall(match[2] or "")))
        assert key not in found, f"{key} comes twice"
        found[key] = float(match[3])
    return found


def ended(
    method: str = "tools/call", outcome: str = "ok", seconds: float = 0.002, entry: str | None = "add", **more: Any
) -> telemetry.CallEnded:
    return telemetry.CallEnded(
        session="s", call=1, request_id=1, method=method, outcome=outcome, seconds=seconds, entry=entry, **more
    )


def test_calls_are_counted_by_method_name_and_outcome_with_their_seconds() -> None:
    metrics = Metrics()
    for event in (
        ended(),
        ended(seconds=0.2),
        ended(outcome="timeout", seconds=60),
        ended("resources/read", entry="orders://{id}"),
        ended("tools/list", entry=None),
    ):
        metrics(event)
    page = read(metrics.text())
    assert page["mcptrio_calls_ended_total", "tools/call", "add", "ok"] == 2
    assert page["mcptrio_calls_ended_total", "tools/call", "add", "timeout"] == 1
    assert page["mcptrio_calls_ended_total", "resources/read", "orders://{id}", "ok"] == 1
    assert page["mcptrio_calls_ended_total", "tools/list", "ok"] == 1
    assert page["mcptrio_call_seconds_count", "tools/call", "add"] == 3
    assert page["mcptrio_call_seconds_sum", "tools/call", "add"] == pytest.approx(60.202)
    assert page["mcptrio_call_seconds_bucket", "tools/call", "add", "0.001"] == 0
    assert page["mcptrio_call_seconds_bucket", "tools/call", "add", "0.0025"] == 1
    assert page["mcptrio_call_seconds_bucket", "tools/call", "add", "60.0"] == 3
    assert page["mcptrio_call_seconds_bucket", "tools/call", "add", "+Inf"] == 3


def test_waiting_for_a_place_or_for_the_user_is_not_time_of_the_tool() -> None:
    metrics = Metrics()
    metrics(ended(seconds=70, queued=3.0, asking=65.0))
    metrics(ended(seconds=1))
    page = read(metrics.text())
    assert page["mcptrio_call_seconds_sum", "tools/call", "add"] == pytest.approx(3)
    assert page["mcptrio_call_queue_seconds_sum", "tools/call"] == pytest.approx(3)
    assert page["mcptrio_call_queue_seconds_count", "tools/call"] == 1, "of the calls that had to wait"


def test_undeclared_names_share_one_row_and_too_many_declared_ones_too() -> None:
    metrics = Metrics()
    for number in range(1000):
        metrics(ended(name=f"evil{number}", entry=None, outcome="error"))
        metrics(ended("prompts/get", entry=f"declared{number}"))
    page = read(metrics.text())
    assert not [key for key in page if "evil" in str(key)]
    assert page["mcptrio_calls_ended_total", "tools/call", "other", "error"] == 1000
    rows = {key: value for key, value in page.items() if key[:2] == ("mcptrio_calls_ended_total", "prompts/get")}
    assert len(rows) == 257
    assert sum(rows.values()) == 1000


def test_no_value_of_a_label_has_a_space() -> None:
    metrics = Metrics()
    metrics(ended("prompts/get", entry="a prompt"))
    metrics(telemetry.StreamClosed(session="s", cause="write timeout"))
    page = read(metrics.text())
    assert page["mcptrio_streams_closed_total", "write_timeout"] == 1
    assert page["mcptrio_calls_ended_total", "prompts/get", "a_prompt", "ok"] == 1


def test_unknown_methods_share_one_row() -> None:
    metrics = Metrics(["shop/checkout"])
    metrics(ended("shop/checkout"))
    for number in range(1000):
        metrics(ended(f'evil/{number}"\n'))
        metrics(telemetry.AskEnded(session="s", method=f"ask/{number}", outcome="ok", seconds=1))
    page = read(metrics.text())
    assert page["mcptrio_calls_ended_total", "shop/checkout", "ok"] == 1
    assert page["mcptrio_calls_ended_total", "other", "ok"] == 1000
    assert page["mcptrio_asks_ended_total", "other", "ok"] == 1000
    assert not [key for key in page if "evil" in str(key)]


def test_a_label_with_too_many_values_counts_the_rest_as_other() -> None:
    metrics = Metrics()
    for number in range(1000):
        metrics(telemetry.Dropped(kind=f"kind{number}"))
    rows = {key: value for key, value in read(metrics.text()).items() if key[0] == "mcptrio_dropped_total"}
    assert len(rows) <= 65
    assert sum(rows.values()) == 1000
    assert rows["mcptrio_dropped_total", "other"] == 1000 - 64


@pytest.mark.parametrize(
    ("event", "sample"),
    [
        (telemetry.SessionOpened(session="s", transport="http"), ("mcptrio_sessions_created_total", "http")),
        (
            telemetry.SessionClosed(session="s", cause="idle", seconds=1),
            ("mcptrio_sessions_closed_total", "idle"),
        ),
        (telemetry.LimitHit(name="sessions"), ("mcptrio_sessions_refused_total",)),
        (telemetry.LimitHit(name="inbox"), ("mcptrio_limits_hit_total", "inbox")),
        (
            telemetry.AskEnded(session="s", method="elicitation/create", outcome="timeout", seconds=600),
            ("mcptrio_asks_ended_total", "elicitation/create", "timeout"),
        ),
        (telemetry.StreamOpened(session="s", resumed=False), ("mcptrio_streams_open",)),
        (telemetry.StreamOpened(session="s", resumed=True), ("mcptrio_replays_total", "served")),
        (telemetry.ReplayRefused(session="s"), ("mcptrio_replays_total", "refused")),
        (telemetry.StreamClosed(session="s", cause="write timeout"), ("mcptrio_write_timeouts_total",)),
        (telemetry.ConnectionEvent(kind="write_timeout"), ("mcptrio_write_timeouts_total",)),
        (telemetry.ConnectionEvent(kind="refused"), ("mcptrio_connection_events_total", "refused")),
        (telemetry.GuardCaught(layer="session", error=ValueError()), ("mcptrio_guard_catches_total", "session")),
        (telemetry.Zombie(session="s", method="m", request_id=1), ("mcptrio_zombies_total",)),
        (telemetry.LoopStalled(seconds=2), ("mcptrio_loop_stalls_total",)),
        (telemetry.StoreChanged(store="x", problem="disk full"), ("mcptrio_store_changes_total", "degraded")),
        (telemetry.StoreChanged(store="x", problem=None), ("mcptrio_store_changes_total", "recovered")),
    ],
)
def test_each_event_counts_where_the_page_says(event: Any, sample: tuple[str, ...]) -> None:
    metrics = Metrics()
    assert not read(metrics.text()).get(sample)
    metrics(event)
    assert read(metrics.text())[sample] == 1


def test_gauges_are_looked_up_when_the_page_is_asked_for() -> None:
    metrics = Metrics()
    sessions = [1, 2]
    metrics.look_at(sessions_open=lambda: len(sessions))
    assert read(metrics.text())["mcptrio_sessions_open",] == 2
    sessions.clear()
    assert read(metrics.text())["mcptrio_sessions_open",] == 0
    with pytest.raises(KeyError):
        metrics.look_at(nonsense=lambda: 1)


def test_the_pages_of_workers_become_one_page_with_each_family_in_one_group() -> None:
    pages = []
    for slot in range(2):
        metrics = Metrics()
        metrics(ended())
        metrics(telemetry.LeaseLost(worker="w", reason="expired"))
        pages.append(label_samples(metrics.text, slot)())
    both = merge_pages(pages)
    assert read(both) == read(pages[0]) | read(pages[1])
    groups = [line.split()[2] for line in both.splitlines() if line.startswith("# TYPE")]
    assert len(groups) == len(set(groups))
    at = both.index("# TYPE mcptrio_leases_lost_total")
    assert both[at:].splitlines()[1:3] == [
        f'mcptrio_leases_lost_total{{reason="expired",worker="{slot}"}} 1' for slot in range(2)
    ]


def test_the_start_of_a_call_is_not_even_built_for_the_metrics() -> None:
    assert not telemetry.Hub([Metrics()]).wants(telemetry.CallStarted)


def test_every_metric_is_in_the_reference_and_the_other_way_round() -> None:
    reference = (Path(__file__).parents[2] / "docs/reference/metrics.md").read_text()
    documented = set(re.findall(r"`(mcptrio_[a-z_]+)", reference))
    metrics = Metrics()
    metrics.measure_store()
    served = {line.split()[2] for line in metrics.text().splitlines() if line.startswith("# TYPE")}
    assert documented == served | set(GAUGES)
