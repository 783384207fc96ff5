"""Spans and metrics by the semantic conventions for MCP, and both sides of a call in one trace."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import trio
import trio.lowlevel
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from mcptrio import Client, Context, MCPError, Server, ToolError, connect, telemetry
from mcptrio.errors import DeclarationError
from mcptrio.telemetry.otel import OpenTelemetry
from mcptrio.types import ElicitResult
from tests import engines


class Side:
    """The telemetry of one side."""

    def __init__(self) -> None:
        self.spans = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider(metric_readers=[self.reader])
        self.listener = OpenTelemetry(tracer_provider=self.provider, meter_provider=self.meters)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        assert data is not None
        found = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics if m.name == name]
        return [point for metric in found for point in metric.data.data_points]


@pytest.fixture
def server_side() -> Iterator[Side]:
    side = Side()
    yield side
    side.meters.shutdown()
    side.provider.shutdown()


@pytest.fixture
def client_side() -> Iterator[Side]:
    side = Side()
    yield side
    side.meters.shutdown()
    side.provider.shutdown()


@dataclass
class Size:
    size: str


def make_server(side: Side) -> Server:
    server = Server("shop", version="1")
    server.on_event(side.listener)

    @server.tool
    async def add(a: int, b: int) -> str:
        with side.provider.get_tracer("shop").start_as_current_span("database"):
            await trio.lowlevel.checkpoint()
        return str(a + b)

    @server.tool
    async def wrong() -> str:
        raise ToolError("no such order")

    @server.tool
    async def refused() -> str:
        raise MCPError(-32001, "refused")

    @server.tool(timeout=0.05)
    async def late() -> str:
        await trio.sleep_forever()
        return ""

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Which size?", Size)
        return answer.value.size if answer.value else "none"

    @server.prompt
    def complain() -> str:
        return "Write a complaint."

    @server.resource("orders://{order_id}")
    async def order(order_id: str) -> str:
        return order_id

    return server


async def elicit(params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"size": "L"})


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def trace_of(*spans: ReadableSpan) -> set[int]:
    return {span.context.trace_id for span in spans if span.context is not None}


@pytest.mark.parametrize("protocol", ["2024-11-05", "2025-11-25", "2026-07-28"])
async def test_both_sides_of_a_call_are_in_one_trace(protocol: str, server_side: Side, client_side: Side) -> None:
    async with connect(make_server(server_side), protocol=protocol, on_event=client_side.listener) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
    sent, served = client_side.one("tools/call add"), server_side.one("tools/call add")
    inside = server_side.one("database")
    assert (sent.kind, served.kind) == (SpanKind.CLIENT, SpanKind.SERVER)
    assert parent_of(served) == id_of(sent)
    assert served.parent is not None
    assert served.parent.is_remote
    assert parent_of(inside) == id_of(served), "the span is current in the handler"
    assert len(trace_of(sent, served, inside)) == 1
    assert served.attributes is not None
    expected = {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": protocol,
        "gen_ai.tool.name": "add",
        "gen_ai.operation.name": "execute_tool",
    }
    assert expected.items() <= dict(served.attributes).items()
    assert "jsonrpc.request.id" in served.attributes
    assert served.status.status_code is StatusCode.UNSET


async def test_spans_and_metrics_of_a_mixed_load_say_which_tool_failed(server_side: Side, client_side: Side) -> None:
    async with connect(make_server(server_side), on_event=client_side.listener) as client:
        for name in ("add", "wrong", "wrong", "refused", "late", "evil\n"):
            with suppress(MCPError):
                await client.call_tool(name, {"a": 1, "b": 2} if name == "add" else {})
        await client.get_prompt("complain")
        await client.read_resource("orders://7")
        await client.list_tools()
    for side, kind in ((server_side, "server"), (client_side, "client")):
        seen = {}
        for point in side.points(f"mcp.{kind}.operation.duration"):
            labels = dict(point.attributes)
            if labels["mcp.method.name"] in ("initialize", "notifications/initialized", "server/discover"):
                continue
            name = labels.get("gen_ai.tool.name", labels.get("gen_ai.prompt.name"))
            seen[labels["mcp.method.name"], name, labels.get("error.type")] = point.count
            assert point.sum > 0
        timeout = "timeout" if kind == "server" else "tool_error"  # the client gets it as a result
        assert seen == {
            ("tools/call", "add", None): 1,
            ("tools/call", "wrong", "tool_error"): 2,
            ("tools/call", "refused", "-32001"): 1,
            ("tools/call", "late", timeout): 1,
            ("tools/call", "other" if kind == "server" else "evil\n", "-32602"): 1,
            ("prompts/get", "complain", None): 1,
            ("resources/read", None, None): 1,
            ("tools/list", None, None): 1,
        }
    failed = server_side.named("tools/call wrong")[0]
    assert failed.status.status_code is StatusCode.ERROR
    refused = server_side.one("tools/call refused")
    assert refused.attributes is not None
    assert refused.attributes["rpc.response.status_code"] == "-32001"
    assert refused.status.description == "refused"
    late = server_side.one("tools/call late")
    assert late.start_time is not None
    assert late.end_time is not None
    assert late.end_time - late.start_time >= 0.05e9
    assert len(server_side.named("tools/call")) == 1, "an undeclared name is no name of a span"
    read = server_side.one("resources/read").attributes
    assert read is not None
    assert read["mcp.resource.uri"] == "orders://7"
    assert [point.count for point in server_side.points("mcp.server.session.duration")] == [1]
    assert [point.count for point in client_side.points("mcp.client.session.duration")] == [1]


async def test_a_question_is_a_span_on_both_sides(server_side: Side, client_side: Side) -> None:
    target = make_server(server_side)
    async with connect(target, protocol="2025-11-25", elicit=elicit, on_event=client_side.listener) as client:
        assert (await client.call_tool("ask")).text == "L"
    served, question = server_side.one("tools/call ask"), server_side.one("elicitation/create")
    answered = client_side.one("elicitation/create")
    assert (question.kind, answered.kind) == (SpanKind.CLIENT, SpanKind.SERVER)
    assert parent_of(question) == id_of(served)
    assert parent_of(answered) == id_of(question)
    assert len(trace_of(served, question, answered, client_side.one("tools/call ask"))) == 1


async def test_a_parked_call_is_a_span_and_so_is_the_request_that_continues_it(
    server_side: Side, client_side: Side
) -> None:
    target = make_server(server_side)
    async with connect(target, protocol="2026-07-28", elicit=elicit, on_event=client_side.listener) as client:
        with client_side.provider.get_tracer("agent").start_as_current_span("agent"):
            assert (await client.call_tool("ask")).text == "L"
    first, second = client_side.named("tools/call ask")
    spans = {parent_of(span): span for span in server_side.named("tools/call ask")}
    call, continued = spans[id_of(first)], spans[id_of(second)]
    parked, question = server_side.one("parked"), server_side.one("elicitation/create")
    assert parent_of(parked) == parent_of(question) == id_of(call)
    assert [link.context.span_id for link in continued.links] == [id_of(call)]
    assert len(trace_of(first, second, call, continued, parked, question)) == 1
    assert call.end_time is not None
    assert parked.end_time is not None
    assert continued.start_time is not None
    assert parked.end_time <= continued.start_time <= call.end_time


@pytest.mark.parametrize("protocol", ["2025-11-25", "2026-07-28"])
async def test_concurrent_calls_over_http_keep_their_traces_apart(
    engine: str, protocol: str, server_side: Side, client_side: Side
) -> None:
    server = make_server(server_side)
    async with trio.open_nursery() as nursery:
        (bound,) = await nursery.start(partial(server.serve_http, port=0, engine=engines.current()))

        async def use(client: Client, number: int) -> None:
            with client_side.provider.get_tracer("agent").start_as_current_span(f"agent {number}"):
                await client.call_tool("add", {"a": number, "b": 1})

        url = f"http://127.0.0.1:{bound.port}/mcp"
        async with (
            connect(url, protocol=protocol, on_event=client_side.listener) as client,
            trio.open_nursery() as calls,
        ):
            for number in range(8):
                calls.start_soon(use, client, number)
        nursery.cancel_scope.cancel()
    agents = [span for span in client_side.spans.get_finished_spans() if span.name.startswith("agent")]
    sent = {parent_of(span): span for span in client_side.named("tools/call add")}
    served = {parent_of(span): span for span in server_side.named("tools/call add")}
    inside = {parent_of(span): span for span in server_side.named("database")}
    assert len(agents) == 8
    for agent in agents:
        call = served[id_of(sent[id_of(agent)])]
        assert len(trace_of(agent, call, inside[id_of(call)])) == 1
    call = next(iter(served.values()))
    assert call.attributes is not None
    assert call.attributes["network.transport"] == "tcp"
    assert len(str(call.attributes.get("mcp.session.id", ""))) in (0, 8), "the whole id grants access"
    assert len(trace_of(*agents)) == 8
    assert not trace.get_current_span().get_span_context().is_valid


async def test_values_of_peers_are_bounded_and_bad_trace_contexts_ignored(server_side: Side) -> None:
    bad = ("00-zz", 7, None, ["00"], {"a": 1}, "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 10000)
    async with connect(make_server(server_side)) as client:
        for value in bad:
            await client.call_tool("add", {"a": 1, "b": 2}, meta={"traceparent": value, "baggage": value})
        for number in range(300):
            with suppress(MCPError):
                await client.call_tool(f"evil{number}")
    assert len(server_side.named("tools/call add")) == len(bad)
    assert all(span.parent is None for span in server_side.named("tools/call add"))
    points = server_side.points("mcp.server.operation.duration")
    assert {point.attributes.get("gen_ai.tool.name") for point in points} == {"add", "other", None}
    assert {span.name for span in server_side.spans.get_finished_spans()} >= {"tools/call", "tools/call add"}
    assert not [span for span in server_side.spans.get_finished_spans() if "evil" in span.name]


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "mcptrio.telemetry.otel")
    with pytest.raises(DeclarationError, match=r"install \"mcptrio\[otel\]\""):
        importlib.import_module("mcptrio.telemetry.otel")


def test_names_that_a_hostile_server_lists_are_bounded(client_side: Side) -> None:
    for number in range(1000):
        sent = telemetry.AskSent(session="s", method="tools/call", ask=number, name=f"evil{number}")
        client_side.listener(sent)
        client_side.listener(
            telemetry.AskEnded(
                session="s", method="tools/call", outcome="error", seconds=1, ask=number, code=number, message="x"
            )
        )
    points = client_side.points("mcp.client.operation.duration")
    assert len({point.attributes["gen_ai.tool.name"] for point in points}) == 257
    assert len({point.attributes["error.type"] for point in points}) == 257
