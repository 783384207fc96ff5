"""Metrics of a server over HTTP: the metrics page, and the lag of the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mcptrio._actors.exchange import Exchange
from mcptrio._actors.runtime import Runtime
from mcptrio._actors.session import Session
from mcptrio._actors.watchdog import Watchdog
from mcptrio.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from mcptrio.cluster.cluster import WorkerCluster
    from mcptrio.stores.redis import RedisStore


def measure(runtime: Runtime, metrics: Metrics) -> Runtime:
    """Connect `metrics` and a watchdog to a runtime that is not open yet."""
    runtime.listeners.append(metrics)
    runtime.watchdog = Watchdog(runtime.hub, metrics.loop_lag.add)
    supervisor = runtime.supervisor

    def total(of: Callable[[Session | Exchange], int]) -> Callable[[], int]:
        return lambda: sum(of(session) for session in supervisor)

    zombies = total(lambda session: session.handlers.zombies)
    metrics.look_at(
        sessions_open=lambda: len(supervisor.sessions),
        calls_in_flight=total(lambda session: session.peer.calls),
        calls_parked=total(lambda session: session.peer.parked),
        inbox_messages=lambda: sum(session.inbox.backlog for session in supervisor.sessions.values()),
        handlers_left_behind=lambda: zombies() + runtime.threads.zombies,
        store_degraded=lambda: runtime.store.degraded is not None,
        ready=lambda: runtime.ready and not runtime.stalled,
    )
    return runtime


def measure_cluster(metrics: Metrics, cluster: WorkerCluster, store: RedisStore) -> None:
    """Connect `metrics` to a cluster that a server has joined, and to its store."""
    metrics.look_at(
        writes_fenced_total=lambda: store.sessions.fenced,
        stream_mirrors=lambda: len(store.mirrors),
        workers=lambda: len(cluster.membership.workers),
        lease_remaining_seconds=lambda: cluster.membership.lease_left,
    )
    store.connection.on_roundtrip = metrics.measure_store()
