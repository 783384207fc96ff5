"""The size of requests. A call keeps the parameters of its request until it ends, which counts as memory.

Decoded JSON takes more memory than its text: an empty list takes two bytes of a text and 64 of memory.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from mcptrio._wire.jsonrpc import BYTE_ORDER_MARK, Batch, Frame, Request
from mcptrio._wire.scan import JsonLimits

COUNTED: Final = 4096
"""Bytes above which a request counts. A smaller one takes about as much as the call itself."""
# Bytes of memory, beyond those of the text
_VALUE: Final = 40
_ARRAY: Final = 64
_OBJECT: Final = 160
_NODE: Final = 100
_decode_batch: Final = msgspec.json.Decoder(list[Raw]).decode


class SizedParams(dict[str, Any]):
    """The parameters of a request that counts as memory, with its size in bytes."""

    __slots__ = ("size",)

    def __init__(self, params: dict[str, Any], size: int) -> None:
        super().__init__(params)
        self.size = size


def with_size(frame: Frame | Batch, data: bytes | bytearray, limits: JsonLimits) -> Frame | Batch:
    """Let the requests in a message know their size, if they count."""
    if type(frame) is Request:
        return _sized(frame, data, limits)
    if type(frame) is tuple:
        parts = zip(frame, _decode_batch(data.removeprefix(BYTE_ORDER_MARK)), strict=True)
        return tuple(
            _sized(member, bytes(part), limits) if type(member) is Request else member for member, part in parts
        )
    return frame


def _sized(request: Request, data: bytes | bytearray, limits: JsonLimits) -> Request:
    size = memory_of(data, limits)
    return replace(request, params=SizedParams(request.params, size)) if size > COUNTED else request


def memory_of(data: bytes | bytearray, limits: JsonLimits) -> int:
    """Estimate the bytes that a JSON text takes when it is decoded; rather too many, if its strings have commas."""
    extra = _VALUE * data.count(b",") + _ARRAY * data.count(b"[") + _OBJECT * data.count(b"{")
    return len(data) + min(extra, _NODE * limits.max_nodes)
