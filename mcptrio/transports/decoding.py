"""Decoding of received messages.

Other tasks run between the parts of a large message, because each of them takes milliseconds. The messages that a
server receives know their size, because what calls keep of them counts as memory.
"""

from __future__ import annotations

from time import thread_time
from typing import TYPE_CHECKING, Final

import trio

from mcptrio._wire.jsonrpc import DEFAULT_LIMITS, Batch, Frame, decode, decode_in_parts
from mcptrio._wire.scan import JsonLimits
from mcptrio._wire.sized import COUNTED, memory_of, with_size

if TYPE_CHECKING:
    from mcptrio._actors.runtime import Runtime

_SMALL: Final = 512
"""Bytes of a message that cannot count as memory: see `_wire/sized`."""
_LONG: Final = 0.001
"""Seconds of work after which other tasks run. Each turn of the loop delays the message, so shorter parts of it are
decoded in one turn."""
_REST: Final = 3
"""How many times as long the loop is left to others after a part of a message from a client."""


def memory_to_decode(data: bytes | bytearray, limits: JsonLimits) -> int:
    """Return the bytes that a message takes when it is decoded, if it counts; else 0."""
    size = memory_of(data, limits) if len(data) > _SMALL else 0
    return size if size > COUNTED else 0


def decode_small(data: bytes | bytearray, limits: JsonLimits = DEFAULT_LIMITS) -> Frame | Batch:
    """Decode a message of at most `LARGE_MESSAGE` bytes that a server received.

    Raises:
        RemoteProtocolError: the bytes are no JSON-RPC.
    """
    frame = decode(data, limits)
    return with_size(frame, data, limits) if len(data) > _SMALL else frame


async def decode_large(
    runtime: Runtime, owner: str, data: bytes | bytearray, limits: JsonLimits = DEFAULT_LIMITS
) -> Frame | Batch:
    """Decode a message of more than `LARGE_MESSAGE` bytes that a server received.

    An owner's messages are decoded one at a time, which bounds their memory. After a part that took more than a
    millisecond of the processor, the owner waits three times as long, however many connections it has.

    Raises:
        RemoteProtocolError: the bytes are no JSON-RPC.
    """
    async with runtime.one_at_a_time("large message", owner):
        return with_size(await decode_in_turns(data, limits, rest=_REST), data, limits)


async def decode_in_turns(
    data: bytes | bytearray | memoryview, limits: JsonLimits = DEFAULT_LIMITS, *, rest: float = 0
) -> Frame | Batch:
    """Decode a message of more than `LARGE_MESSAGE` bytes. After each part wait `rest` times as long as it took.

    Raises:
        RemoteProtocolError: the bytes are no JSON-RPC.
    """
    parts = decode_in_parts(bytes(data), limits)
    frame: Frame | Batch | None = None
    began = thread_time()  # time without the processor does not count
    while frame is None:
        try:
            next(parts)
        except StopIteration as done:
            frame = done.value
        finally:
            if (worked := thread_time() - began) > _LONG:
                await trio.sleep(rest * worked)
                began = thread_time()
    return frame
