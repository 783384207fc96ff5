"""The metrics listener: counts events and writes them as Prometheus text (exposition format 0.0.4).

Every label has a bounded set of values: unknown methods count as "other", and so do names that the server does not
declare, and new values of a family that has reached its limit. No text chosen by a peer creates a series.

Each call costs one event. The number of running calls and the other gauges are read when the page is requested.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, Final

from mcptrio import telemetry

METHODS: Final = (
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "logging/setLevel",
    "subscriptions/listen",
    "sampling/createMessage",
    "elicitation/create",
    "roots/list",
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/progress",
    "notifications/roots/list_changed",
)
NAMED: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Methods whose calls are counted by the declared tool, prompt, resource or template."""
OTHER: Final = "other"
_VALUES_MAX: Final = 64
_NAMES_MAX: Final = 256
"""Names of one method that get rows of their own; a server may declare new ones all the time."""
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_LAGS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

GAUGES: Final[Mapping[str, str]] = {
    "mcptrio_sessions_open": "Sessions that are open.",
    "mcptrio_calls_in_flight": "Requests of peers that are not answered yet.",
    "mcptrio_calls_parked": "Handlers that wait for a request to be repeated with answers.",
    "mcptrio_inbox_messages": "Messages that wait in the inboxes of sessions.",
    "mcptrio_handlers_left_behind": "Handlers that were cancelled and still run.",
    "mcptrio_connections_open": "Connections that are open.",
    "mcptrio_store_degraded": "1 while the store cannot write.",
    "mcptrio_ready": "1 while the server accepts work.",
    "mcptrio_writes_fenced_total": "Writes that the store refused, because the session has another home.",
    "mcptrio_stream_mirrors": "Streams of other workers that are followed here.",
    "mcptrio_workers": "Workers of the cluster that this worker knows, itself included.",
    "mcptrio_lease_remaining_seconds": "Time until the lease of this worker ends unless it is renewed.",
    "mcptrio_worker_restarts_total": "Workers that the parent process restarted since it started (--workers).",
}
"""Gauges, which are read when the page is requested; `Metrics.look_at` sets their sources."""


class Family:
    """A counter with one label or none."""

    __slots__ = ("_values", "help", "label", "name")

    def __init__(self, name: str, help: str, label: str | None = None) -> None:
        self.name = name
        self.help = help
        self.label = label
        self._values: dict[str, int] = {} if label is not None else {"": 0}

    def add(self, value: str = "") -> None:
        values = self._values
        if value in values:
            values[value] += 1
        elif len(values) < _VALUES_MAX or value == OTHER:
            values[value] = 1
        else:
            self.add(OTHER)

    @property
    def total(self) -> int:
        return sum(self._values.values())

    def lines(self) -> Iterator[str]:
        yield from _head(self.name, self.help, "counter")
        for value, count in self._values.items():
            labels = "" if self.label is None else f'{{{self.label}="{_label(value)}"}}'
            yield f"{self.name}{labels} {count}"


class Histogram:
    """A histogram with fixed bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str = "") -> Iterator[str]:
        inner = f"{labels}," if labels else ""
        for bound, count in zip((*map(str, self.bounds), "+Inf"), accumulate(self.counts), strict=True):
            yield f'{name}_bucket{{{inner}le="{bound}"}} {count}'
        outer = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{outer} {self.total:.9g}"
        yield f"{name}_count{outer} {sum(self.counts)}"


class Calls:
    """The calls of one method, or of one tool: their outcomes and durations."""

    __slots__ = ("outcomes", "seconds")

    def __init__(self) -> None:
        self.outcomes: defaultdict[str, int] = defaultdict(int)
        self.seconds = Histogram(_SECONDS)


class Metrics:
    """The metrics listener. `text()` returns the page; `methods` adds methods that get a row of their own."""

    def __init__(self, methods: Iterable[str] = ()) -> None:
        self._known = frozenset(METHODS) | frozenset(methods)
        self._calls: dict[tuple[str, str | None], Calls] = {}
        """By method and declared name; the name is None for methods without one."""
        self._names: defaultdict[str, int] = defaultdict(int)
        self._asks: dict[tuple[str, str | None], Calls] = {}
        self._queues: dict[str, Histogram] = {}
        self._gauges: dict[str, Callable[[], float]] = {}
        self.loop_lag = Histogram(_LAGS)
        self.store_roundtrip: Histogram | None = None
        """Set where a shared store is used."""
        self.sessions_created = Family("mcptrio_sessions_created_total", "Sessions opened.", "transport")
        self.sessions_closed = Family("mcptrio_sessions_closed_total", "Sessions closed.", "cause")
        self.sessions_refused = Family("mcptrio_sessions_refused_total", "Sessions refused at a limit.")
        self.passivated = Family("mcptrio_sessions_passivated_total", "Sessions stored and removed from memory.")
        self.takeovers = Family("mcptrio_session_takeovers_total", "Stored sessions that were continued.", "reason")
        self.forwarded = Family("mcptrio_requests_forwarded_total", "Requests for another worker.", "outcome")
        self.workers_died = Family("mcptrio_workers_died_total", "Other workers that left the cluster.")
        self.leases_lost = Family("mcptrio_leases_lost_total", "Times the lease of this worker ended.", "reason")
        self.limits = Family("mcptrio_limits_hit_total", "Limits that were reached.", "name")
        self.dropped = Family("mcptrio_dropped_total", "Messages that were dropped on purpose.", "kind")
        self.streams_opened = Family("mcptrio_streams_opened_total", "Event streams opened.")
        self.streams_closed = Family("mcptrio_streams_closed_total", "Event streams closed.", "cause")
        self.replays = Family("mcptrio_replays_total", "Resumptions of a stream, served or refused.", "outcome")
        self.write_timeouts = Family("mcptrio_write_timeouts_total", "Clients disconnected because they did not read.")
        self.guards = Family("mcptrio_guard_catches_total", "Unexpected exceptions that a guard caught.", "layer")
        self.zombies = Family("mcptrio_zombies_total", "Handlers that ignored their cancellation.")
        self.stalls = Family("mcptrio_loop_stalls_total", "Times the event loop was blocked.")
        self.store_changes = Family("mcptrio_store_changes_total", "Times the store degraded or recovered.", "state")
        self.connections = Family("mcptrio_connection_events_total", "Events of connections.", "kind")
        self._families = [value for value in vars(self).values() if type(value) is Family]
        self.hears: dict[type[telemetry.Event], Callable[[Any], None]] = {
            telemetry.CallEnded: self._call_ended,
            telemetry.AskEnded: self._ask_ended,
            telemetry.SessionOpened: lambda event: self.sessions_created.add(event.transport),
            telemetry.SessionClosed: lambda event: self.sessions_closed.add(event.cause),
            telemetry.SessionPassivated: lambda event: self.passivated.add(),
            telemetry.SessionTakenOver: lambda event: self.takeovers.add(event.reason),
            telemetry.RequestForwarded: lambda event: self.forwarded.add(event.outcome),
            telemetry.WorkerDied: lambda event: self.workers_died.add(),
            telemetry.LeaseLost: lambda event: self.leases_lost.add(event.reason),
            telemetry.StreamOpened: self._stream_opened,
            telemetry.StreamClosed: self._stream_closed,
            telemetry.ReplayRefused: lambda event: self.replays.add("refused"),
            telemetry.LimitHit: self._limit_hit,
            telemetry.Dropped: lambda event: self.dropped.add(event.kind),
            telemetry.GuardCaught: lambda event: self.guards.add(event.layer),
            telemetry.Zombie: lambda event: self.zombies.add(),
            telemetry.LoopStalled: lambda event: self.stalls.add(),
            telemetry.StoreChanged: lambda event: self.store_changes.add("degraded" if event.problem else "recovered"),
            telemetry.ConnectionEvent: self._connection,
        }

    def __call__(self, event: telemetry.Event) -> None:
        count = self.hears.get(type(event))
        if count is not None:
            count(event)

    def look_at(self, **gauges: Callable[[], float]) -> None:
        """Set the sources of the gauges: `look_at(sessions_open=lambda: 3)`. The names are those of `GAUGES`."""
        for name, read in gauges.items():
            if f"mcptrio_{name}" not in GAUGES:
                raise KeyError(name)
            self._gauges[f"mcptrio_{name}"] = read

    # -- events

    def _call_ended(self, event: telemetry.CallEnded) -> None:
        calls = self._calls.get((event.method, event.entry)) or self._calls_of(event.method, event.entry)
        calls.outcomes[event.outcome] += 1
        calls.seconds.add(event.seconds - event.queued - event.asking)
        if event.queued:
            method = event.method if event.method in self._known else OTHER
            if method not in self._queues:
                self._queues[method] = Histogram(_SECONDS)
            self._queues[method].add(event.queued)

    def _calls_of(self, method: str, name: str | None) -> Calls:
        """Return the row of a call that has no row of its own yet."""
        if method not in self._known:
            method, name = OTHER, None
        elif method not in NAMED:
            name = None
        elif name is None or self._names[method] >= _NAMES_MAX:
            name = OTHER
        calls = self._calls.get((method, name))
        if calls is None:
            calls = self._calls[method, name] = Calls()
            self._names[method] += 1
        return calls

    def _ask_ended(self, event: telemetry.AskEnded) -> None:
        method = event.method if event.method in self._known else OTHER
        calls = self._asks.setdefault((method, None), Calls())
        calls.outcomes[event.outcome] += 1
        calls.seconds.add(event.seconds)

    def _stream_opened(self, event: telemetry.StreamOpened) -> None:
        self.streams_opened.add()
        if event.resumed:
            self.replays.add("served")

    def _stream_closed(self, event: telemetry.StreamClosed) -> None:
        self.streams_closed.add(event.cause)
        if event.cause in ("write timeout", "not read"):
            self.write_timeouts.add()

    def _limit_hit(self, event: telemetry.LimitHit) -> None:
        self.limits.add(event.name)
        if event.name == "sessions":
            self.sessions_refused.add()

    def _connection(self, event: telemetry.ConnectionEvent) -> None:
        self.connections.add(event.kind)
        if event.kind in ("write_timeout", "not_read"):
            self.write_timeouts.add()

    # -- the page

    def text(self) -> str:
        """Return all metrics in the Prometheus text format."""
        return "\n".join((*self._gauge_lines(), *self._call_lines(), *self._rest(), ""))

    def _gauge_lines(self) -> Iterator[str]:
        for name, read in self._gauges.items():
            yield from _head(name, GAUGES[name], "counter" if name.endswith("_total") else "gauge")
            yield f"{name} {read():g}"
        yield from _head("mcptrio_streams_open", "Event streams that are open.", "gauge")
        yield f"mcptrio_streams_open {self.streams_opened.total - self.streams_closed.total}"

    def _call_lines(self) -> Iterator[str]:
        took = "How long calls took, without waiting for a place or for the peer."
        yield from _both("mcptrio_calls", "Calls that ended.", took, self._calls)
        name = "mcptrio_call_queue_seconds"
        yield from _head(name, "How long calls waited for a place, of those that had to.", "histogram")
        for method, seconds in self._queues.items():
            yield from seconds.lines(name, f'method="{_label(method)}"')
        yield from _both("mcptrio_asks", "Questions to peers that ended.", "How long peers took.", self._asks)

    def _rest(self) -> Iterator[str]:
        for family in self._families:
            yield from family.lines()
        yield from _head("mcptrio_loop_lag_seconds", "How late the event loop turned.", "histogram")
        yield from self.loop_lag.lines("mcptrio_loop_lag_seconds")
        if self.store_roundtrip is not None:
            yield from _head("mcptrio_store_roundtrip_seconds", "How long the shared store took to reply.", "histogram")
            yield from self.store_roundtrip.lines("mcptrio_store_roundtrip_seconds")

    def measure_store(self) -> Callable[[float], None]:
        """Return the function that takes the seconds of each round trip to a shared store."""
        self.store_roundtrip = Histogram(_LAGS)
        return self.store_roundtrip.add


def merge_pages(pages: Iterable[str]) -> str:
    """Join pages of several workers, whose samples differ in a label: the format has each family in one group."""
    families: dict[str, tuple[list[str], list[str]]] = {}
    for page in pages:
        head, samples = list[str](), list[str]()
        for line in page.splitlines():
            if line.startswith("# HELP "):
                head, samples = families.setdefault(line.split(" ", 3)[2], ([], []))
            if not line.startswith("#"):
                samples.append(line)
            elif line not in head:
                head.append(line)
    return "".join(f"{line}\n" for parts in families.values() for part in parts for line in part)


def _both(prefix: str, ended: str, seconds: str, rows: Mapping[tuple[str, str | None], Calls]) -> Iterator[str]:
    labels = {
        key: f'method="{_label(key[0])}"' + ("" if key[1] is None else f',name="{_label(key[1])}"')
        for key in sorted(rows, key=lambda key: (key[0], key[1] or ""))
    }
    name = f"{prefix}_ended_total"
    yield from _head(name, ended, "counter")
    for key, label in labels.items():
        for outcome, count in rows[key].outcomes.items():
            yield f'{name}{{{label},outcome="{_label(outcome)}"}} {count}'
    name = f"{prefix.removesuffix('s')}_seconds"
    yield from _head(name, seconds, "histogram")
    for key, label in labels.items():
        yield from rows[key].seconds.lines(name, label)


def _head(name: str, help: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"


def _label(value: str) -> str:
    # No spaces: values are typed into queries, and some tools split lines at them.
    return value.replace(" ", "_").replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
