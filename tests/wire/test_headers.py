"""Header values: what they mean, and that nothing else is let through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio._wire.headers import (
    Origin,
    accepts,
    decode_header_value,
    encode_header_value,
    is_visible_ascii,
    media_type,
    parse_host,
    parse_origin,
)

JSON = "application/json"
SSE = "text/event-stream"
TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("header", "json", "sse"),
    [
        ("", True, True),
        ("application/json, text/event-stream", True, True),
        ("APPLICATION/JSON", True, False),
        ("*/*", True, True),
        ("application/*;q=0.1", True, False),
        ("text/html", False, False),
        ("application/json;q=0, */*", False, True),
        ("application/json;q=0.000,text/event-stream;q=0.001", False, True),
        ("*/*, text/*;q=0", True, False),
        ("application/json; charset=utf-8 ; q=1.0", True, False),
        ('text/html;x="a,b\\",application/json", text/event-stream', False, True),
        ("application/json;q=2", False, False),
        ("application/json;q=abc, text/event-stream", False, True),
        ("application/jsonp, text/event-stream-x, application /json", False, False),
        (", ,application/json;,", True, False),
        ("text/html" + ";x=y" * 200 + ",application/json", True, False),
    ],
)
def test_accept_headers_say_what_may_be_answered(header: str, json: bool, sse: bool) -> None:
    assert (accepts(header, [JSON]), accepts(header, [SSE])) == (json, sse)
    assert accepts(header, [JSON, SSE]) is (json and sse)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("application/json", JSON),
        ("Application/JSON", JSON),
        ("application/json; charset=UTF-8", JSON),
        ('application/json;charset="utf-8"', JSON),
        ("application/json;", JSON),
        ("text/plain", "text/plain"),
        ("text/plain; charset=latin-1", "text/plain"),
        ("application/json-seq", "application/json-seq"),
        ("text/event-stream;charset=utf-8", SSE),
    ],
)
def test_a_content_type_is_read_exactly(value: str, expected: str) -> None:
    assert media_type(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        "",
        "json",
        "application/json, text/plain",
        "application/json charset=utf-8",
        "application/json; charset=latin-1",
        "application/json; charset=utf-16",
        "application/json; charset=utf-8; charset=utf-16",
        "application/json; charset",
        'application/json; charset="utf-8',
        "application /json",
        "application/json\n",
        "application/jsön",
    ],
)
def test_a_content_type_that_is_not_clear_is_refused(value: str) -> None:
    with pytest.raises(ValueError):
        media_type(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("localhost", ("localhost", None)),
        ("LocalHost:8000", ("localhost", 8000)),
        ("127.0.0.1:1", ("127.0.0.1", 1)),
        ("[::1]", ("::1", None)),
        ("[0:0:0:0:0:0:0:1]:65535", ("::1", 65535)),
        ("a-b_c.example.", ("a-b_c.example.", None)),
    ],
)
def test_a_host_is_split(value: str, expected: tuple[str, int | None]) -> None:
    assert parse_host(value) == expected


BAD_HOSTS = [
    "",
    "localhost:",
    "localhost:8000.evil.example",
    "localhost:80:80",
    "localhost:0",
    "localhost:65536",
    "localhost:+1",
    "localhost:\u0661",
    "localhost :80",
    " localhost",
    "localhost\n",
    "user@localhost",
    "a,b",
    "a/b",
    "::1",
    "[::1",
    "[::1]x",
    "[::g]",
    "[fe80::1%25eth0]",
    "[127.0.0.1]",
    "éxample",
]


@pytest.mark.parametrize("value", BAD_HOSTS)
def test_a_host_that_is_not_exactly_one_is_refused(value: str) -> None:
    with pytest.raises(ValueError):
        parse_host(value)
    with pytest.raises(ValueError):
        parse_origin(f"http://{value}")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("http://localhost", Origin("http", "localhost", 80)),
        ("HTTPS://Example.org", Origin("https", "example.org", 443)),
        ("https://example.org:8443", Origin("https", "example.org", 8443)),
        ("http://[::1]:3000", Origin("http", "::1", 3000)),
        ("vscode-webview://abc", Origin("vscode-webview", "abc", None)),
    ],
)
def test_an_origin_is_read(value: str, expected: Origin) -> None:
    assert parse_origin(value) == expected


@pytest.mark.parametrize(
    "value",
    ["", "null", "localhost", "http://", "http://a/", "http://a b", "http://a http://b", "http:a", "://a", "file://"],
)
def test_a_value_that_is_not_a_single_origin_is_refused(value: str) -> None:
    with pytest.raises(ValueError):
        parse_origin(value)


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("us-west1", "us-west1"),
        ("", ""),
        ("two words", "two words"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("a\tb", "=?base64?YQli?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ],
)
def test_a_text_travels_in_a_header_as_the_specification_shows(text: str, header: str) -> None:
    assert encode_header_value(text) == header
    assert decode_header_value(header) == text


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ("=?base64?SGVsbG8=?=", "Hello"),
        ("=?base64??=", ""),
        ("SGVsbG8=?=", "SGVsbG8=?="),
        ("=?base64?SGVsbG8=", "=?base64?SGVsbG8="),
        ("=?BASE64?SGVsbG8=?=", "=?BASE64?SGVsbG8=?="),
        ("=?base64?=", "=?base64?="),
        ("  x\t", "x"),
        ("a\tb", "a\tb"),
    ],
)
def test_a_header_without_both_marks_is_literal(header: str, text: str) -> None:
    assert decode_header_value(header) == text


@pytest.mark.parametrize(
    "header",
    [
        "=?base64?SGVsbG8?=",
        "=?base64?SGVs!!!bG8=?=",
        "=?base64?SGVsbG9=?=",
        "=?base64?SGVsbG8==?=",
        "=?base64?SGVs bG8=?=",
        "=?base64?_w==?=",
        "=?base64?/w==?=",
        "caf\xe9",
        "a\nb",
        "a\0b",
        "\x7f",
    ],
)
def test_a_header_that_could_be_read_in_two_ways_is_refused(header: str) -> None:
    with pytest.raises(ValueError):
        decode_header_value(header)


@given(TEXT)
def test_every_text_comes_back_from_its_header(text: str) -> None:
    header = encode_header_value(text)
    assert header.isascii()
    assert header.isprintable()
    assert decode_header_value(f" {header}\t") == text


@given(st.text())
def test_any_text_is_read_or_raises_the_one_error(text: str) -> None:
    accepts(text, [JSON, SSE])
    is_visible_ascii(text)
    for function in (media_type, parse_host, parse_origin, decode_header_value, encode_header_value):
        try:
            function(text)
        except ValueError:
            continue


@pytest.mark.parametrize(
    ("value", "good"),
    [("a", True), ("!~", True), ("", False), ("a b", False), ("a\n", False), ("é", False), ("\x7f", False)],
)
def test_a_session_id_is_visible_ascii(value: str, good: bool) -> None:
    assert is_visible_ascii(value) is good
