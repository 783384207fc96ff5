"""Decoding of large messages: other tasks run between its parts, because each of them takes milliseconds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from mcptrio._wire.jsonrpc import DEFAULT_LIMITS, Batch, Frame, decode_in_parts
from mcptrio._wire.scan import JsonLimits


async def decode_in_turns(
    data: bytes | bytearray | memoryview,
    limits: JsonLimits = DEFAULT_LIMITS,
    take_turn: Callable[[], Awaitable[None]] | None = None,
) -> Frame | Batch:
    """Decode a message of more than `LARGE_MESSAGE` bytes; `take_turn` waits until the owner may decode a part.

    Raises:
        RemoteProtocolError: the bytes are no JSON-RPC.
    """
    parts = decode_in_parts(bytes(data), limits)
    while True:
        await trio.lowlevel.checkpoint()
        if take_turn is not None:
            await take_turn()
        try:
            next(parts)
        except StopIteration as done:
            frame: Frame | Batch = done.value
            break
    await trio.lowlevel.checkpoint()
    return frame
