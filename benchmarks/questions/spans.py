"""Measure the cost that OpenTelemetry spans add to a tool call over HTTP.

    python benchmarks/questions/spans.py [--rounds 21] [--engine direct]

Servers run at the same time: one without the listener `OpenTelemetry`, one with it, the SDK and an exporter that drops
the spans, one with the metrics of the SDK too, and one whose callers have decided not to sample. "SDK alone" only
starts and ends a span with the same attributes and a given parent: what any instrumentation costs at least.

Rounds alternate between the servers, so that the load of the machine affects all alike. Every call carries a
`traceparent`. Reported are the medians of the CPU time of the server for one call, exporter thread included, and of the
ratios of the rounds.
It compares mcptrio with itself, so it is no row of the tables.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import messages
from contenders import ENGINES, SERVERS
from load import Connection, free_port, open_session, send_repeatedly, wait_for

CONNECTIONS = 4
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"
KINDS = ("plain", "SDK alone", "spans", "spans and metrics", "unsampled")
ATTRIBUTES = {
    "mcp.method.name": "tools/call",
    "mcp.protocol.version": "2025-11-25",
    "gen_ai.tool.name": "add",
    "gen_ai.operation.name": "execute_tool",
    "network.transport": "tcp",
    "network.protocol.name": "http",
    "mcp.session.id": "12345678",
    "jsonrpc.request.id": "1",
}


def serve(port: int, engine: str, kind: str) -> None:
    """Run the benchmark's server in this process."""
    sys.path.insert(0, str(SERVERS))
    import logging

    from mcptrio_server import server

    logging.basicConfig(level="ERROR")
    gc.freeze()  # as `mcptrio run` does
    if kind != "plain":
        from opentelemetry import trace
        from opentelemetry.metrics import NoOpMeterProvider
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

        from mcptrio import telemetry
        from mcptrio.telemetry.otel import OpenTelemetry

        class Drop(SpanExporter):
            def export(self, spans: object) -> SpanExportResult:
                return SpanExportResult.SUCCESS

        tracers = TracerProvider()
        tracers.add_span_processor(BatchSpanProcessor(Drop()))
        if kind == "SDK alone":
            tracer = tracers.get_tracer("bench")
            remote = trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(1))
            parent = trace.set_span_in_context(trace.NonRecordingSpan(remote))

            class MakeSpan:
                hears = frozenset({telemetry.CallEnded})

                def __call__(self, event: telemetry.Event) -> None:
                    tracer.start_span("tools/call add", parent, trace.SpanKind.SERVER, ATTRIBUTES).end()

            server.on_event(MakeSpan())
            server.run("http", port=port, engine=engine)
            return
        measured = kind == "spans and metrics"
        meters = MeterProvider(metric_readers=[InMemoryMetricReader()]) if measured else NoOpMeterProvider()
        server.on_event(OpenTelemetry(tracer_provider=tracers, meter_provider=meters))
    server.run("http", port=port, engine=engine)


class Measured:
    """A server process with open sessions."""

    def __init__(self, engine: str, kind: str) -> None:
        self.port = free_port()
        command = [sys.executable, __file__, "--serve", kind, "--engine", engine, "--port", str(self.port)]
        self.process = subprocess.Popen(command)
        wait_for(self.port, self.process)
        self.kind = kind
        meta = {"traceparent": PARENT + ("0" if kind == "unsampled" else "1")}
        body = messages.frame("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": meta}, 1)
        self.connections: list[Connection] = []
        self.requests: list[bytes] = []
        for _ in range(CONNECTIONS):
            connection, session = open_session(self.port)
            self.connections.append(connection)
            self.requests.append(messages.post(self.port, body, session))
        self.costs: list[float] = []

    def run(self, seconds: float) -> float:
        """Return the CPU microseconds for one call."""
        before = self._cpu()
        count, _ = send_repeatedly(self.connections, self.requests, seconds, b'"3"')
        return (self._cpu() - before) / count * 1e6

    def _cpu(self) -> float:
        return time.clock_gettime((~self.process.pid << 3) | 2)


def compare(engine: str, rounds: int, seconds: float) -> None:
    servers = [Measured(engine, kind) for kind in KINDS]
    try:
        for server in servers:
            server.run(1.0)  # warm up
        for number in range(rounds):
            for server in servers if number % 2 else reversed(servers):
                server.costs.append(server.run(seconds))
    finally:
        for server in servers:
            server.process.terminate()
            server.process.wait(30)
    plain = servers[0].costs
    for server in servers:
        ratio = statistics.median(cost / base for base, cost in zip(plain, server.costs, strict=True))
        median, least = statistics.median(server.costs), min(server.costs)
        print(f"{engine:10} {server.kind:18} {median:4.0f} µs (least {least:4.0f})  ratio {ratio:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--seconds", type=float, default=0.25, help="length of a round")
    parser.add_argument("--engine", choices=ENGINES)
    parser.add_argument("--serve", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(given.port, given.engine, given.serve)
        return
    for engine in (given.engine,) if given.engine else ENGINES:
        compare(engine, given.rounds, given.seconds)


if __name__ == "__main__":
    main()
