"""The memory of messages that clients have not read: who loses a connection when it is used up."""

from __future__ import annotations

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from mcptrio import telemetry
from mcptrio._actors.shares import Owners
from mcptrio._actors.unread import OF_ONE_OWNER, STALLED_AFTER, Unread

pytestmark = pytest.mark.defect("S7")


@define(eq=False)
class Place:
    """A place where messages wait; it takes its part in `unread` back when it is cut, as real ones do."""

    unread: Unread
    owner: str
    cuts: int = 0

    def cut(self) -> None:
        self.cuts += 1
        self.unread.take(self, 1000)


@define(eq=False)
class Table:
    unread: Unread
    events: list[object] = field(factory=list)

    def place(self, owner: str, amount: int) -> Place:
        place = Place(self.unread, owner)
        self.unread.add(place, amount)
        return place


@pytest.fixture
def table() -> Table:
    events: list[object] = []
    return Table(Unread(100, telemetry.Hub([events.append]), Owners()), events)


async def test_the_owner_that_has_most_loses_the_connection_that_has_not_moved_for_longest(
    table: Table, autojump_clock: MockClock
) -> None:
    other = table.place("b", 20)
    first, second, third = [table.place("a", 25) for _ in range(3)]
    await trio.sleep(STALLED_AFTER)
    table.unread.take(first)  # its client has read something
    table.place("b", 20)
    assert [place.cuts for place in (other, first, second, third)] == [0, 0, 1, 0]
    assert table.unread.used == 90
    assert table.events == [telemetry.LimitHit(name="max_outbox_memory")]


async def test_a_connection_that_grows_has_not_moved(table: Table, autojump_clock: MockClock) -> None:
    first, second = table.place("a", 30), table.place("a", 30)
    await trio.sleep(STALLED_AFTER)
    table.unread.add(first, 50)
    assert (first.cuts, second.cuts) == (1, 0)
    assert table.unread.used == 30


async def test_as_many_are_cut_as_are_needed(table: Table, autojump_clock: MockClock) -> None:
    small = [table.place("a", 20) for _ in range(5)]
    await trio.sleep(STALLED_AFTER)
    table.place("b", 35)
    assert [place.cuts for place in small] == [1, 1, 0, 0, 0]


async def test_a_message_that_is_larger_than_the_limit_may_wait_alone(table: Table, autojump_clock: MockClock) -> None:
    large = table.place("a", 500)
    assert (large.cuts, table.unread.used) == (0, 500)
    await trio.sleep(STALLED_AFTER)
    small = table.place("b", 10)
    assert (large.cuts, small.cuts, table.unread.used) == (1, 0, 10)


async def test_what_was_read_gives_room_for_notifications_of_others(table: Table, autojump_clock: MockClock) -> None:
    place, other = table.place("a", 60), table.place("a", 10)
    table.unread.take(place, 20)
    assert (table.unread.used, table.unread.room.used) == (50, 50)
    assert not table.unread.room.has_room("a", 30)
    assert table.unread.room.has_room("a", 20)
    table.unread.take(place, 40)
    table.unread.take(place, 40)  # it has nothing left
    table.unread.take(other, 10)
    assert (table.unread.used, table.unread.room.used, table.unread.room.held) == (0, 0, {})


async def test_clients_that_read_are_not_cut_for_each_other(table: Table, autojump_clock: MockClock) -> None:
    first, second, large = table.place("a", 60), table.place("b", 60), table.place("c", 500)
    for _ in range(10):
        await trio.sleep(STALLED_AFTER - 1)
        for place in (first, second, large):
            table.unread.take(place, 1)
        table.place("d", 1)
    assert [place.cuts for place in (first, second, large)] == [0, 0, 0]


async def test_an_owner_that_exceeds_its_part_by_itself_loses_its_newest_message(
    table: Table, autojump_clock: MockClock
) -> None:
    places = [table.place("a", 100) for _ in range(OF_ONE_OWNER)]
    assert [place.cuts for place in places] == [0] * OF_ONE_OWNER, "it may be about to read all of them"
    assert not table.unread.has_room("a", 60)
    assert table.unread.has_room("b", 500), "others may"
    newest = table.place("a", 60)
    assert (newest.cuts, table.unread.used) == (1, 100 * OF_ONE_OWNER)
    await trio.sleep(STALLED_AFTER)
    assert table.unread.has_room("a", 60), "the older ones make room"
    newest = table.place("a", 60)
    assert [place.cuts for place in places] == [1] * OF_ONE_OWNER
    assert (newest.cuts, table.unread.used) == (0, 60)


async def test_a_write_that_ends_after_a_cut_gives_nothing_back(table: Table, autojump_clock: MockClock) -> None:
    older, place = table.place("a", 100 * OF_ONE_OWNER), table.place("a", 60)
    assert place.cuts == 1
    table.unread.take(older, 100)
    table.unread.add(place, 10)  # by another task, before the one that was writing notices
    table.unread.take(place, 60)
    left = 100 * (OF_ONE_OWNER - 1)
    assert (table.unread.used, table.unread.room.used) == (left, left)
