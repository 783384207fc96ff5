"""Decoding of large messages: other tasks run between its parts, because each of them takes milliseconds.

A server decodes one large message of an owner at a time, so that the connections of one client together take one part
in each turn of the event loop, and the memory of one decoded message.
"""

from __future__ import annotations

import trio

from mcptrio._wire.jsonrpc import DEFAULT_LIMITS, Batch, Frame, decode_in_parts
from mcptrio._wire.scan import JsonLimits


async def decode_in_turns(data: bytes | bytearray | memoryview, limits: JsonLimits = DEFAULT_LIMITS) -> Frame | Batch:
    """Decode a message of more than `LARGE_MESSAGE` bytes.

    Raises:
        RemoteProtocolError: the bytes are no JSON-RPC.
    """
    parts = decode_in_parts(bytes(data), limits)
    while True:
        await trio.lowlevel.checkpoint()
        try:
            next(parts)
        except StopIteration as done:
            frame: Frame | Batch = done.value
            break
    await trio.lowlevel.checkpoint()
    return frame
