"""JSON-RPC 2.0: bytes to frames and back.

`decode` returns frames or raises `RemoteProtocolError`, never anything else, whatever the bytes. It is strict where two
readers of one message could disagree: UTF-8 only, no duplicate keys, exact member names, no NaN, no lone surrogates.
Ids keep their type and every digit.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from mcptrio._wire.finite import find_non_finite, has_non_finite
from mcptrio._wire.scan import JsonLimits, check_in_parts, check_limits, has_duplicate_keys, lost_keys
from mcptrio.errors import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, RemoteProtocolError

__all__ = [
    "DEFAULT_LIMITS",
    "AnyFrame",
    "Batch",
    "Error",
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
    "escape_surrogates",
    "reject",
]

RequestId: TypeAlias = int | str

DEFAULT_LIMITS: Final = JsonLimits()
MAX_ID_BYTES: Final = 1024
_RECOVERABLE: Final = 64 * 1024  # bytes; a longer message is not parsed again to recover its id
_ID_DIGITS: Final = 1000
_ID_BOUND: Final = 10**_ID_DIGITS


class LoneSurrogate(ValueError):
    """A text with half of a character, as Python reads the name of a file that is not UTF-8. JSON cannot carry it."""

    reason = "a text has a lone surrogate, which JSON cannot carry"

    def __init__(self, text: str, at: int) -> None:
        part = text[max(0, at - 40) : at + 40]
        advice = 'replace it, for example with text.encode(errors="replace").decode()'
        super().__init__(f"{self.reason}: {part!a}; {advice}")


# The tag writes `"jsonrpc":"2.0"` first, so that a frame is encoded in one pass.
class Request(Struct, frozen=True, tag_field="jsonrpc", tag="2.0", omit_defaults=True):
    """A call that expects a response. Empty `params` are left out on the wire."""

    id: RequestId
    method: str
    params: dict[str, Any] = {}


class Notification(Struct, frozen=True, tag_field="jsonrpc", tag="2.0", omit_defaults=True):
    """A message without an id, which is never answered."""

    method: str
    params: dict[str, Any] = {}


class Notice(Struct, frozen=True, tag_field="jsonrpc", tag="2.0"):
    """A notification to send, whose parameters are JSON already: they were encoded where errors can be raised."""

    method: str
    params: Raw


class Response(Struct, frozen=True, tag_field="jsonrpc", tag="2.0"):
    """The response to a request that succeeded.

    `result` is any JSON value, or `msgspec.Raw`: bytes that are JSON already.
    """

    id: RequestId
    result: Any


class Error(Struct, frozen=True):
    """The response to a request that failed.

    Its id is None, and left out on the wire, when it answers a message that could not be read.
    """

    id: RequestId | None
    code: int
    message: str
    data: Any = None


class Malformed(Struct, frozen=True):
    """A member of a received batch that is not a JSON-RPC message; the other members stay valid."""

    error: RemoteProtocolError


Frame: TypeAlias = Request | Notification | Response | Error
Batch: TypeAlias = tuple[Frame | Malformed, ...]
AnyFrame: TypeAlias = Frame | Batch | Malformed


class _ErrorBody(Struct, frozen=True, omit_defaults=True):
    code: int
    message: str
    data: Any = None


class _ErrorOnTheWire(Struct, frozen=True, tag_field="jsonrpc", tag="2.0"):
    id: RequestId | UnsetType
    error: _ErrorBody


_SMALL_BUFFER: Final = 4096
LARGE_MESSAGE: Final = 64 * 1024
"""Bytes of a message that take so long to decode that other tasks should run before it is handled."""
T = TypeVar("T")
_TWICE: Final = "A key occurs twice in one object"
_MUCH: Final = 1024 * 1024  # bytes from which on encoding costs more than looking at 100,000 nodes
_decode_json: Final = msgspec.json.Decoder().decode
_decode_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_batch: Final = msgspec.json.Decoder(list[Raw]).decode
_encode_json: Final = msgspec.json.Encoder().encode
_EXACT_FLOAT: Final = 2**53  # beyond it a float stands for several integers
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_MEMBERS: Final = frozenset({"jsonrpc", "id", "method", "params", "result", "error"})


def decode(data: bytes | bytearray | memoryview, limits: JsonLimits = DEFAULT_LIMITS) -> Frame | Batch:
    """Read one message or, as a tuple, one batch.

    Raises:
        RemoteProtocolError: the bytes are no JSON-RPC; `code` and `http_status` say how to answer, and `request_id` is
            set wherever an id could be read.
    """
    if isinstance(data, memoryview):
        data = data.tobytes()
    if data.startswith(BYTE_ORDER_MARK):  # RFC 8259 section 8.1: a reader may ignore it
        data = data[3:]
    # The length bounds the number of nodes, and brackets the depth: only a large text needs an exact scan.
    if len(data) >= limits.max_nodes or data.count(b"[") + data.count(b"{") > limits.max_depth:
        check_limits(data, limits)
    return _message(data, _parse(data), limits)


def decode_in_parts(data: bytes, limits: JsonLimits = DEFAULT_LIMITS) -> Generator[None, None, Frame | Batch]:
    """Read a large message as `decode` does, in parts that take milliseconds each."""
    data = data.removeprefix(BYTE_ORDER_MARK)
    yield from check_in_parts(data, limits)
    yield
    tree = _parse(data)
    yield
    if type(tree) is not dict:
        return _message(data, tree, limits)
    if len(data) > _MUCH:
        twice = yield from lost_keys(data, tree)
    else:
        encoded = _encode_json(tree)
        yield
        twice = has_duplicate_keys(data, encoded)
    if twice:
        raise _invalid(_TWICE, _unambiguous_id(data, tree))
    return _frame(tree)


def finish(parts: Generator[None, None, T]) -> T:
    """Run a generator to its end; return its value."""
    while True:
        try:
            next(parts)
        except StopIteration as done:
            value: T = done.value
            return value


def _parse(data: bytes | bytearray) -> Any:
    try:
        return _decode_json(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = "The message is not valid JSON in UTF-8"
        raise RemoteProtocolError(text, code=PARSE_ERROR, request_id=_recover_id(data)) from None


def _message(data: bytes | bytearray, tree: Any, limits: JsonLimits) -> Frame | Batch:
    if type(tree) is list:
        return _batch(data, tree, limits)
    if _has_duplicate_keys(data, tree):
        raise _invalid(_TWICE, _unambiguous_id(data, tree))
    return _frame(tree)


def _has_duplicate_keys(data: bytes | bytearray, tree: Any) -> bool:
    if len(data) > _MUCH:
        return finish(lost_keys(data, tree))
    encoded = _encode_json(tree)
    return encoded != data and has_duplicate_keys(data, encoded)  # most programs write compact JSON


def _recover_id(data: bytes | bytearray) -> RequestId | None:
    """Return the id of a request that only a tolerant parser can read, so that its sender need not wait for a timeout.

    For example one with a lone surrogate, a NaN, a number of 5,000 digits or invalid UTF-8 in its parameters.
    """
    if len(data) > _RECOVERABLE or not data.lstrip().startswith(b"{"):
        return None
    import json  # rarely needed

    try:
        members = json.loads(data.decode("utf-8", "replace"), object_pairs_hook=list, parse_int=_short_int)
        names = [name for name, _ in members]
        found = dict(members)["id"] if names.count("id") == 1 and "method" in names else None
        is_exact = type(found) is int or (type(found) is str and found.isascii())
        return found if is_exact and _is_id(found) else None
    except (ValueError, TypeError, RecursionError):  # not JSON at all, or no object
        return None


def _short_int(digits: str) -> int | None:
    """Read an integer; None if it is longer than an id may be. Python refuses to read one of more than 4,300 digits."""
    return int(digits) if len(digits) <= _ID_DIGITS else None


def _batch(data: bytes | bytearray, members: list[Any], limits: JsonLimits) -> Batch:
    if not members:
        raise _invalid("A batch must not be empty", None)  # JSON-RPC 2.0 section 6
    if len(members) > limits.max_batch:
        text = f"A batch may have at most {limits.max_batch} messages"
        raise RemoteProtocolError(text, code=INVALID_REQUEST, limit="batch")
    return tuple(_member(bytes(raw), tree) for raw, tree in zip(_decode_batch(data), members, strict=True))


def _member(data: bytes, tree: Any) -> Frame | Malformed:
    try:
        if _has_duplicate_keys(data, tree):
            raise _invalid(_TWICE, _unambiguous_id(data, tree))
        return _frame(tree)
    except RemoteProtocolError as error:
        return Malformed(error)


def _frame(message: Any) -> Frame:
    if type(message) is not dict:
        raise _invalid("A message must be a JSON object", None)
    known = 0
    request_id = message.get("id", UNSET)
    known += request_id is not UNSET
    if type(request_id) is float and request_id.is_integer() and abs(request_id) < _EXACT_FLOAT:
        # Languages with one type of number write 1.0 for 1, which is an integer to every schema.
        message["id"] = request_id = int(request_id)
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
    if params is UNSET or params is None:  # many programs write null for what they leave out
        params = {}
    elif type(params) is not dict:
        raise RemoteProtocolError('"params" must be an object', code=INVALID_PARAMS, request_id=_echo(message))
    return Notification(method, params) if request_id is UNSET else Request(request_id, method, params)


def _answer(message: dict[str, Any]) -> Response | Error:
    request_id = _echo(message)
    if len(message) == 3 and request_id is not None and "result" in message:
        return Response(request_id, message["result"])  # the usual case: no other members
    _check_members(message)
    present = [name for name in ("result", "error") if name in message]
    if len(present) == 2:  # some implementations write both, with null for the unused one
        present = [name for name in present if message[name] is not None] or ["result"]
    if len(present) != 1:
        raise _invalid("A message has either a method or a result or an error", request_id)
    if present == ["result"]:
        if request_id is None:
            raise _invalid('The "id" of a response must be a string or an integer', None)
        return Response(request_id, message["result"])
    if request_id is None and message.get("id") is not None:
        raise _invalid('"id" must be a string or an integer', None)
    error = message["error"]
    if type(error) is not dict or type(error.get("code")) is not int or type(error.get("message")) is not str:
        raise _invalid('"error" must have an integer "code" and a string "message"', request_id)
    return Error(request_id, error["code"], error["message"], error.get("data"))


def _check_members(message: dict[str, Any]) -> None:
    """Allow unknown members, but not a known name in another case, which another reader might accept."""
    for name in message:
        if name not in _MEMBERS and name.casefold() in _MEMBERS:
            raise _invalid(f"Member names are case-sensitive: {name!a}", _echo(message))


def _is_id(value: Any) -> bool:
    if type(value) is int:
        return -_ID_BOUND < value < _ID_BOUND
    return type(value) is str and (len(value) <= MAX_ID_BYTES // 4 or len(value.encode()) <= MAX_ID_BYTES)


def _echo(message: dict[str, Any]) -> RequestId | None:
    """Return the id to respond to, or None if there is no valid one."""
    request_id: Any = message.get("id")
    return request_id if _is_id(request_id) else None


def _unambiguous_id(data: bytes | bytearray, tree: Any) -> RequestId | None:
    """Return the id of a message with duplicate keys, unless the id itself may be one of them."""
    if len(data) > _MUCH or type(tree) is not dict or has_duplicate_keys(data, _encode_json(_decode_members(data))):
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
    if type(frame) is Error:
        body = _ErrorBody(frame.code, escape_surrogates(frame.message), frame.data)
        # `RequestId` is never null in the schemas: an error without an id has no "id" at all.
        return encode_value(_ErrorOnTheWire(UNSET if frame.id is None else frame.id, body))
    if type(frame) is Response and type(frame.result) is Raw:  # already encoded and checked: add the envelope only
        number = b"%d" % frame.id if type(frame.id) is int else _encode_json(frame.id)
        return b"".join((b'{"jsonrpc":"2.0","id":', number, b',"result":', frame.result, b"}"))
    return encode_value(frame)


def encode_notice(notice: Notice) -> bytes:
    """Write a notification whose parameters are JSON already, in one line."""
    return _encode_json(notice)


def escape_surrogates(text: str) -> str:
    """Return a text for a message to the peer: lone surrogates, which JSON cannot carry, become escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def encode_batch(frames: Iterable[Frame]) -> bytes:
    """Write several frames as one batch; raises what `encode` raises."""
    return b"[" + b",".join(map(encode, frames)) + b"]"


def encode_value(value: Any) -> bytes:
    """Write any value; `msgspec.Raw(encode_value(result))` may stand as the result of a `Response`.

    Raises: what `encode` raises.
    """
    encoded = encode_finite(value)
    # Non-finite numbers are encoded as null, so only a value whose text contains null is searched.
    if b"null" in encoded and has_non_finite(value):
        raise ValueError(f"JSON has neither NaN nor infinities: {find_non_finite(value)}")
    return encoded


def encode_finite(value: Any) -> bytes:
    """Write a value that is known to have no NaN and no infinity, such as one that `dump` made.

    Raises: what `encode` raises.
    """
    try:
        return _encode_json(value)
    except UnicodeEncodeError as error:
        raise LoneSurrogate(error.object, error.start) from None


def exact(data: bytes) -> bytes:
    """Return encoded bytes to keep, in a buffer of their size. msgspec makes large ones half as large again as needed,
    which the bounds of a table that counts bytes would miss."""
    return bytes(memoryview(data)) if len(data) > _SMALL_BUFFER else data


def reject(error: RemoteProtocolError) -> Error:
    """Return the error response that tells the peer what was wrong with its message."""
    return Error(error.request_id, error.code, error.message, error.data)
