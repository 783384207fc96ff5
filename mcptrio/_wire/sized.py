"""The size of messages. A call keeps the parameters of its request, and the answers to its questions, until it ends,
which counts as memory.

Decoded JSON takes more memory than its text: an empty list takes two bytes of a text and 64 of memory.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from mcptrio._wire.jsonrpc import (
    BYTE_ORDER_MARK,
    AnyFrame,
    Batch,
    Error,
    Frame,
    Malformed,
    Notification,
    Request,
    Response,
)
from mcptrio._wire.scan import JsonLimits

COUNTED: Final = 4096
"""Bytes above which a message counts. A smaller one takes about as much as the call itself."""
_LONGEST_ERROR: Final = 1000
"""Characters that are kept of the message of a large error."""
# Bytes of memory, beyond those of the text
_VALUE: Final = 40
_ARRAY: Final = 64
_OBJECT: Final = 160
_NODE: Final = 100
_decode_batch: Final = msgspec.json.Decoder(list[Raw]).decode


class SizedObject(dict[str, Any]):
    """The parameters or the result of a message that counts as memory, with the size of the message in bytes."""

    __slots__ = ("size",)

    def __init__(self, members: dict[str, Any], size: int) -> None:
        super().__init__(members)
        self.size = size


def size_of(value: object) -> int:
    """Return the bytes of the message of these parameters, or this result, if it counts; else 0."""
    return value.size if type(value) is SizedObject else 0


def memory_for(frame: AnyFrame) -> int:
    """Return the bytes of the parts of a message that count."""
    match frame:
        case Request() | Notification():
            return size_of(frame.params)
        case Response():
            return size_of(frame.result)
        case tuple():
            return sum(map(memory_for, frame))
    return 0


def with_size(frame: Frame | Batch, data: bytes | bytearray, limits: JsonLimits) -> Frame | Batch:
    """Let the parts of a message know their size, if they count."""
    if not isinstance(frame, tuple):
        return _sized(frame, memory_of(data, limits))
    parts = zip(frame, _decode_batch(data.removeprefix(BYTE_ORDER_MARK)), strict=True)
    return tuple(
        part if isinstance(part, Malformed) else _sized(part, memory_of(bytes(text), limits)) for part, text in parts
    )


def _sized(frame: Frame, size: int) -> Frame:
    if size <= COUNTED:
        return frame
    match frame:
        case Request() | Notification():
            return replace(frame, params=SizedObject(frame.params, size))
        case Response(request_id, dict() as result):
            return Response(request_id, SizedObject(result, size))
        case Error(request_id, code, message):  # a handler may keep the exception, and nothing counts it
            return Error(request_id, code, message[:_LONGEST_ERROR])
    return frame


def memory_of(data: bytes | bytearray, limits: JsonLimits) -> int:
    """Estimate the bytes that a JSON text takes when it is decoded; rather too many, if its strings have commas."""
    extra = _VALUE * data.count(b",") + _ARRAY * data.count(b"[") + _OBJECT * data.count(b"{")
    return len(data) + min(extra, _NODE * limits.max_nodes)
