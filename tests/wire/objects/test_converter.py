"""Typed values to JSON and back: nothing lost, nothing invented, and every fault named."""

from __future__ import annotations

import enum
from types import MappingProxyType
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcptrio import types
from mcptrio._wire.objects import generated
from mcptrio._wire.objects.converter import StructureError, structure, unstructure, wire_name, write_fields
from mcptrio._wire.objects.interpreted import READERS
from mcptrio._wire.objects.readers import FAILURES, MAX_FAULTS
from mcptrio._wire.objects.writers import GENERATE_AFTER, interpreted_writer
from mcptrio.errors import MCPTrioError
from tests.types.examples import instances_of, wire_classes

relaxed = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def faults_of(value: Any, cls: type, **where: str) -> tuple[str, ...]:
    with pytest.raises(StructureError) as caught:
        structure(value, cls, **where)
    return caught.value.faults


# -- there and back


@pytest.mark.parametrize("cls", wire_classes(), ids=lambda cls: cls.__name__)
@relaxed
@given(data=st.data())
def test_every_class_comes_back_from_the_wire_as_it_was(cls: type, data: st.DataObject) -> None:
    value = data.draw(instances_of(cls))
    wire = unstructure(value)
    assert structure(wire, cls) == value
    assert structure(msgspec.json.decode(msgspec.json.encode(wire)), cls) == value


CLASSES_WITH_FIELDS = [cls for cls in wire_classes() if cls is not types.UnknownContent]  # its keys are its own


@pytest.mark.parametrize("cls", CLASSES_WITH_FIELDS, ids=lambda cls: cls.__name__)
@relaxed
@given(data=st.data())
def test_only_none_is_left_out_and_neither_nulls_nor_unknown_keys_matter(cls: type, data: st.DataObject) -> None:
    value = data.draw(instances_of(cls))
    wire = unstructure(value)
    present = {wire_name(f.name, cls) for f in attrs.fields(cls) if getattr(value, f.name) is not None}
    required = {wire_name(f.name, cls) for f in attrs.fields(cls) if f.default is attrs.NOTHING}
    assert set(wire) == present | required
    nulls = {wire_name(f.name, cls): None for f in attrs.fields(cls) if f.default is None and not f.metadata}
    assert structure({**nulls, **wire, "x-newer-field": [1]}, cls) == value


# -- names


@pytest.mark.parametrize(
    ("name", "cls", "expected"),
    [
        ("name", None, "name"),
        ("mime_type", None, "mimeType"),
        ("meta", None, "_meta"),
        ("ttl_ms", None, "ttlMs"),
        ("website_url", None, "websiteUrl"),
        ("tool_use_id", None, "toolUseId"),
        ("open_world_hint", types.ToolAnnotations, "openWorldHint"),
        ("protocol_version", types.InitializeParams, "protocolVersion"),
        ("protocol_version", types.RequestMeta, "io.modelcontextprotocol/protocolVersion"),
        ("client_capabilities", types.RequestMeta, "io.modelcontextprotocol/clientCapabilities"),
        ("progress_token", types.RequestMeta, "progressToken"),
        ("subscription_id", types.NotificationMeta, "io.modelcontextprotocol/subscriptionId"),
        ("server_info", types.ResultMeta, "io.modelcontextprotocol/serverInfo"),
    ],
)
def test_a_field_has_the_name_that_the_specification_gives_it(name: str, cls: type | None, expected: str) -> None:
    assert wire_name(name, cls) == expected


# -- writing

WRITTEN = [
    (types.CallToolResult(content=[types.TextContent(text="x")]), {"content": [{"type": "text", "text": "x"}]}),
    (types.CallToolResult(), {"content": []}),
    (types.CallToolResult(structured_content=types.NULL), {"content": [], "structuredContent": None}),
    (types.CallToolResult(structured_content=[1, None]), {"content": [], "structuredContent": [1, None]}),
    (types.LoggingMessageParams(level="info", data=None), {"level": "info", "data": None}),
    (types.LoggingMessageParams(level="info", data=types.NULL), {"level": "info", "data": None}),
    (types.InputRequiredResult(request_state="s"), {"resultType": "input_required", "requestState": "s"}),
    (
        types.InputRequiredResult(input_requests={"a": types.InputRequest(method="roots/list", params=types.Params())}),
        {"resultType": "input_required", "inputRequests": {"a": {"method": "roots/list", "params": {}}}},
    ),
    (
        types.SamplingMessage(role="user", content=types.TextContent(text="x")),
        {"role": "user", "content": {"type": "text", "text": "x"}},
    ),
    (
        types.SamplingMessage(role="user", content=[types.TextContent(text="x"), types.TextContent(text="y")]),
        {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]},
    ),
    (
        types.CompleteParams(
            ref=types.PromptReference(name="p"), argument=types.CompletionArgument(name="a", value="v")
        ),
        {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "v"}},
    ),
    (types.Icon(src="s", sizes=["48x48"]), {"src": "s", "sizes": ["48x48"]}),
    (types.UnknownContent(type="hologram", data={"depth": 3}), {"type": "hologram", "depth": 3}),
    (types.ClientCapabilities(elicitation=types.ElicitationCapability()), {"elicitation": {}}),
    ([types.Root(uri="file:///a")], [{"uri": "file:///a"}]),
    (types.NULL, None),
    ("text", "text"),
]


@pytest.mark.parametrize(("value", "expected"), WRITTEN, ids=lambda value: type(value).__name__)
def test_a_value_is_written_as_the_specification_has_it(value: Any, expected: Any) -> None:
    assert unstructure(value) == expected


def test_json_is_handed_through_without_a_copy() -> None:
    """A large result must not be walked and copied for each reply."""
    schema, structured, meta = {"type": "object"}, {"rows": [(1, 2)]}, {"k": object()}
    assert unstructure(types.Tool(name="t", input_schema=schema))["inputSchema"] is schema
    wire = unstructure(types.CallToolResult(structured_content=structured, meta=meta))
    assert wire["structuredContent"] is structured
    assert wire["_meta"] is meta
    assert unstructure(structured) is structured
    params = {"name": "t", "arguments": {"a": 1}}
    assert structure(params, types.CallToolParams).arguments is params["arguments"]


def test_unstructuring_returns_a_new_dict_each_time() -> None:
    """The eras add to it."""
    result = types.CallToolResult()
    unstructure(result)["resultType"] = "complete"
    assert unstructure(result) == {"content": []}


# -- reading


def test_integers_are_exact_however_large() -> None:
    big = 2**70 + 1
    params = structure({"progressToken": big, "progress": big, "total": 1.5}, types.ProgressParams)
    assert (params.progress_token, params.progress, params.total) == (big, big, 1.5)
    assert unstructure(params)["progress"] == big


def test_a_float_without_fraction_is_an_integer() -> None:
    size = structure({"uri": "u", "name": "n", "size": 2.0}, types.Resource).size
    assert (size, type(size)) == (2, int)


def test_an_unknown_kind_of_content_is_kept() -> None:
    """A client of today must be able to read the results of a server of tomorrow."""
    wire = {"content": [{"type": "hologram", "depth": 3, "_meta": {}}]}
    result = structure(wire, types.CallToolResult)
    assert result.content == (types.UnknownContent(type="hologram", data={"depth": 3, "_meta": {}}),)
    assert unstructure(result) == wire


def test_the_params_of_an_input_request_follow_its_method() -> None:
    form = {"message": "Size?", "requestedSchema": {"type": "object", "properties": {}}}
    wire = {
        "resultType": "input_required",
        "inputRequests": {
            "a": {"method": "elicitation/create", "params": form},
            "b": {"method": "roots/list"},
            "c": {"method": "future/ask", "params": {"x": 1}},
        },
    }
    result = structure(wire, types.InputRequiredResult)
    assert result.input_requests is not None
    assert isinstance(result.input_requests["a"].params, types.ElicitParams)
    assert result.input_requests["b"].params is None
    assert result.input_requests["c"].params == {"x": 1}
    assert unstructure(result) == wire


def test_null_differs_from_absent_where_it_matters() -> None:
    assert structure({"content": []}, types.CallToolResult).structured_content is None
    assert structure({"content": [], "structuredContent": None}, types.CallToolResult).structured_content is types.NULL


def test_any_mapping_can_be_read() -> None:
    params = structure(MappingProxyType({"name": "t", "arguments": MappingProxyType({"a": 1})}), types.CallToolParams)
    assert params.arguments == {"a": 1}


def test_a_union_can_be_read_by_itself() -> None:
    block = structure({"type": "text", "text": "x"}, types.ContentBlock)  # type: ignore[arg-type]
    assert block == types.TextContent(text="x")


# -- faults

TEXT = {"type": "text", "text": "x"}
FAULTS: list[tuple[type, Any, tuple[str, ...]]] = [
    (types.PaginatedParams, "foo", ('params: expected object, got "foo"',)),
    (types.PaginatedParams, None, ("params: expected object, got null",)),
    (types.PaginatedParams, ["cursor"], ("params: expected object, got array",)),
    (types.PaginatedParams, {"cursor": 5}, ("params.cursor: expected string, got 5",)),
    (types.CallToolParams, {"name": "t", "arguments": "x"}, ('params.arguments: expected object, got "x"',)),
    (types.CallToolParams, {"name": "t", "arguments": [1]}, ("params.arguments: expected object, got array",)),
    (
        types.CallToolParams,
        {"arguments": 1, "_meta": 2, "requestState": True},
        (
            "params._meta: expected object, got 2",
            "params.requestState: expected string, got true",
            "params.name: required, but missing",
            "params.arguments: expected object, got 1",
        ),
    ),
    (types.CallToolParams, {"name": None}, ("params.name: expected string, got null",)),
    (types.Resource, {"uri": "u", "name": "n", "size": "5"}, ('params.size: expected integer, got "5"',)),
    (types.Resource, {"uri": "u", "name": "n", "size": True}, ("params.size: expected integer, got true",)),
    (types.Resource, {"uri": "u", "name": "n", "size": 1.5}, ("params.size: expected integer, got 1.5",)),
    (types.Annotations, {"priority": "1"}, ('params.priority: expected number, got "1"',)),
    (types.Annotations, {"priority": False}, ("params.priority: expected number, got false",)),
    (types.Annotations, {"audience": "user"}, ('params.audience: expected array, got "user"',)),
    (
        types.Annotations,
        {"audience": ["user", "dog", {}]},
        (
            'params.audience[1]: expected "user" or "assistant", got "dog"',
            'params.audience[2]: expected "user" or "assistant", got object',
        ),
    ),
    (types.ToolAnnotations, {"readOnlyHint": 1}, ("params.readOnlyHint: expected boolean, got 1",)),
    (
        types.ProgressParams,
        {"progressToken": True, "progress": 1},
        ("params.progressToken: expected string or integer, got true",),
    ),
    (types.ProgressParams, {"progressToken": 1.5, "progress": 1}, ("params.progressToken: expected integer, got 1.5",)),
    (types.CancelledParams, {"requestId": []}, ("params.requestId: expected string or integer, got array",)),
    (
        types.GetPromptParams,
        {"name": "p", "arguments": {"a": 1, "b": "x"}},
        ("params.arguments.a: expected string, got 1",),
    ),
    (
        types.CallToolResult,
        {"content": [TEXT, {"type": 5}, {"type": "text"}, {"type": "image", "data": 5, "mimeType": None}, 7, {}]},
        (
            "params.content[1].type: expected string, got 5",
            "params.content[2].text: required, but missing",
            "params.content[3].data: expected string, got 5",
            "params.content[3].mimeType: expected string, got null",
            "params.content[4]: expected object, got 7",
            "params.content[5].type: required, but missing",
        ),
    ),
    (types.CallToolResult, {"content": TEXT}, ("params.content: expected array, got object",)),
    (
        types.ReadResourceResult,
        {"contents": [{"uri": "u"}]},
        ("params.contents[0]: expected text or blob, got neither",),
    ),
    (types.ReadResourceResult, {"contents": [{"text": "x"}]}, ("params.contents[0].uri: required, but missing",)),
    (
        types.CompleteParams,
        {"ref": {"type": "ref/tool"}, "argument": {"name": "a", "value": "v"}},
        ('params.ref.type: expected "ref/prompt" or "ref/resource", got "ref/tool"',),
    ),
    (
        types.PromptMessage,
        {"role": "system", "content": TEXT},
        ('params.role: expected "user" or "assistant", got "system"',),
    ),
    (types.ElicitParams, {"message": "m", "mode": "url"}, ("params: an elicitation in url mode needs a url",)),
    (
        types.InputRequiredResult,
        {"inputRequests": {"a": {}}},
        ("params.inputRequests.a.method: expected string, got null",),
    ),
    (
        types.InputRequiredResult,
        {"inputRequests": {"a": {"method": "sampling/createMessage", "params": {"messages": []}}}},
        ("params.inputRequests.a.params.maxTokens: required, but missing",),
    ),
    (
        types.RequestMeta,
        {"io.modelcontextprotocol/clientInfo": {"name": "n"}},
        ("params.io.modelcontextprotocol/clientInfo.version: required, but missing",),
    ),
    (
        types.InitializeParams,
        {"protocolVersion": 1, "capabilities": {"roots": {"listChanged": "x"}, "extensions": {"a/b": 5}}},
        (
            "params.protocolVersion: expected string, got 1",
            'params.capabilities.roots.listChanged: expected boolean, got "x"',
            "params.capabilities.extensions.a/b: expected object, got 5",
            "params.clientInfo: required, but missing",
        ),
    ),
]


@pytest.mark.parametrize(("cls", "value", "expected"), FAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_every_fault_is_named_with_its_path_on_the_wire(cls: type, value: Any, expected: tuple[str, ...]) -> None:
    assert faults_of(value, cls) == expected


def test_a_path_begins_where_the_caller_says() -> None:
    assert faults_of({"tools": 1}, types.ListToolsResult, at="result") == ("result.tools: expected array, got 1",)


def test_a_structure_error_is_ours_and_reads_as_one_line() -> None:
    with pytest.raises(MCPTrioError, match=r"^params\.uri: required, but missing; params\.name: required"):
        structure({}, types.Resource)


def test_the_number_of_reported_faults_is_capped() -> None:
    faults = faults_of({"content": [0] * 10_000}, types.CallToolResult)
    assert len(faults) == MAX_FAULTS + 1
    assert faults[-1] == "params: and more"


def test_a_long_value_is_not_sent_back_whole() -> None:
    (fault,) = faults_of({"uri": "u", "name": "n", "size": "9" * 10_000}, types.Resource)
    assert len(fault) < 200
    (fault,) = faults_of({"uri": "u", "name": 10**5000}, types.Resource)
    assert fault == "params.name: expected string, got a very large integer"
    (fault,) = faults_of({"name": "p", "arguments": {"k" * 10_000: 1}}, types.GetPromptParams)
    assert len(fault) < 200


# -- without the class


@pytest.mark.parametrize(
    "cls", [types.Tool, types.ToolAnnotations, types.Resource, types.ResourceTemplate], ids=lambda cls: cls.__name__
)
@relaxed
@given(data=st.data())
def test_fields_alone_are_written_as_the_class_that_has_them(cls: type, data: st.DataObject) -> None:
    value = data.draw(instances_of(cls))
    assert write_fields({f.name: getattr(value, f.name) for f in attrs.fields(cls)}) == unstructure(value)


# -- interpreted at first, generated later


@pytest.mark.parametrize("cls", CLASSES_WITH_FIELDS, ids=lambda cls: cls.__name__)
@relaxed
@given(data=st.data())
def test_generated_functions_do_what_the_interpreted_ones_do(cls: type, data: st.DataObject) -> None:
    value = data.draw(instances_of(cls))
    wire = interpreted_writer(cls)(value)
    assert msgspec.json.encode(generated.writer(cls)(value)) == msgspec.json.encode(wire)
    assert READERS.get_structure_hook(cls)(wire, cls) == generated.reader(cls)(wire, cls) == value


@pytest.mark.parametrize(("cls", "value", "expected"), FAULTS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_generated_function_refuses_what_the_interpreted_one_refuses(
    cls: type, value: Any, expected: tuple[str, ...]
) -> None:
    with pytest.raises(FAILURES):
        generated.reader(cls)(value, cls)


@attrs.frozen
class Point:
    """A class that only this test uses, so that its counters start at zero."""

    x: int
    label: str | None = None


def test_a_class_that_is_met_often_is_read_and_written_as_before() -> None:
    for number in range(2 * GENERATE_AFTER):
        assert structure({"x": number}, Point) == Point(number)
        assert unstructure(Point(number, "a")) == {"x": number, "label": "a"}
        assert faults_of({"x": "1", "label": 2}, Point) == (
            'params.x: expected integer, got "1"',
            "params.label: expected string, got 2",
        )


def test_a_class_of_the_protocol_may_be_named() -> None:
    for _ in range(2 * GENERATE_AFTER):
        params: types.SetLevelParams = structure({"level": "info"}, "SetLevelParams")
        assert params == types.SetLevelParams(level="info")
    with pytest.raises(StructureError, match=r"params\.level: required"):
        structure({}, "SetLevelParams")


class Colour(enum.Enum):
    RED = "red"


@attrs.frozen
class Basket:
    """A class of others, with kinds that no class of the protocol has."""

    points: list[Point]
    weights: dict[str, int] = attrs.Factory(dict)
    colour: Colour = Colour.RED


def test_classes_of_others_are_read_too() -> None:
    basket = structure({"points": [{"x": 1}], "weights": {"a": 2}, "colour": "red"}, Basket)
    assert basket == Basket([Point(1)], {"a": 2})
    assert faults_of({"points": [{"x": 1}, {"x": "1"}, 7], "weights": {"a": None}, "colour": "blue"}, Basket) == (
        'params.points[1].x: expected integer, got "1"',
        "params.points[2]: expected object, got 7",
        "params.weights.a: expected integer, got null",
        "params.colour: 'blue' is not a valid Colour",
    )
