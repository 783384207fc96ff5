"""Small helpers to read streams with."""

from __future__ import annotations

import trio

from mcptrio.stores import Claimed, Follower, Store, StoredEvent, StreamKey

KEY = StreamKey("alice", "1")


async def take(follower: Follower, count: int) -> list[tuple[int, bytes]]:
    with trio.fail_after(30):
        events = [await follower.receive() for _ in range(count)]
    return [(event.seq, event.data) for event in events]


async def drain(follower: Follower) -> list[tuple[int, bytes]]:
    """Everything up to the end of a finished stream."""
    found: list[StoredEvent] = []
    with trio.fail_after(30):
        while True:
            try:
                found.append(await follower.receive())
            except trio.EndOfChannel:
                return [(event.seq, event.data) for event in found]


async def stored_record(store: Store, session: str) -> bytes | None:
    """The record of a session, which is claimed by the look."""
    claimed = await store.sessions.claim(session)
    return claimed.record if isinstance(claimed, Claimed) else None


def fill(store: Store, count: int, key: StreamKey = KEY, *, last: bool = False) -> list[tuple[int, bytes]]:
    """Appends numbered events and says what a reader should see."""
    seen = []
    for number in range(count):
        data = f"{key.session}/{key.stream}/{number}".encode()
        seen.append((store.append(key, data, last=last and number == count - 1), data))
    return seen
