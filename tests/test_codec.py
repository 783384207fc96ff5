"""`mcptrio.codec` and `mcptrio.jsonrpc`: what programs read and write protocol messages with."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcptrio import RemoteProtocolError, jsonrpc, types
from mcptrio.codec import StructureError, from_json, to_json
from tests.types.examples import instances_of, wire_classes


@pytest.mark.parametrize("cls", wire_classes(), ids=lambda cls: cls.__name__)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_every_class_of_the_types_is_read_back_as_it_was_written(cls: type, data: st.DataObject) -> None:
    value = data.draw(instances_of(cls))
    text = json.dumps(to_json(value))
    assert from_json(json.loads(text), cls) == value


def test_names_are_camel_case_on_the_wire_and_absent_fields_are_left_out() -> None:
    tool = types.Tool(
        name="echo", input_schema={"type": "object"}, annotations=types.ToolAnnotations(read_only_hint=True)
    )
    assert to_json(tool) == {
        "name": "echo",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    }


def test_unknown_fields_are_ignored() -> None:
    assert from_json({"uri": "file:///a", "name": "a", "later": 1}, types.Root) == types.Root(uri="file:///a", name="a")


def test_a_union_of_classes_can_be_read() -> None:
    assert from_json({"type": "text", "text": "a"}, types.ContentBlock) == types.TextContent(text="a")


def test_every_error_of_a_value_is_reported_with_its_path() -> None:
    with pytest.raises(StructureError) as caught:
        from_json({"tools": [{"name": 1}]}, types.ListToolsResult)
    assert set(caught.value.faults) == {
        "$.tools[0].name: expected string, got 1",
        "$.tools[0].inputSchema: required, but missing",
    }


def test_helpers_become_what_they_stand_for() -> None:
    picture = types.Image(b"x", mime_type="image/png")
    block = {"type": "image", "data": "eA==", "mimeType": "image/png"}
    assert to_json(picture) == block
    assert to_json([types.user("Hello"), types.Message("assistant", picture)]) == [
        {"role": "user", "content": {"type": "text", "text": "Hello"}},
        {"role": "assistant", "content": block},
    ]


@pytest.mark.parametrize(
    ("frame", "wire"),
    [
        (jsonrpc.Request(1, "tools/list"), {"id": 1, "method": "tools/list"}),
        (jsonrpc.Request("a", "ping", {"x": [1]}), {"id": "a", "method": "ping", "params": {"x": [1]}}),
        (jsonrpc.Notification("notifications/initialized"), {"method": "notifications/initialized"}),
        (jsonrpc.Response(1, {"tools": []}), {"id": 1, "result": {"tools": []}}),
        (
            jsonrpc.Error(1, -32602, "Unknown tool", {"name": "x"}),
            {"id": 1, "error": {"code": -32602, "message": "Unknown tool", "data": {"name": "x"}}},
        ),
        (jsonrpc.Error(None, -32700, "Parse error"), {"error": {"code": -32700, "message": "Parse error"}}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_message_is_written_and_read_back(frame: jsonrpc.Frame, wire: dict[str, Any]) -> None:
    data = jsonrpc.encode(frame)
    assert json.loads(data) == {"jsonrpc": "2.0", **wire}
    assert jsonrpc.decode(data) == frame


def test_a_batch_is_written_and_read_back() -> None:
    frames = (jsonrpc.Request(1, "ping"), jsonrpc.Notification("notifications/initialized"))
    assert jsonrpc.decode(jsonrpc.encode_batch(frames)) == frames


@pytest.mark.parametrize(
    ("data", "code"),
    [(b"{", -32700), (b'{"jsonrpc":"1.0"}', -32600), (b'{"jsonrpc":"2.0","id":1,"method":"a","params":[]}', -32602)],
)
def test_a_message_that_breaks_the_rules_says_how_to_answer_it(data: bytes, code: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        jsonrpc.decode(data)
    assert caught.value.code == code


def test_typed_values_travel_in_messages() -> None:
    request = jsonrpc.Request(7, "tools/call", to_json(types.CallToolParams(name="echo", arguments={"a": 1})))
    read = jsonrpc.decode(jsonrpc.encode(request))
    assert isinstance(read, jsonrpc.Request)
    assert from_json(read.params, types.CallToolParams).arguments == {"a": 1}
