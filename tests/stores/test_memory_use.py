"""A store takes the memory that its bounds of bytes say, whatever made the bytes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import msgspec
import pytest

from mcptrio.stores import Store
from mcptrio.stores.base import StreamKey

from .conftest import MakeStore

LENGTH, ENTRIES = 20_000, 100


def put_task(store: Store, number: int, data: bytes) -> None:
    store.tasks.put(str(number), data, 60, owner="a")


def put_mark(store: Store, number: int, data: bytes) -> None:
    store.marks.done("once", str(number), data, 60, owner="a")


def append_event(store: Store, number: int, data: bytes) -> None:
    store.append(StreamKey("session", "1"), data)


@pytest.mark.parametrize("keep", [put_task, put_mark, append_event])
async def test_stored_entries_take_hardly_more_memory_than_their_bytes(
    make_store: MakeStore, keep: Callable[[Store, int, bytes], None]
) -> None:
    store = make_store()
    async with store.open():
        store.begin(StreamKey("session", "1"))
        tracemalloc.start()
        try:
            for number in range(ENTRIES):
                keep(store, number, msgspec.json.encode("x" * LENGTH))  # its buffer is larger than what it contains
            taken = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
    assert taken < 1.2 * LENGTH * ENTRIES
