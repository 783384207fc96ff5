"""A server whose calls are OpenTelemetry spans; the SDK is set up as in any other program."""

from __future__ import annotations

from opentelemetry import trace

from mcptrio import Server
from mcptrio.telemetry.otel import OpenTelemetry

tracer = trace.get_tracer("shop")
server = Server("traced", version="1.0.0")
server.on_event(OpenTelemetry())


@server.tool
async def price(item: str) -> float:
    """Look up a price."""
    with tracer.start_as_current_span("database"):  # a child of the span `tools/call price`
        return 4.5 if item == "tea" else 9.0


if __name__ == "__main__":
    server.run()
