"""The size of requests. A call keeps the parameters of its request until it ends, which counts as memory."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from mcptrio._wire.jsonrpc import Batch, Frame, Request

COUNTED: Final = 4096
"""Bytes above which a request counts. A smaller one takes less than the call itself."""


class SizedParams(dict[str, Any]):
    """The parameters of a request that counts as memory, with its size in bytes."""

    __slots__ = ("size",)

    def __init__(self, params: dict[str, Any], size: int) -> None:
        super().__init__(params)
        self.size = size


def with_size(frame: Frame | Batch, size: int) -> Frame | Batch:
    """Let the requests in a message know its size; those of a batch share it."""
    if type(frame) is tuple:
        share = size // len(frame)
        return tuple(_sized(member, share) if type(member) is Request else member for member in frame)
    return _sized(frame, size) if type(frame) is Request else frame


def _sized(request: Request, size: int) -> Request:
    return replace(request, params=SizedParams(request.params, size))
