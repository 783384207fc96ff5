"""JSON-RPC 2.0: bytes to frames and back.

`decode` returns frames or raises `RemoteProtocolError`, never anything else, whatever the bytes. It is strict where two
readers of one message could disagree: UTF-8 only, no duplicate keys, exact member names, no NaN, no lone surrogates.
Ids keep their type and every digit.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from mcptrio._wire.scan import JsonLimits, check_limits, has_duplicate_keys
from mcptrio.errors import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, RemoteProtocolError

__all__ = [
    "DEFAULT_LIMITS",
    "Batch",
    "ErrorResponse",
    "Frame",
    "JsonLimits",
    "Malformed",
    "Notification",
    "Request",
    "RequestId",
    "Response",
    "decode",
    "encode",
    "encode_batch",
    "encode_value",
    "find_non_finite",
    "reject",
]

RequestId: TypeAlias = int | str

DEFAULT_LIMITS: Final = JsonLimits()
MAX_ID_BYTES: Final = 1024
_ID_BOUND: Final = 10**1000  # ids have at most 1,000 digits


# The tag writes `"jsonrpc":"2.0"` first, so that a frame is encoded in one pass.
class Request(Struct, frozen=True, tag_field="jsonrpc", tag="2.0", omit_defaults=True):
    """A call that wants an answer. Empty `params` are left out on the wire."""

    id: RequestId
    method: str
    params: dict[str, Any] = {}


class Notification(Struct, frozen=True, tag_field="jsonrpc", tag="2.0", omit_defaults=True):
    """A message that is never answered."""

    method: str
    params: dict[str, Any] = {}


class Response(Struct, frozen=True, tag_field="jsonrpc", tag="2.0"):
    """The answer to a request. `result` may be `msgspec.Raw`: bytes that are JSON already, see `encode_value`."""

    id: RequestId
    result: Any


class ErrorResponse(Struct, frozen=True):
    """A refusal. Its id is None, and left out on the wire, when it answers something that could not be read."""

    id: RequestId | None
    code: int
    message: str
    data: Any = None


class Malformed(Struct, frozen=True):
    """A member of a received batch that is no frame; the other members are served all the same."""

    error: RemoteProtocolError


Frame: TypeAlias = Request | Notification | Response | ErrorResponse
Batch: TypeAlias = tuple[Frame | Malformed, ...]


class _ErrorBody(Struct, frozen=True, omit_defaults=True):
    code: int
    message: str
    data: Any = None


class _ErrorOnTheWire(Struct, frozen=True, tag_field="jsonrpc", tag="2.0"):
    id: RequestId | UnsetType
    error: _ErrorBody


_decode_json: Final = msgspec.json.Decoder().decode
_decode_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_batch: Final = msgspec.json.Decoder(list[Raw]).decode
_encode_json: Final = msgspec.json.Encoder().encode
_MEMBERS: Final = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})


def decode(data: bytes | bytearray | memoryview, limits: JsonLimits = DEFAULT_LIMITS) -> Frame | Batch:
    """Read one message or, as a tuple, one batch.

    Raises:
        RemoteProtocolError: the bytes are no JSON-RPC; `code` and `http_status` say how to answer, and `request_id` is
            set wherever an id could be read.
    """
    if isinstance(data, memoryview):
        data = data.tobytes()
    check_limits(data, limits)
    try:
        tree = _decode_json(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RemoteProtocolError("The message is not valid JSON in UTF-8", code=PARSE_ERROR) from None
    if type(tree) is list:
        return _batch(data, tree, limits)
    if has_duplicate_keys(data, tree):
        raise _invalid("A key occurs twice in one object", _unambiguous_id(data, tree))
    return _frame(tree)


def _batch(data: bytes | bytearray, members: list[Any], limits: JsonLimits) -> Batch:
    if not members:
        raise _invalid("A batch must not be empty", None)  # JSON-RPC 2.0 section 6
    if len(members) > limits.max_batch:
        text = f"A batch may have at most {limits.max_batch} messages"
        raise RemoteProtocolError(text, code=INVALID_REQUEST, limit="batch")
    return tuple(_member(bytes(raw), tree) for raw, tree in zip(_decode_batch(data), members, strict=True))


def _member(data: bytes, tree: Any) -> Frame | Malformed:
    try:
        if has_duplicate_keys(data, tree):
            raise _invalid("A key occurs twice in one object", _unambiguous_id(data, tree))
        return _frame(tree)
    except RemoteProtocolError as error:
        return Malformed(error)


def _frame(message: Any) -> Frame:
    if type(message) is not dict:
        raise _invalid("A message must be a JSON object", None)
    known = 0
    request_id = message.get("id", UNSET)
    known += request_id is not UNSET
    if message.get("jsonrpc") != "2.0":
        raise _invalid('"jsonrpc" must be "2.0"', _echo(message))
    method = message.get("method", UNSET)
    if method is UNSET:
        return _answer(message)
    params = message.get("params", UNSET)
    known += 2 + (params is not UNSET)
    if len(message) != known:
        _check_members(message)
        if "result" in message or "error" in message:
            raise _invalid("A message has either a method or a result or an error", _echo(message))
    if type(method) is not str:
        raise _invalid('"method" must be a string', _echo(message))
    if request_id is not UNSET and not _is_id(request_id):
        raise _invalid('"id" must be a string or an integer', None)
    if params is UNSET:
        params = {}
    elif type(params) is not dict:
        # Null is refused too: JSON-RPC 2.0 section 4.2 lets "params" be left out, but not be null.
        raise RemoteProtocolError('"params" must be an object', code=INVALID_PARAMS, request_id=_echo(message))
    return Notification(method, params) if request_id is UNSET else Request(request_id, method, params)


def _answer(message: dict[str, Any]) -> Response | ErrorResponse:
    request_id = _echo(message)
    if len(message) == 3 and request_id is not None and "result" in message:
        return Response(request_id, message["result"])  # as nearly all of them are: nothing else is in it
    _check_members(message)
    if ("result" in message) == ("error" in message):
        raise _invalid("A message has either a method or a result or an error", request_id)
    if "result" in message:
        if request_id is None:
            raise _invalid('The "id" of a response must be a string or an integer', None)
        return Response(request_id, message["result"])
    if request_id is None and message.get("id") is not None:
        raise _invalid('"id" must be a string or an integer', None)
    error = message["error"]
    if type(error) is not dict or type(error.get("code")) is not int or type(error.get("message")) is not str:
        raise _invalid('"error" must have an integer "code" and a string "message"', request_id)
    return ErrorResponse(request_id, error["code"], error["message"], error.get("data"))


def _check_members(message: dict[str, Any]) -> None:
    """Let unknown members pass, but not a known name in other letters: another reader might take it for the known."""
    for name in message:
        if name not in _MEMBERS and name.casefold() in _MEMBERS:
            raise _invalid(f"Member names are case-sensitive: {name!a}", _echo(message))


def _is_id(value: Any) -> bool:
    if type(value) is int:
        return -_ID_BOUND < value < _ID_BOUND
    return type(value) is str and (len(value) <= MAX_ID_BYTES // 4 or len(value.encode()) <= MAX_ID_BYTES)


def _echo(message: dict[str, Any]) -> RequestId | None:
    """The id to answer to, or None if there is no valid one."""
    request_id: Any = message.get("id")
    return request_id if _is_id(request_id) else None


def _unambiguous_id(data: bytes | bytearray, tree: Any) -> RequestId | None:
    """The id of a message with duplicate keys, unless the id itself may be one of them."""
    if type(tree) is not dict or has_duplicate_keys(data, _decode_members(data)):
        return None
    return _echo(tree)


def _invalid(message: str, request_id: RequestId | None) -> RemoteProtocolError:
    return RemoteProtocolError(message, code=INVALID_REQUEST, request_id=request_id)


def encode(frame: Frame) -> bytes:
    """Write one frame, in one line.

    Raises:
        ValueError: a number that JSON does not have (NaN, an infinity), or a lone surrogate.
        TypeError: a value that has no JSON form.
    """
    if type(frame) is ErrorResponse:
        body = _ErrorBody(frame.code, frame.message, frame.data)
        # `RequestId` is never null in the schemas: an error without an id has no "id" at all.
        return encode_value(_ErrorOnTheWire(UNSET if frame.id is None else frame.id, body))
    if type(frame) is Response and type(frame.result) is Raw:  # written and checked before: it needs an envelope only
        number = frame.id
        return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (
            b"%d" % number if type(number) is int else _encode_json(number),
            frame.result,
        )
    return encode_value(frame)


def encode_batch(frames: Iterable[Frame]) -> bytes:
    """Write several frames as one batch; raises what `encode` raises."""
    return b"[" + b",".join(map(encode, frames)) + b"]"


def encode_value(value: Any) -> bytes:
    """Write any value; `msgspec.Raw(encode_value(result))` may stand as the result of a `Response`.

    Raises: what `encode` raises.
    """
    encoded = _encode_json(value)
    # A number that is not finite is written as null, so only a text with a null in it is worth a walk.
    if b"null" in encoded and (path := find_non_finite(value)) is not None:
        raise ValueError(f"JSON has neither NaN nor infinities: {path}")
    return encoded


def find_non_finite(value: Any) -> str | None:
    """Where in a value the first NaN or infinity stands, as in `$.result.rows[2]`, or None."""
    stack: list[tuple[str, Any]] = [("$", value)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, float):
            if not isfinite(item):
                return path
        elif isinstance(item, dict):
            stack.extend((f"{path}.{key}", child) for key, child in reversed(item.items()))
        elif isinstance(item, list | tuple | set | frozenset):
            stack.extend(reversed([(f"{path}[{index}]", child) for index, child in enumerate(item)]))
        elif isinstance(item, Struct):
            stack.extend((f"{path}.{name}", getattr(item, name)) for name in reversed(item.__struct_fields__))
        elif item is not None and not isinstance(item, str | int | bytes | Raw | UnsetType):
            plain = msgspec.to_builtins(item)  # dataclasses, attrs classes, enums, dates, …
            if isinstance(plain, dict | list | float):
                stack.append((path, plain))
    return None


def reject(error: RemoteProtocolError) -> ErrorResponse:
    """The frame that tells the peer what was wrong with its message."""
    return ErrorResponse(error.request_id, error.code, error.message, error.data)
