"""The OpenTelemetry listener: spans and metrics by the semantic conventions for MCP. Needs the extra `otel`.

    server.on_event(OpenTelemetry())
    connect(url, on_event=OpenTelemetry())

Each call that is received is a span of kind SERVER, each request that is sent one of kind CLIENT, in both roles: a
question of a server to its client is a CLIENT span of the server. The context travels in `_meta`, so that both sides
are in one trace over every transport. The span of a call is current while its handler runs.

A parked call (2026-07-28) keeps its span until it ends. Its time of waiting is a child span `parked`, and the request
that continues it has a SERVER span of its own, with a link to the call.

No text of a peer becomes the name of a span or creates a series: only names that the server declares do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from time import time_ns
from typing import Any, Final, NamedTuple

from mcptrio import telemetry
from mcptrio.errors import DeclarationError

try:
    from opentelemetry import context, metrics, propagate, trace
except ModuleNotFoundError:
    raise DeclarationError(
        'spans need opentelemetry-api: pip install "mcptrio[otel]", or in a checkout pip install ".[otel]"'
    ) from None

_BUCKETS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)  # of the conventions
_NETWORK: Final[Mapping[str, Mapping[str, str]]] = {
    "stdio": {"network.transport": "pipe"},
    "http": {"network.transport": "tcp", "network.protocol.name": "http"},
    "sse": {"network.transport": "tcp", "network.protocol.name": "http"},
    "websocket": {"network.transport": "tcp", "network.protocol.name": "websocket"},
}
_NAMED: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
_WITH_URI: Final = frozenset({"resources/read", "resources/subscribe", "resources/unsubscribe"})
_LONGEST: Final = 8192
"""Characters of a value in `_meta` that is read: the bound of W3C Baggage."""
_VALUES_MAX: Final = 256
_KINDS_MAX: Final = 1024
_SESSION_SHOWN: Final = 8
"""Characters of a session id that are shown, because the id grants access to the session."""

_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_W3C: Final = frozenset({"traceparent", "tracestate", "baggage"})


class _Kind(NamedTuple):
    """Calls or requests with the same method, name, revision and transport."""

    span_name: str
    attributes: dict[str, str]
    """Shared by their spans and metrics; never changed."""


class _Operation:
    """A call or request that has not ended."""

    __slots__ = ("kind", "parked", "resumed", "span", "token")

    def __init__(self, span: trace.Span, kind: _Kind, token: Any = None) -> None:
        self.span = span
        self.kind = kind
        self.token = token
        self.parked: trace.Span | None = None
        self.resumed: trace.Span | None = None

    def end_round(self) -> None:
        """End the spans of a pause and of the request that continued the call."""
        for span in (self.parked, self.resumed):
            if span is not None:
                span.end()
        self.parked = self.resumed = None


class OpenTelemetry:
    """A listener that makes spans and metrics of calls, questions and sessions.

    The providers are the global ones unless they are given. With `principals`, spans name the key of the caller.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        principals: bool = False,
    ) -> None:
        self.principals = principals
        self._tracer = trace.get_tracer("mcptrio", tracer_provider=tracer_provider)
        meter = metrics.get_meter("mcptrio", meter_provider=meter_provider)

        def histogram(name: str, description: str) -> metrics.Histogram:
            return meter.create_histogram(
                name, unit="s", description=description, explicit_bucket_boundaries_advisory=_BUCKETS
            )

        self._served = histogram("mcp.server.operation.duration", "Duration of requests that were received.")
        self._sent = histogram("mcp.client.operation.duration", "Duration of requests that were sent.")
        self._sessions = {
            role: histogram(f"mcp.{role}.session.duration", f"Duration of sessions of the {role}.")
            for role in ("server", "client")
        }
        self._fields = frozenset(propagate.get_global_textmap().fields)
        self._calls: dict[int, _Operation] = {}
        self._asks: dict[int, _Operation] = {}
        self._kinds: dict[tuple[str, str | None, str | None, str], _Kind] = {}
        self._known: dict[str, set[str]] = {}
        self.hears: dict[type[telemetry.Event], Callable[[Any], None]] = {
            telemetry.CallStarted: self._call_started,
            telemetry.CallParked: self._call_parked,
            telemetry.CallResumed: self._call_resumed,
            telemetry.CallEnded: self._call_ended,
            telemetry.AskSent: self._ask_sent,
            telemetry.AskEnded: self._ask_ended,
            telemetry.SessionClosed: self._session_closed,
        }

    def __call__(self, event: telemetry.Event) -> None:
        listen = self.hears.get(type(event))
        if listen is not None:
            listen(event)

    # -- calls that are received

    def _call_started(self, event: telemetry.CallStarted) -> None:
        kind = self._kind(event.method, event.entry, event.protocol, event.transport)
        span = self._start(event, event.request_id, kind, trace.SpanKind.SERVER, event.meta)
        if event.principal is not None:
            span.set_attribute("enduser.id", event.principal)
        self._calls[event.call] = _Operation(span, kind, context.attach(trace.set_span_in_context(span)))

    def _call_parked(self, event: telemetry.CallParked) -> None:
        operation = self._calls.get(event.call)
        if operation is not None:
            operation.end_round()
            parent = trace.set_span_in_context(operation.span)
            operation.parked = self._tracer.start_span("parked", parent, attributes=operation.kind.attributes)

    def _call_resumed(self, event: telemetry.CallResumed) -> None:
        operation = self._calls.get(event.call)
        if operation is not None:
            operation.end_round()
            links = (trace.Link(operation.span.get_span_context()),)
            kind = trace.SpanKind.SERVER
            operation.resumed = self._start(event, event.request_id, operation.kind, kind, event.meta, links)

    def _call_ended(self, event: telemetry.CallEnded) -> None:
        operation = self._calls.pop(event.call, None)
        if operation is None:  # it was not admitted
            kind = self._kind(event.method, event.entry, None, "")
            began = time_ns() - int(event.seconds * 1e9)
            span = self._tracer.start_span(
                kind.span_name, kind=trace.SpanKind.SERVER, attributes=kind.attributes, start_time=began
            )
            operation = _Operation(span, kind)
        elif operation.resumed is not None or operation.parked is not None:
            operation.end_round()
        if event.queued:
            operation.span.set_attribute("mcptrio.queued", event.queued)
        if event.asking:
            operation.span.set_attribute("mcptrio.asking", event.asking)
        self._end(operation, event, self._served)
        if operation.token is not None:
            context.detach(operation.token)

    # -- requests that are sent

    def _ask_sent(self, event: telemetry.AskSent) -> None:
        kind = self._kind(event.method, event.name, event.protocol, event.transport)
        span = self._start(event, None, kind, trace.SpanKind.CLIENT, None)
        self._asks[event.ask] = _Operation(span, kind)
        propagate.inject(event.meta, trace.set_span_in_context(span))

    def _ask_ended(self, event: telemetry.AskEnded) -> None:
        operation = self._asks.pop(event.ask, None)
        if operation is not None:
            self._end(operation, event, self._sent)

    def _session_closed(self, event: telemetry.SessionClosed) -> None:
        failed = {"error.type": event.cause} if event.cause == "crash" else {}
        self._sessions[event.role].record(event.seconds, failed)

    # -- spans

    def _start(
        self,
        event: telemetry.CallStarted | telemetry.CallResumed | telemetry.AskSent,
        request_id: int | str | None,
        kind: _Kind,
        span_kind: trace.SpanKind,
        meta: Mapping[str, Any] | None,
        links: tuple[trace.Link, ...] = (),
    ) -> trace.Span:
        attributes = kind.attributes.copy()
        if len(event.session) > 1:  # requests without a session have `-`
            attributes["mcp.session.id"] = event.session[:_SESSION_SHOWN]
        if request_id is not None:
            attributes["jsonrpc.request.id"] = str(request_id)[:80]
        if event.method in _WITH_URI and event.name is not None:
            attributes["mcp.resource.uri"] = event.name
        parent = None
        if meta and not self._fields.isdisjoint(meta):
            parent = self._extract(meta)
            # The conventions: the parent is in `_meta`, and the span of the transport is linked.
            current = trace.get_current_span()
            if current is not trace.INVALID_SPAN:
                ambient = current.get_span_context()
                if ambient.is_valid and trace.get_current_span(parent).get_span_context() != ambient:
                    links += (trace.Link(ambient),)
        return self._tracer.start_span(kind.span_name, parent, span_kind, attributes, links)

    def _extract(self, meta: Mapping[str, Any]) -> context.Context:
        """Return the context in `_meta`."""
        given = meta.get("traceparent")
        if type(given) is str and self._fields == _W3C and "tracestate" not in meta and "baggage" not in meta:
            # The usual case, by hand: the general way takes as long as half a span.
            match = _TRACEPARENT.fullmatch(given)
            if match is not None:
                flags = trace.TraceFlags(int(match[3], 16))
                remote = trace.SpanContext(int(match[1], 16), int(match[2], 16), is_remote=True, trace_flags=flags)
                if remote.is_valid:
                    return trace.set_span_in_context(trace.NonRecordingSpan(remote))
        found = {name: value for name in self._fields if type(value := meta.get(name)) is str}
        return propagate.extract({name: value for name, value in found.items() if len(value) <= _LONGEST})

    def _end(
        self, operation: _Operation, event: telemetry.CallEnded | telemetry.AskEnded, histogram: metrics.Histogram
    ) -> None:
        attributes, span = operation.kind.attributes, operation.span
        if event.outcome != "ok":
            failed = {"error.type": event.outcome}
            if event.code is not None:
                failed = {"error.type": self._bounded("code", str(event.code))}
                failed["rpc.response.status_code"] = failed["error.type"]
            attributes = {**attributes, **failed}
            span.set_attributes(failed)
            span.set_status(trace.Status(trace.StatusCode.ERROR, event.message))
        span.end()
        histogram.record(event.seconds, attributes)

    def _kind(self, method: str, name: str | None, protocol: str | None, transport: str) -> _Kind:
        kind = self._kinds.get((method, name, protocol, transport))
        if kind is not None:
            return kind
        attributes = {"mcp.method.name": method, **_NETWORK.get(transport, {})}
        if protocol is not None:
            attributes["mcp.protocol.version"] = protocol
        if method not in _NAMED:
            name = None
        elif name is not None:
            name = self._bounded("name", name)
        if method in _NAMED:
            attributes[_NAMED[method]] = "other" if name is None else name
        if method == "tools/call":
            attributes["gen_ai.operation.name"] = "execute_tool"
        kind = _Kind(method if name is None else f"{method} {name}", attributes)
        if len(self._kinds) < _KINDS_MAX:
            self._kinds[method, name, protocol, transport] = kind
        return kind

    def _bounded(self, kind: str, value: str) -> str:
        """Return a value, or `other` if there are too many of its kind: values of a peer must not fill the memory."""
        known = self._known.setdefault(kind, set())
        if value not in known:
            if len(known) >= _VALUES_MAX:
                return "other"
            known.add(value)
        return value
