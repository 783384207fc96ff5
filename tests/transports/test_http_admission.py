"""Admission of calls under load: limits per client, and turns between clients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio import telemetry
from mcptrio._actors.limits import Limits
from mcptrio._actors.rates import Rates
from mcptrio._wire.jsonrpc import Request
from mcptrio.auth.server import Principal
from mcptrio.errors import DeclarationError
from mcptrio.stores import StoreLimits
from mcptrio.stores.sqlite import SqliteStore
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.message import HttpRequest, Plain

from .app_for_tests import Client, app_of, error_of, head, initialize, open_endpoint, plain, request, stage_of


async def who(request_head: HttpRequest) -> Any:
    name = request_head.text(b"authorization")
    return Plain(401) if name is None else Principal(subject=name)


async def test_when_all_places_are_taken_clients_are_served_in_turn(autojump_clock: MockClock) -> None:
    """One client's burst of thirty does not make another's single call wait for all of them."""
    config = HttpConfig(max_calls=2, json_only=True)
    async with open_endpoint(config, limits=Limits(busy_timeout=60)) as endpoint:
        ann, bob = [await Client.open(endpoint, extra={"client": (host, 1)}) for host in ("192.0.2.1", "192.0.2.2")]
        done: list[str] = []

        async def call(client: Client, name: str, number: int) -> None:
            reply = await client.post(request(number, "sleep", seconds=1, name=name))
            assert reply.status == 200
            done.append(name)

        async with trio.open_nursery() as nursery:
            for number in range(30):
                nursery.start_soon(call, ann, "ann", number)
            await wait_all_tasks_blocked(0.01)
            nursery.start_soon(call, bob, "bob", 0)
        assert done.index("bob") <= 4, done
        assert (endpoint.calls, endpoint.admission.places.waiting) == (0, 0)


async def test_a_call_that_waits_too_long_is_refused_with_retry_after(autojump_clock: MockClock) -> None:
    limits = Limits(busy_timeout=0.25)
    async with open_endpoint(HttpConfig(max_calls=1, json_only=True), limits=limits) as endpoint:
        ann = await Client.open(endpoint)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ann.post, request(1, "sleep", seconds=5))
            await wait_all_tasks_blocked(0.01)
            began = trio.current_time()
            reply = await ann.post(request(2, "echo"))
            assert trio.current_time() - began == pytest.approx(0.25)
        assert (reply.status, dict(reply.headers)[b"retry-after"]) == (503, b"1")
        error = error_of(reply)
        assert (error["code"], error["data"]) == (-32603, {"retryAfter": 1, "limit": "max_calls"})
        assert app_of(endpoint).counted("max_calls") == 1
        assert (endpoint.calls, endpoint.admission.places.waiting) == (0, 0)


async def test_a_refused_call_is_reported_with_its_session(autojump_clock: MockClock) -> None:
    config = HttpConfig(max_calls=1, json_only=True)
    async with open_endpoint(config, limits=Limits(busy_timeout=0.25)) as endpoint:
        ann = await Client.open(endpoint)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ann.post, request(1, "sleep", seconds=5))
            await wait_all_tasks_blocked(0.01)
            await ann.post(request(2, "echo"))
        ended = [event for event in app_of(endpoint).events if isinstance(event, telemetry.CallEnded)]
        refused = [(event.session, event.request_id) for event in ended if event.outcome == "overloaded"]
        assert refused == [(ann.session_id, 2)]


async def test_a_full_queue_drops_a_call_of_the_client_with_the_most(autojump_clock: MockClock) -> None:
    config = HttpConfig(max_calls=1, max_waiting=3, json_only=True)
    async with open_endpoint(config, limits=Limits(busy_timeout=60)) as endpoint:
        ann, bob = [await Client.open(endpoint, extra={"client": (host, 1)}) for host in ("192.0.2.1", "192.0.2.2")]
        statuses: dict[str, list[int]] = {"ann": [], "bob": []}

        async def call(client: Client, name: str, number: int) -> None:
            statuses[name].append((await client.post(request(number, "sleep", seconds=1))).status)

        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(call, ann, "ann", number)
            await wait_all_tasks_blocked(0.01)
            assert statuses["ann"] == [503, 503], "one is served, three wait"
            nursery.start_soon(call, bob, "bob", 0)
        assert statuses == {"ann": [503, 503, 503, 200, 200, 200], "bob": [200]}


async def test_a_caller_that_goes_away_while_it_waits_takes_no_place(autojump_clock: MockClock) -> None:
    config = HttpConfig(max_calls=1, json_only=True)
    async with open_endpoint(config, limits=Limits(busy_timeout=60)) as endpoint:
        ann = await Client.open(endpoint)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ann.post, request(1, "sleep", seconds=5))
            await wait_all_tasks_blocked(0.01)
            for timeout in (1, 5):  # the second one's ends in the very moment that it could be served
                with trio.move_on_after(timeout):
                    await ann.post(request(timeout + 1, "sleep", seconds=1))
        await trio.sleep(2)
        assert (endpoint.calls, endpoint.admission.places.waiting) == (0, 0)
        assert (await ann.post(request(9, "echo"))).status == 200


async def test_a_caller_that_goes_away_while_its_session_has_no_room_gives_its_place_back(
    autojump_clock: MockClock,
) -> None:
    limits = Limits(running=1, waiting=1, busy_timeout=60)
    async with open_endpoint(HttpConfig(json_only=True), limits=limits) as endpoint:
        ann = await Client.open(endpoint)
        async with trio.open_nursery() as nursery:
            for number in (1, 2):  # one works, one waits: that is all that the session takes
                nursery.start_soon(ann.post, request(number, "sleep", seconds=5))
            await wait_all_tasks_blocked(0.01)
            with trio.move_on_after(1):
                await ann.post(request(3, "echo"))
            assert endpoint.calls == 2
        assert endpoint.calls == 0


async def test_one_principal_cannot_take_all_places(autojump_clock: MockClock) -> None:
    config = HttpConfig(max_calls_per_principal=2, json_only=True)
    async with open_endpoint(config, authenticator=who) as endpoint:
        first, second = [await Client.open(endpoint, extra={"authorization": "ann"}) for _ in range(2)]
        bob = await Client.open(endpoint, extra={"authorization": "bob"})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.post, request(1, "sleep", seconds=5))
            nursery.start_soon(second.post, request(1, "sleep", seconds=5))
            await wait_all_tasks_blocked(0.01)
            began = trio.current_time()
            reply = await first.post(request(2, "echo"))
            assert (reply.status, error_of(reply)["data"]["limit"]) == (429, "max_calls_per_principal")
            assert trio.current_time() - began == pytest.approx(1, abs=0.51), (
                "repeated at once, refusals would keep the loop busy"
            )
            assert dict(reply.headers)[b"retry-after"] == b"1"
            assert (await bob.post(request(1, "echo"))).status == 200
        assert (await first.post(request(3, "echo"))).status == 200
        assert endpoint.admission.places.held == {}


async def test_the_rate_of_requests_of_a_client_is_limited(autojump_clock: MockClock) -> None:
    config = HttpConfig(rate=0.25, rate_burst=5)
    async with open_endpoint(config) as endpoint:
        ann, bob = [await Client.open(endpoint, extra={"client": (host, 1)}) for host in ("192.0.2.1", "192.0.2.2")]
        await trio.sleep(30)
        statuses = [(await ann.post(request(n, "echo"))).status for n in range(7)]
        assert statuses == [200] * 5 + [429] * 2
        reply = await ann.post(request(8, "echo"))
        assert (error_of(reply)["code"], error_of(reply)["data"]) == (-32603, {"retryAfter": ANY, "limit": "rate"})
        assert (await bob.post(request(1, "echo"))).status == 200
        await trio.sleep(7)  # and half a second or more for each refusal
        statuses = [(await ann.post(request(n, "echo"))).status for n in range(10, 14)]
        assert statuses[0] == 200
        assert 429 in statuses


async def test_a_refused_opening_leaves_no_place_taken(autojump_clock: MockClock) -> None:
    async with open_endpoint(max_sessions=1) as endpoint:
        await Client.open(endpoint)
        assert (await plain(endpoint, head(), initialize())).status == 503
        assert (endpoint.calls, len(stage_of(endpoint).begun)) == (0, 0)


@pytest.mark.parametrize("bad", [{"rate": 0}, {"max_waiting": 0}, {"max_calls_per_principal": 0}, {"rate_burst": 0}])
def test_bounds_are_positive(bad: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match="must be positive"):
        HttpConfig(**bad)


def test_a_clock_that_starts_again_costs_no_tokens() -> None:
    """A server that is served a second time, in another `trio.run`, has another clock."""
    rates = Rates(10, 2)
    assert rates.take("ann", 50_000.0) == 0
    assert rates.take("ann", 100.0) == 0
    assert rates.take("ann", 100.0) == pytest.approx(0.1)


def test_a_bucket_says_how_long_to_wait() -> None:
    rates = Rates(10, 2)
    assert [rates.take("a", 0) for _ in range(3)] == [0, 0, pytest.approx(0.1)]
    assert rates.take("b", 0) == 0
    assert rates.take("a", 0.1) == 0
    assert rates.take("a", 100) == rates.take("a", 100) == 0
    assert rates.take("a", 100) > 0


PING = Request(1, "ping", {})
STEPS = st.lists(st.tuples(st.sampled_from(["come", "leave", "give up"]), st.sampled_from("abc")), max_size=60)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
async def test_no_place_is_lost_or_given_twice(steps: list[tuple[str, str]]) -> None:
    """Clients come, leave and give up at random: never more calls than places, and in the end the count is zero."""
    config = HttpConfig(max_calls=2, max_waiting=4, max_calls_per_principal=3)
    limits = Limits(busy_timeout=3600)
    async with open_endpoint(config, limits=limits) as endpoint, trio.open_nursery() as nursery:
        admission, places = endpoint.admission, endpoint.admission.places
        inside: list[HttpRequest] = []
        coming: list[trio.CancelScope] = []
        names = [Principal(subject=name).key for name in "abc"]

        async def come(name: str) -> None:
            who_comes = head()
            who_comes.set_principal(Principal(subject=name))
            with trio.CancelScope() as scope:
                coming.append(scope)
                if await admission.enter(who_comes, PING) is None:
                    inside.append(who_comes)

        for step, name in steps:
            if step == "come":
                nursery.start_soon(come, name)
            elif step == "leave" and inside:
                admission.leave(inside.pop(0))
            elif step == "give up" and coming:
                coming.pop().cancel()
            await wait_all_tasks_blocked()
            assert len(inside) == places.used <= 2
            assert places.waiting <= 4
            assert not places.waiting or places.used == 2, "no call waits while there is room"
            assert sum(places.claimed(who) for who in names) == len(inside) + places.waiting
            assert all(places.claimed(who) <= 3 for who in names)
        while inside:
            admission.leave(inside.pop())
            await wait_all_tasks_blocked()
        assert (places.used, places.waiting, places.held) == (0, 0, {})


@pytest.mark.defect("S18")
async def test_a_new_session_does_not_restart_the_rate_of_an_address(autojump_clock: MockClock) -> None:
    async with open_endpoint(HttpConfig(rate=0.25, rate_burst=5)) as endpoint:
        ann = {"client": ("192.0.2.1", 1)}
        statuses = [(await plain(endpoint, head(**ann), initialize())).status for _ in range(7)]
        assert statuses == [200] * 5 + [429] * 2
        assert (await plain(endpoint, head(client=("192.0.2.2", 1)), initialize())).status == 200


@pytest.mark.defect("S8")
async def test_a_batch_takes_as_many_places_and_tokens_as_it_holds_requests(autojump_clock: MockClock) -> None:
    batch = [{"jsonrpc": "2.0", "id": n, "method": "sleep", "params": {"seconds": 1}} for n in range(3)]
    limits = Limits(busy_timeout=0.1)
    async with open_endpoint(HttpConfig(max_calls=4, json_only=True), limits=limits) as endpoint:
        ann = await Client.open(endpoint, "2025-03-26")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ann.post, json.dumps(batch).encode())
            await wait_all_tasks_blocked(0.01)
            assert endpoint.calls == 3
            assert (await ann.post(json.dumps(batch[:2]).encode())).status == 503, "all or nothing"
            assert (await ann.post(request(9, "ping"))).status == 200
        assert endpoint.calls == 0
    async with open_endpoint(HttpConfig(rate=1, rate_burst=5)) as endpoint:
        ann = await Client.open(endpoint, "2025-03-26")
        await trio.sleep(10)
        pings = [{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in range(3)]
        assert [(await ann.post(json.dumps(pings).encode())).status for _ in range(2)] == [200, 429]
        assert (await ann.post(request(9, "ping"))).status == 200


@pytest.mark.defect("S7")
async def test_one_address_cannot_lock_others_out_of_sessions(autojump_clock: MockClock) -> None:
    async with open_endpoint(max_sessions=8) as endpoint:
        greedy = [await Client.open(endpoint, extra={"client": ("192.0.2.1", 1)}) for _ in range(8)]
        assert (await plain(endpoint, head(client=("192.0.2.1", 1)), initialize())).status == 503
        others = [await Client.open(endpoint, extra={"client": (f"192.0.2.{n}", 1)}) for n in range(2, 6)]
        await wait_all_tasks_blocked()
        assert [(await client.post(request(1, "ping"))).status for client in others] == [200] * 4
        assert [(await client.post(request(1, "ping"))).status for client in greedy] == [404] * 4 + [200] * 4


@pytest.mark.defect("S7")
async def test_one_address_cannot_push_the_records_of_other_sessions_out(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", limits=StoreLimits(sessions=4))
    async with open_endpoint(store=store) as endpoint:
        clients = []
        for address in ["192.0.2.1"] + 6 * ["192.0.2.2"]:
            clients.append(await Client.open(endpoint, extra={"client": (address, 1)}))
            await store.sessions.release(clients[-1].session_id, 0, b"", ttl=60)
        kept = [client for client in clients if await store.sessions.claim(client.session_id) is not None]
        assert kept == [clients[0], *clients[4:]]
