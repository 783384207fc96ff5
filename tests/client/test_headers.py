"""Arguments in headers: which marks are allowed, and what stands in the headers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio._schema.header_marks import find_marks
from mcptrio._wire.headers import decode_header_value
from mcptrio.client.features.headers import checked_headers, headers_from
from mcptrio.errors import LocalProtocolError


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def marked(mark: Any, kind: Any = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": mark}


GOOD = schema(
    region=marked("Region"),
    count=marked("Count", "integer"),
    dry=marked("Dry-Run", "boolean"),
    inner=schema(deep=marked("Deep")),
    **{"x-mcp-header": {"type": "string"}},
)


@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({}, {}),
        ({"region": None, "other": "x"}, {}),
        ({"region": "us-west1"}, {"Mcp-Param-Region": "us-west1"}),
        ({"region": ""}, {"Mcp-Param-Region": ""}),
        ({"region": "Hello, 世界"}, {"Mcp-Param-Region": "=?base64?SGVsbG8sIOS4lueVjA==?="}),
        ({"region": " padded "}, {"Mcp-Param-Region": "=?base64?IHBhZGRlZCA=?="}),
        ({"region": "a\r\nb"}, {"Mcp-Param-Region": "=?base64?YQ0KYg==?="}),
        ({"count": 42, "dry": True}, {"Mcp-Param-Count": "42", "Mcp-Param-Dry-Run": "true"}),
        ({"count": -7, "dry": False}, {"Mcp-Param-Count": "-7", "Mcp-Param-Dry-Run": "false"}),
        ({"inner": {"deep": "x"}}, {"Mcp-Param-Deep": "x"}),
        ({"inner": "no object"}, {}),
    ],
)
def test_arguments_stand_in_headers(arguments: dict[str, Any], headers: dict[str, str]) -> None:
    assert headers_from(find_marks(GOOD), arguments) == headers


@pytest.mark.parametrize("arguments", [{"count": 2**53}, {"region": ["x"]}, {"count": 1.5}])
def test_an_argument_that_no_header_can_hold_is_an_error_of_the_caller(arguments: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        headers_from(find_marks(GOOD), arguments)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_every_text_can_be_read_back_from_its_header(text: str) -> None:
    header = headers_from(find_marks(GOOD), {"region": text})["Mcp-Param-Region"]
    assert decode_header_value(header) == text
    assert header.isascii()
    assert not set(header) & set("\r\n\0")


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer x"}, {"X-Tenant": "a b", "Mcp-Custom": "1"}])
def test_a_caller_may_add_headers(headers: dict[str, str]) -> None:
    assert checked_headers(headers) == headers


@pytest.mark.parametrize(
    "headers",
    [
        {"a b": "c"},
        {"": "c"},
        {"X": "a\r\nY: b"},
        {"X": "a\0"},
        {"X": 1},
        {"mcp-SESSION-id": "x"},
        {"Mcp-Param-Region": "x"},
        {"content-type": "text/plain"},
        {"Host": "x"},
    ],
)
def test_neg_a_caller_may_not_add_headers_of_the_protocol_or_broken_ones(headers: Any) -> None:
    with pytest.raises(LocalProtocolError, match="headers: "):
        checked_headers(headers)
