"""JSON-RPC bytes become frames or the one error, with the code that the catalogue of bad input asks for."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcptrio._wire.finite import find_non_finite, has_non_finite
from mcptrio._wire.jsonrpc import (
    Error,
    Frame,
    JsonLimits,
    Malformed,
    Notification,
    Request,
    RequestId,
    Response,
    decode,
    encode,
    encode_batch,
    encode_value,
    reject,
)
from mcptrio.errors import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, RemoteProtocolError

PLAIN_TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]))
IDS = st.integers(-(10**1000) + 1, 10**1000 - 1) | st.integers() | PLAIN_TEXT.filter(lambda s: len(s.encode()) <= 1024)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | PLAIN_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PLAIN_TEXT, inner, max_size=4),
    max_leaves=15,
)
OBJECTS = st.dictionaries(PLAIN_TEXT, JSON, max_size=4)
CODES = st.integers(-(2**31), 2**31)
FRAMES = (
    st.builds(Request, IDS, PLAIN_TEXT, OBJECTS)
    | st.builds(Notification, PLAIN_TEXT, OBJECTS)
    | st.builds(Response, IDS, JSON)
    | st.builds(Error, st.none() | IDS, CODES, PLAIN_TEXT, JSON)
)


def refused(data: bytes, limits: JsonLimits | None = None) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(data, limits or JsonLimits())
    return caught.value


# -- what is served


@pytest.mark.parametrize(
    ("data", "frame"),
    [
        ('{"jsonrpc":"2.0","id":1,"method":"ping"}', Request(1, "ping", {})),
        ('{"jsonrpc":"2.0","id":"","method":"ping","params":{}}', Request("", "ping", {})),
        ('{"method":"m","params":{"a":[1]},"id":"1","jsonrpc":"2.0"}\r\n', Request("1", "m", {"a": [1]})),
        ('{"jsonrpc":"2.0","method":"n","extra":1}', Notification("n", {})),
        ('{"jsonrpc":"2.0","id":-0,"result":{}}', Response(0, {})),
        ('{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"no"}}', Error(7, -1, "no")),
        (
            '{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no","data":[1]}}',
            Error(None, -1, "no", [1]),
        ),
        ('{"jsonrpc":"2.0","error":{"code":-1,"message":"no"}}', Error(None, -1, "no")),
        (
            '{"jsonrpc":"2.0","id":1,"method":"m","params":{"__proto__":1,"constructor":2,"__class__":3}}',
            Request(1, "m", {"__proto__": 1, "constructor": 2, "__class__": 3}),
        ),
        (r'{"jsonrpc":"2.0","id":"\u0000","method":"a\u0000b"}', Request("\0", "a\0b", {})),
        (r'{"jsonrpc":"2.0","id":"\ud83d\ude00","method":"m"}', Request("😀", "m", {})),
    ],
)
def test_a_good_message_becomes_its_frame(data: str, frame: Frame) -> None:
    for form in (data.encode(), bytearray(data.encode()), memoryview(data.encode())):
        assert decode(form) == frame


@pytest.mark.parametrize("number", [0, -1, 2**53 + 1, -(2**64), 10**1000 - 1, -(10**1000) + 1])
def test_an_integer_id_keeps_every_digit(number: int) -> None:
    frame = decode(b'{"jsonrpc":"2.0","id":%s,"method":"m"}' % str(number).encode())
    assert isinstance(frame, Request)
    assert frame.id == number
    assert str(number).encode() in encode(Response(frame.id, {}))


def test_ids_1_and_the_text_1_are_different() -> None:
    assert decode(b'{"jsonrpc":"2.0","id":1,"method":"m"}') != decode(b'{"jsonrpc":"2.0","id":"1","method":"m"}')


# -- what is refused: RELIABILITY rows J and R


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"",
        b"   ",
        '{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"),
        '{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16-le"),
        b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        rb'{"jsonrpc":"2.0","id":"\ud800","method":"ping"}',
        b'{"jsonrpc":"2.0","id":"\xed\xa0\x80","method":"ping"}',
        b'{"jsonrpc":"2.0","id":"\xff","method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"} // hello',
        b'/* hello */{"jsonrpc":"2.0","id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping",}',
        b"{'jsonrpc':'2.0','id':1,'method':'ping'}",
        b'{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":01,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"a\tb"}',
        b"hello",
    ],
)
def test_bytes_that_are_not_json_in_utf8_are_a_parse_error(data: bytes) -> None:
    error = refused(data)
    assert (error.code, error.request_id, error.http_status) == (PARSE_ERROR, None, 400)


@pytest.mark.parametrize(
    "data",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":Infinity}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":-Infinity}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1e400}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":' + b"9" * 5000 + b"}}",
        rb'{"jsonrpc":"2.0","id":1,"method":"ping","\udfff":1}',
        rb'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\ud800"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
    ],
)
def test_a_parse_error_names_the_id_that_a_tolerant_parser_can_read(data: bytes) -> None:
    error = refused(data)
    assert (error.code, error.request_id, error.http_status) == (PARSE_ERROR, 1, 400)


@pytest.mark.parametrize(
    "data",
    [
        rb'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping","params":{"a":NaN}}',
        rb'{"jsonrpc":"2.0","id":1,"result":{"a":NaN}}',
        rb'[["id",1],["method",NaN]]',
        b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"ping"}',
        rb'{"jsonrpc":"2.0","id":true,"method":"ping","params":{"a":NaN}}',
    ],
)
def test_an_id_that_is_in_doubt_is_not_recovered(data: bytes) -> None:
    assert refused(data).request_id is None


@pytest.mark.defect("C18")
def test_lone_surrogates_in_an_error_text_are_escaped() -> None:
    data = encode(Error(1, -32603, "no \ud800 such ü file"))
    assert msgspec.json.decode(data)["error"]["message"] == "no \\ud800 such ü file"


@pytest.mark.parametrize(
    ("data", "request_id"),
    [
        # J10: duplicate keys, at any level; the id is echoed when it is not in doubt
        ('{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}', None),
        ('{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}', None),
        ('{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":[{"y":1,"y":1}]}}', 1),
        (r'{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":1,"\u0078":2}}', 1),
        (r'{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":1,"x":"\u003a"}}', 1),
        # J11: names in other letters
        ('{"jsonrpc":"2.0","id":1,"Method":"ping"}', 1),
        ('{"jsonrpc":"2.0","id":1,"method":"ping","PARAMS":{}}', 1),
        ('{"jsonrpc":"2.0","id":1,"method":"ping","param\u017f":{}}', 1),
        ('{"jsonrpc":"2.0","ID":1,"method":"ping"}', None),
        ('{"JSONRPC":"2.0","id":1,"method":"ping"}', 1),
        # J15
        ("null", None),
        ("1", None),
        ('"ping"', None),
        ("true", None),
        # R04
        ("[]", None),
        # R09, R10
        ('{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None),
        ('{"jsonrpc":"2.0","id":1e300,"method":"ping"}', None),
        ('{"jsonrpc":"2.0","id":true,"method":"ping"}', None),
        ('{"jsonrpc":"2.0","id":{},"method":"ping"}', None),
        ('{"jsonrpc":"2.0","id":[],"method":"ping"}', None),
        ('{"jsonrpc":"2.0","id":null,"method":"ping"}', None),
        ('{"jsonrpc":"2.0","id":1' + "0" * 1000 + ',"method":"ping"}', None),
        ('{"jsonrpc":"2.0","id":"' + "x" * 1025 + '","method":"ping"}', None),
        ('{"jsonrpc":"2.0","id":"' + "é" * 513 + '","method":"ping"}', None),
        # R12
        ('{"id":1,"method":"ping"}', 1),
        ('{"jsonrpc":"1.0","id":"a","method":"ping"}', "a"),
        ('{"jsonrpc":2.0,"id":1,"method":"ping"}', 1),
        # R15 and its neighbours
        ('{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}', 1),
        ('{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}', 1),
        ('{"jsonrpc":"2.0","id":1,"method":"ping","error":{}}', 1),
        ('{"jsonrpc":"2.0","id":1}', 1),
        ('{"jsonrpc":"2.0","id":1,"method":null}', 1),
        ('{"jsonrpc":"2.0","id":1,"method":["ping"]}', 1),
        ('{"jsonrpc":"2.0","id":null,"result":{}}', None),
        ('{"jsonrpc":"2.0","result":{}}', None),
        ('{"jsonrpc":"2.0","id":1.5,"error":{"code":1,"message":""}}', None),
        ('{"jsonrpc":"2.0","id":1,"error":null}', 1),
        ('{"jsonrpc":"2.0","id":1,"error":{"code":true,"message":""}}', 1),
        ('{"jsonrpc":"2.0","id":1,"error":{"code":1}}', 1),
    ],
)
def test_json_that_is_no_message_is_an_invalid_request(data: str, request_id: int | str | None) -> None:
    error = refused(data.encode())
    assert (error.code, error.request_id, error.http_status) == (INVALID_REQUEST, request_id, 400)


@pytest.mark.parametrize("params", ["[]", "[1]", '"x"', "1", "true"])
def test_params_that_are_no_object_are_invalid_params(params: str) -> None:
    error = refused(b'{"jsonrpc":"2.0","id":"r","method":"ping","params":%s}' % params.encode())
    assert (error.code, error.request_id) == (INVALID_PARAMS, "r")


def test_more_nodes_than_allowed_are_413() -> None:
    keys = ",".join(f'"k{i}":0' for i in range(200_000))
    error = refused(f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{{{keys}}}}}'.encode())
    assert error.http_status == 413


# -- batches


def test_a_malformed_member_does_not_harm_the_others() -> None:
    """2025-03-26: each call of a batch gets its own answer."""
    batch = decode(
        b'[{"jsonrpc":"2.0","id":1,"method":"a"}, {"jsonrpc":"2.0","id":2,"method":"b","params":{"x":1,"x":2}},'
        b' 7, [], {"jsonrpc":"2.0","method":"c"}]'
    )
    assert isinstance(batch, tuple)
    first, doubled, scalar, nested, last = batch
    assert first == Request(1, "a", {})
    assert last == Notification("c", {})
    for member, request_id in ((doubled, 2), (scalar, None), (nested, None)):
        assert isinstance(member, Malformed)
        assert (member.error.code, member.error.request_id) == (INVALID_REQUEST, request_id)


def test_a_batch_may_have_100_messages_and_not_101() -> None:
    member = b'{"jsonrpc":"2.0","id":1,"method":"a"}'
    assert decode(b"[" + b",".join([member] * 100) + b"]") == (Request(1, "a", {}),) * 100
    assert refused(b"[" + b",".join([member] * 101) + b"]").code == INVALID_REQUEST


@given(st.lists(FRAMES, min_size=1, max_size=5))
def test_a_batch_comes_back_as_it_was_written(frames: list[Frame]) -> None:
    assert decode(encode_batch(frames)) == tuple(frames)


# -- properties


@given(FRAMES)
def test_a_frame_comes_back_as_it_was_written(frame: Frame) -> None:
    assert decode(encode(frame)) == frame
    assert b"\n" not in encode(frame)


@given(IDS, JSON)
def test_a_result_that_is_written_already_makes_the_same_answer(request_id: RequestId, result: Any) -> None:
    written = Response(request_id, msgspec.Raw(encode_value(result)))
    assert encode(written) == encode(Response(request_id, result))


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_frame_or_the_one_error(data: bytes) -> None:
    try:
        decode(data)
    except RemoteProtocolError:
        return


MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        name: JSON | st.sampled_from(["2.0", 1]) for name in ("jsonrpc", "id", "method", "params", "result", "error")
    },
)


@given(MEMBERS | st.lists(MEMBERS, max_size=3))
def test_any_members_are_frames_or_the_one_error_and_an_id_is_only_echoed_as_sent(value: Any) -> None:
    try:
        decode(json.dumps(value).encode())
    except RemoteProtocolError as error:
        echoed = error.request_id
    else:
        return
    assert echoed is None or echoed == value["id"]


@given(FRAMES, st.data())
def test_a_frame_cut_short_is_a_parse_error(frame: Frame, data: st.DataObject) -> None:
    encoded = encode(frame)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    assert refused(encoded[:cut]).code == PARSE_ERROR


# -- writing


@pytest.mark.parametrize(
    ("frame", "data"),
    [
        (Request(1, "m", {"a": 1}), b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}'),
        (Request(1, "m"), b'{"jsonrpc":"2.0","id":1,"method":"m"}'),
        (Notification("m"), b'{"jsonrpc":"2.0","method":"m"}'),
        (Response("a", {}), b'{"jsonrpc":"2.0","id":"a","result":{}}'),
        (Response(1, msgspec.Raw(b'{"x":null}')), b'{"jsonrpc":"2.0","id":1,"result":{"x":null}}'),
        (Response(1, {"x": msgspec.Raw(b"[null]")}), b'{"jsonrpc":"2.0","id":1,"result":{"x":[null]}}'),
        (Error(1, -1, "no"), b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}'),
        (
            Error(None, -1, "no", {"a": 1}),
            b'{"jsonrpc":"2.0","error":{"code":-1,"message":"no","data":{"a":1}}}',
        ),
    ],
)
def test_members_are_written_in_their_order(frame: Frame, data: bytes) -> None:
    assert encode(frame) == data


@dataclass
class Reading:
    value: float


class Sample(msgspec.Struct):
    value: float


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_lacks_is_refused_and_located(number: float) -> None:
    """It would be sent as null, which the reader could not notice."""
    for value, path in (
        ({"rows": [1.5, {"x": number}]}, r"\$\.result\.rows\[1\]\.x"),
        ({"rows": (Reading(number),)}, r"\$\.result\.rows\[0\]\.value"),
        ({"rows": [None, {"x": Sample(number)}]}, r"\$\.result\.rows\[1\]\.x\.value"),
        ([1, {number}], r"\$\.result\[1\]\[0\]"),
        (Sample(number), r"\$\.result\.value"),
        (number, r"\$\.result"),
    ):
        with pytest.raises(ValueError, match=path):
            encode(Response(1, value))
    with pytest.raises(ValueError):
        encode(Error(1, -1, "no", [number]))
    with pytest.raises(ValueError):
        encode_value(number)


@given(JSON)
def test_finite_values_are_never_reported_as_non_finite(value: Any) -> None:
    assert find_non_finite(value) is None
    assert not has_non_finite(value)
    assert decode(encode(Response(1, value))) == Response(1, value)


@pytest.mark.parametrize(("value", "error"), [({"a": "\ud800"}, ValueError), ({"a": object()}, TypeError)])
def test_a_value_without_a_json_form_is_refused(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        encode(Response(1, value))


def test_a_rejection_names_the_id_or_has_none() -> None:
    named = RemoteProtocolError("no", code=INVALID_PARAMS, request_id="r", data=[1])
    assert reject(named) == Error("r", INVALID_PARAMS, "no", [1])
    assert encode(reject(RemoteProtocolError("no"))) == b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"no"}}'


@pytest.mark.parametrize(
    ("members", "frame"),
    [
        ('"result":{"a":1},"error":null', Response(1, {"a": 1})),
        ('"result":null,"error":{"code":5,"message":"no"}', Error(1, 5, "no")),
        ('"result":null,"error":null', Response(1, None)),
        ('"result":null', Response(1, None)),
    ],
)
def test_a_null_result_or_error_next_to_the_other_is_ignored(members: str, frame: Frame) -> None:
    assert decode(f'{{"jsonrpc":"2.0","id":1,{members}}}'.encode()) == frame


@pytest.mark.parametrize(
    "data",
    [
        b'{"jsonrpc":"2.0","id":1.0,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":null}',
        b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}',
    ],
    ids=["id as a float", "null params", "byte order mark"],
)
def test_messages_that_other_programs_write_unusually_are_read(data: bytes) -> None:
    frame = decode(data)
    assert frame == Request(1, "ping", {})
    assert type(frame.id) is int


def test_neg_only_one_byte_order_mark_is_ignored() -> None:
    assert refused(b"\xef\xbb\xbf" * 2 + b"{}").code == PARSE_ERROR
