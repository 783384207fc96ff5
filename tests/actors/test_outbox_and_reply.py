"""The outbox (messages that wait to be written) and the reply (a future with one waiter)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio._actors.future import Reply
from mcptrio._actors.outbox import Outbox
from mcptrio._actors.shares import Owners
from mcptrio._actors.unread import Unread
from mcptrio.errors import ConnectionLost, MCPError


async def test_everything_that_waits_is_taken_at_once() -> None:
    outbox = Outbox()
    for item in (b"a", b"b", b"c"):
        outbox.put(item)
    assert await outbox.take_some() == [b"a", b"b", b"c"]


async def test_the_consumer_is_woken_once_for_a_burst(autojump_clock: MockClock) -> None:
    outbox = Outbox()
    taken: list[list[bytes]] = []

    async def consume() -> None:
        while True:
            taken.append(await outbox.take_some())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(consume)
        await wait_all_tasks_blocked()
        for _ in range(64):
            outbox.put(b"x")
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert [len(items) for items in taken] == [64]


async def test_items_before_the_end_are_still_taken() -> None:
    outbox = Outbox()
    outbox.put(b"a")
    outbox.close()
    outbox.put(b"late")
    assert await outbox.take_some() == [b"a"]
    with pytest.raises(ConnectionLost):
        await outbox.take_some()


async def test_closing_wakes_waiting_tasks(autojump_clock: MockClock) -> None:
    outbox = Outbox(max_items=1)

    async def consume() -> None:
        with pytest.raises(ConnectionLost):
            await outbox.take_some()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(consume)
        await wait_all_tasks_blocked()
        outbox.close()
    full = Outbox(max_items=1)
    full.put(b"a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(full.room)
        await wait_all_tasks_blocked()
        full.close()


@pytest.mark.defect("S7")
async def test_outboxes_of_one_owner_share_their_memory(autojump_clock: MockClock) -> None:
    unread = Unread(134, owners=Owners(several=True))
    memory = unread.room
    greedy = [Outbox(256, 60, unread, "greedy") for _ in range(4)]
    for outbox in greedy[:2]:
        outbox.put(b"x" * 40)
    assert [outbox.full for outbox in greedy] == [False, True, False, False], "three quarters are used"
    greedy[2].put(b"x")
    assert greedy[2].full, "one item at a time"
    other = Outbox(256, 60, unread, "other")
    other.put(b"x" * 10)
    assert not other.full
    async with trio.open_nursery() as nursery:
        nursery.start_soon(greedy[1].room)
        await wait_all_tasks_blocked()
        assert await greedy[1].take_some() == [b"x" * 40]
    for outbox in (*greedy[:3], other):
        outbox.drop()
    assert (memory.used, memory.held) == (0, {})


async def test_a_consumer_that_is_cancelled_loses_nothing(autojump_clock: MockClock) -> None:
    outbox = Outbox()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.take_some)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    outbox.put(b"a")
    assert await outbox.take_some() == [b"a"]


@pytest.mark.parametrize(("items", "size"), [(2, 1), (100, 50)])
async def test_a_full_outbox_blocks_senders(items: int, size: int, autojump_clock: MockClock) -> None:
    outbox = Outbox(max_items=items, max_bytes=100)
    for _ in range(2):
        outbox.put(b"x" * size)
    assert outbox.full
    got_room = trio.Event()

    async def wait() -> None:
        await outbox.room()
        got_room.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        assert not got_room.is_set()
        await outbox.take_some()
    assert got_room.is_set()


async def test_a_reply_is_settled_once() -> None:
    reply = Reply()
    assert not reply.settled
    reply.settle({"a": 1})
    reply.settle(error=MCPError(-1, "late"))
    assert reply.settled
    assert await reply.wait() == {"a": 1}


async def test_an_error_is_raised_in_the_waiting_task(autojump_clock: MockClock) -> None:
    reply = Reply()

    async def wait() -> None:
        with pytest.raises(MCPError):
            await reply.wait()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        reply.settle(error=MCPError(-1, "no"))


async def test_a_consumer_may_take_a_part_and_there_is_room_once_it_is_enough(autojump_clock: MockClock) -> None:
    outbox = Outbox(max_bytes=6)
    for item in (b"abc", b"def", b"ghi"):
        outbox.put(item)
    roomy: list[str] = []

    async def wait_for_room() -> None:
        await outbox.room()
        roomy.append("room")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_for_room)
        await wait_all_tasks_blocked()
        assert await outbox.take_some(2) == [b"abc"]
        await wait_all_tasks_blocked()
        assert roomy == []
        assert await outbox.take_some(4) == [b"def", b"ghi"]
    assert roomy == ["room"]
    assert outbox.empty
