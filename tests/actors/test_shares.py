"""Fair shares: places in turn, a quarter while another waits, and the largest owner's oldest entry goes."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from mcptrio._actors.shares import Owners, Shares


async def test_one_owner_may_use_all_places_while_there_is_room() -> None:
    shares = Shares(8)
    assert [shares.take("a") for _ in range(9)] == [True] * 8 + [False]
    assert shares.held == {"a": 8}


@pytest.mark.defect("S7")
async def test_a_place_goes_to_the_waiting_owners_in_turn(autojump_clock: trio.testing.MockClock) -> None:
    shares, order = Shares(1), list[str]()
    assert shares.take("a")

    async def wait(owner: str) -> None:
        assert await shares.wait(owner, timeout=10)
        order.append(owner)
        await trio.sleep(0.1)
        shares.give_back(owner)

    async with trio.open_nursery() as nursery:
        for owner in ("a", "a", "a", "b", "c"):
            nursery.start_soon(wait, owner)
            await trio.testing.wait_all_tasks_blocked()
        shares.give_back("a")
    assert order == ["a", "b", "c", "a", "a"]
    assert (shares.used, shares.waiting, shares.held) == (0, 0, {})


@pytest.mark.defect("S7")
async def test_an_owner_gets_at_most_a_quarter_while_another_waits(autojump_clock: trio.testing.MockClock) -> None:
    shares = Shares(8)
    for _ in range(8):
        assert shares.take("greedy")
    granted: Counter[str] = Counter()

    async def wait(owner: str) -> None:
        if await shares.wait(owner, timeout=5):
            granted[owner] += 1

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(wait, "greedy")
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(6):
            nursery.start_soon(wait, "other")
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(6):
            shares.give_back("greedy")
        await trio.testing.wait_all_tasks_blocked()
        assert shares.held == {"greedy": 3, "other": 3}, "the last quarter is kept for a third"


@pytest.mark.defect("S7")
async def test_an_owner_with_a_quarter_waits_for_others_also_if_its_turn_is_first(
    autojump_clock: trio.testing.MockClock,
) -> None:
    shares = Shares(8, owners=Owners(several=True))
    assert shares.take("greedy", 5)
    assert shares.take("third", 3)
    granted: list[str] = []

    async def wait(owner: str) -> None:
        if await shares.wait(owner, timeout=10):
            granted.append(owner)

    async with trio.open_nursery() as nursery:
        for owner in ("greedy", "other"):
            nursery.start_soon(wait, owner)
            await trio.testing.wait_all_tasks_blocked()
        shares.give_back("third", 3)
        await trio.testing.wait_all_tasks_blocked()
        assert granted == ["other"]


async def test_a_request_that_gets_no_place_in_time_gets_none(autojump_clock: trio.testing.MockClock) -> None:
    shares = Shares(1)
    assert shares.take("a")
    began = trio.current_time()
    assert not await shares.wait("b", timeout=0.25)
    assert trio.current_time() - began == pytest.approx(0.25)
    assert shares.waiting == 0


async def test_a_cancelled_request_leaves_its_place_to_the_next(autojump_clock: trio.testing.MockClock) -> None:
    shares = Shares(1)
    assert shares.take("a")
    served: list[str] = []

    async def wait(owner: str, scope: trio.CancelScope) -> None:
        with scope:
            if await shares.wait(owner, timeout=10):
                served.append(owner)
                shares.give_back(owner)

    async with trio.open_nursery() as nursery:
        gives_up = trio.CancelScope()
        nursery.start_soon(wait, "b", gives_up)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(wait, "c", trio.CancelScope())
        await trio.testing.wait_all_tasks_blocked()
        shares.give_back("a")  # b has it now, and is cancelled before it runs
        gives_up.cancel()
    assert served in (["c"], ["b", "c"])
    assert (shares.used, shares.waiting, shares.held) == (0, 0, {})


async def test_the_longest_queue_loses_its_last_request(autojump_clock: trio.testing.MockClock) -> None:
    shares = Shares(1, max_waiting=2)
    assert shares.take("x")
    results: dict[str, bool] = {}

    async def wait(name: str, owner: str) -> None:
        results[name] = await shares.wait(owner, timeout=1)

    async with trio.open_nursery() as nursery:
        for name, owner in (("a1", "a"), ("a2", "a"), ("b1", "b")):
            nursery.start_soon(wait, name, owner)
            await trio.testing.wait_all_tasks_blocked()
        assert results == {"a2": False}
        shares.give_back("x")
        await trio.testing.wait_all_tasks_blocked()
        assert results == {"a2": False, "a1": True}
        assert not await shares.wait("a", timeout=0)


@pytest.mark.defect("S7")
def test_a_full_table_drops_the_oldest_entry_of_the_largest_owner() -> None:
    shares = Shares(4)
    assert [shares.add("greedy", n) for n in range(4)] == [None] * 4
    assert shares.add("other", "x") == 0
    assert shares.add("other", "y") == 1
    shares.remove("unknown")
    shares.remove("y")
    assert shares.add("greedy", 4) is None
    assert shares.add("greedy", 5) == 2  # it has most itself


@pytest.mark.defect("S7")
def test_a_new_entry_does_not_make_room_for_itself() -> None:
    shares = Shares(2)
    assert shares.add("b", 1) is None
    assert shares.add("c", 2) is None
    assert shares.add("a", 3) in (1, 2)


@pytest.mark.defect("S7")
def test_the_largest_owner_is_the_one_with_the_largest_amount() -> None:
    shares = Shares(3)
    assert shares.add("greedy", "large", 10) is None
    assert [shares.add("other", n) for n in range(2)] == [None, None]
    assert shares.add("other", 2) == "large"


@pytest.mark.defect("S7")
async def test_the_last_quarter_is_kept_for_small_owners(autojump_clock: trio.testing.MockClock) -> None:
    shares = Shares(8)
    assert shares.take("other")
    shares.give_back("other")
    for _ in range(6):
        assert shares.take("greedy")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(shares.wait, "greedy", timeout=10))
        await trio.testing.wait_all_tasks_blocked()
        assert await shares.wait("other", timeout=1)
        assert await shares.wait("third", timeout=1)
        assert shares.held == {"greedy": 6, "other": 1, "third": 1}
        nursery.cancel_scope.cancel()


@pytest.mark.defect("S7")
async def test_a_small_owner_need_not_wait_behind_large_ones(autojump_clock: trio.testing.MockClock) -> None:
    """Calls in a WebSocket do not wait: they get a place at once, or none."""
    shares = Shares(8, owners=Owners(several=True))
    assert [shares.take("greedy") for _ in range(7)] == [True] * 6 + [False]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(shares.wait, "greedy", timeout=10))
        await trio.testing.wait_all_tasks_blocked()
        assert [shares.take("other") for _ in range(3)] == [True, True, False]
        nursery.start_soon(partial(shares.wait, "third", timeout=10))
        await trio.testing.wait_all_tasks_blocked()
        shares.give_back("greedy")
        assert shares.held["third"] == 1
        nursery.start_soon(partial(shares.wait, "third", 3, timeout=10))
        await trio.testing.wait_all_tasks_blocked()
        shares.give_back("other")
        assert not shares.take("third"), "it does not pass a request of its own"
        nursery.cancel_scope.cancel()


@pytest.mark.defect("S7")
async def test_a_request_that_does_not_fit_locks_no_other_owner_out(autojump_clock: trio.testing.MockClock) -> None:
    """Units are bytes, for example: one request may need more of them than are free for a long time."""
    shares = Shares(100, owners=Owners(several=True))
    assert shares.take("greedy", 70)
    granted: list[str] = []

    async def wait(owner: str, amount: int) -> None:
        if await shares.wait(owner, amount, timeout=10):
            granted.append(owner)

    async with trio.open_nursery() as nursery:
        for owner, amount in (("large", 90), ("greedy", 1), ("other", 40), ("third", 30)):
            nursery.start_soon(wait, owner, amount)
            await trio.testing.wait_all_tasks_blocked()
        assert granted == ["third"], "others pass the request that waits for more than is free"
        shares.give_back("greedy", 40)
        await trio.testing.wait_all_tasks_blocked()
        shares.give_back("other", 40)
        shares.give_back("third", 30)
        await trio.testing.wait_all_tasks_blocked()
        assert granted == ["third", "other"], "owners with less than a quarter come before the greedy one"
        shares.give_back("greedy", 30)
    assert set(granted[2:]) == {"large", "greedy"}


@pytest.mark.defect("S7")
def test_calls_of_sessions_with_their_own_connection_count_for_their_owner() -> None:
    shares = Shares(8, owners=Owners(several=True))
    shares.reserved["greedy"] = 6
    assert not shares.take("greedy")
    assert [shares.take("other") for _ in range(3)] == [True, True, False]


@pytest.mark.defect("S7")
def test_an_entry_that_grows_makes_its_owner_the_largest() -> None:
    shares = Shares(100)
    for owner, entry in (("a", 1), ("b", 2), ("a", 3)):
        shares.add(owner, entry)
    assert shares.largest_first() == ["a", "b"]
    shares.resize(2, 5)
    assert (shares.largest(), shares.largest_first(), shares.stored("b")) == ("b", ["b", "a"], 6)
    shares.resize(2, -5)
    assert (shares.largest(), list(shares.of_owner("a")), list(shares.of_owner("c"))) == ("a", [1, 3], [])


@given(st.randoms(use_true_random=False), st.integers(1, 6))
def test_stored_entries_behave_like_the_simplest_model(dice: random.Random, size: int) -> None:
    shares, model = Shares(size), list[tuple[str, int]]()
    for entry in range(60):
        owner = dice.choice("abc")
        if model and dice.random() < 0.3:
            gone = dice.choice(model)
            model.remove(gone)
            shares.remove(gone[1])
        model.append((owner, entry))
        evicted = shares.add(owner, entry)
        if len(model) <= size:
            assert evicted is None
            continue
        counts = Counter(name for name, _ in model)
        (loser,) = [name for name, number in model if number == evicted]
        assert counts[loser] == max(counts.values())
        assert evicted == next(number for name, number in model if name == loser)
        model.remove((loser, evicted))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(20))
async def test_places_are_never_lost_whatever_happens(seed: int, autojump_clock: trio.testing.MockClock) -> None:
    dice, shares = random.Random(seed), Shares(10, max_waiting=12)

    async def caller(owner: str) -> None:
        await trio.sleep(dice.random())
        amount = dice.choice((1, 1, 1, 3, 12))
        with trio.move_on_after(dice.random()):
            if await shares.wait(owner, amount, timeout=dice.random()):
                try:
                    assert shares.used <= max(10, amount)
                    await trio.sleep(dice.random())
                finally:
                    shares.give_back(owner, amount)

    async with trio.open_nursery() as nursery:
        for _ in range(60):
            nursery.start_soon(caller, dice.choice("abcd"))
    assert (shares.used, shares.waiting, shares.held) == (0, 0, {})
