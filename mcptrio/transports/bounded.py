"""Reading the body of a reply, but no more than so much of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    import httpx2


async def read_bounded(response: httpx2.Response, most: int) -> bytes | None:
    """The whole body, or None if it is larger than `most`.

    A body is a pile of generators that nobody closes if the reading just stops: it is stopped by a cancellation, which
    passes through all of them.
    """
    body = bytearray()
    with trio.CancelScope() as scope:
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > most:
                scope.cancel()
    return bytes(body) if len(body) <= most else None
