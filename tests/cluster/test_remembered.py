"""Homes that a worker remembers: which requests they spare, and that an old entry never costs an answer."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from mcptrio.cluster.link_server import LinkServer
from mcptrio.cluster.remembered import RememberedHomes
from mcptrio.stores.base import HomeAt
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.admission import Admission
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from tests.transports.app_for_tests import Client, plain, request, result_of

from .test_two_workers import by_header, kill
from .two_workers import Worker, two_workers, until, working


class FakeLink:
    connected = True


def test_the_homes_that_are_remembered_are_bounded() -> None:
    home = HomeAt("one", "", 1)
    homes = RememberedHomes({"one": FakeLink()}, 3)  # type: ignore[dict-item]
    for name in "abc":
        homes.note(name, home)
    assert homes.find("a") == home  # now `b` was used longest ago
    homes.note("d", home)
    assert len(homes) == 3
    assert [name for name in "abcd" if homes.find(name) is not None] == ["a", "c", "d"]


def test_a_home_counts_only_while_its_link_is_connected() -> None:
    link, home = FakeLink(), HomeAt("one", "", 1)
    links: dict[str, Any] = {"one": link}
    homes = RememberedHomes(links)
    homes.note("a", home)
    link.connected = False
    assert homes.find("a") is None
    homes.note("a", home)
    del links["one"]
    assert homes.find("a") is None
    assert len(homes) == 0


async def passivate(worker: Worker, client: Client) -> None:
    homes = worker.endpoint.runtime.homes
    assert homes is not None
    homes.leave_soon(worker.sessions[client.session_id])
    await homes.settled(client.session_id)


async def test_a_second_request_does_not_ask_the_store(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        there = other.client(client)
        assert result_of(await there.post(request(1, "ping"))) == {}

        async def asked(*_: object) -> None:
            raise AssertionError("the directory was asked")

        monkeypatch.setattr(other.store.sessions, "_ask", asked)
        assert result_of(await there.post(request(2, "ping"))) == {}


async def test_a_session_that_was_passivated_is_claimed(url: str) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        there = other.client(client)
        assert result_of(await there.post(request(1, "ping"))) == {}
        await passivate(one, client)
        assert result_of(await there.post(request(2, "ping"))) == {}
        assert list(one.sessions) == []
        assert list(other.sessions) == [client.session_id]


async def test_a_session_that_moved_to_a_third_worker_is_found_there(url: str) -> None:
    async with two_workers(url) as (one, other), working(url, "3") as third:
        client = await Client.open(one.endpoint)
        there = other.client(client)
        assert result_of(await there.post(request(1, "ping"))) == {}
        await passivate(one, client)
        assert result_of(await third.client(client).post(request(2, "ping"))) == {}
        for number in (3, 4):
            assert result_of(await there.post(request(number, "ping"))) == {}
        remembered = other.cluster.remembered(client.session_id)
        assert remembered is not None
        assert (remembered.worker, remembered.epoch) == (third.id, 1)
        assert list(third.sessions) == [client.session_id]


async def test_a_deleted_session_is_unknown_though_its_home_is_remembered(url: str) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        there = other.client(client)
        assert result_of(await there.post(request(1, "ping"))) == {}
        assert (await plain(one.endpoint, client.head("DELETE"))).status == 200
        assert (await there.post(request(2, "ping"))).status == 404


async def test_a_stranger_is_refused_though_the_home_is_remembered(url: str) -> None:
    async with two_workers(url, authenticator=by_header) as (one, other):
        client = await Client.open(one.endpoint, extra={"x_user": "ada"})
        assert result_of(await other.client(client).post(request(1, "ping"))) == {}
        stranger = Client(other.endpoint, client.session_id, {"x_user": "eve"})
        assert (await stranger.post(request(1, "ping"))).status == 404
        assert result_of(await other.client(client).post(request(2, "ping"))) == {}


async def test_a_dead_worker_gets_no_request_because_it_is_remembered(url: str) -> None:
    """It is frozen, so that a request for it would wait."""
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        there = other.client(client)
        assert result_of(await there.post(request(1, "ping"))) == {}
        await kill(one, other)
        await until(lambda: other.cluster.remembered(client.session_id) is None)
        assert result_of(await there.post(request(2, "ping"))) == {}
        assert list(other.sessions) == [client.session_id]


# -- workers that drain


async def drain(worker: Worker) -> None:
    worker.cluster.drain()
    await worker.endpoint.runtime.drain(5)


async def test_a_session_that_a_draining_worker_has_passivated_is_claimed(url: str) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        there = other.client(client)
        assert result_of(await there.post(request(1, "ping"))) == {}
        await drain(one)
        assert other.cluster.remembered(client.session_id) is not None
        assert result_of(await there.post(request(2, "ping"))) == {}
        assert list(other.sessions) == [client.session_id]


async def test_a_draining_worker_finds_a_worker_that_has_just_joined(url: str) -> None:
    """Where all workers are replaced, the last one may not have heard of the new ones yet."""
    async with working(url, "1") as one, working(url, "2") as other:
        client = await Client.open(one.endpoint)
        await drain(one)
        assert list(one.cluster.membership.workers) == [one.id]
        assert result_of(await client.post(request(2, "ping"))) == {}
        assert list(other.sessions) == [client.session_id]


async def test_a_request_that_arrives_while_its_worker_leaves_is_not_lost(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is on its way when the worker has nothing more to do. Without an answer it may have been done."""
    async with working(url, "2", config=HttpConfig(json_only=True)) as other, trio.open_nursery() as nursery:
        arrived, leaves, replies = trio.Event(), trio.Event(), list[Any]()
        async with working(url, "1", config=HttpConfig(json_only=True)) as one:
            client = await Client.open(one.endpoint)
            assert result_of(await other.client(client).post(request(1, "ping"))) == {}
            answer, leave = Endpoint.answer_forwarded, LinkServer.leave

            async def late(*args: Any, **options: Any) -> Any:
                arrived.set()
                await leaves.wait()
                return await answer(*args, **options)

            async def noted(self: LinkServer) -> None:
                leaves.set()
                await leave(self)

            async def call() -> None:
                replies.append(await other.client(client).post(request(2, "echo", say="hello")))

            monkeypatch.setattr(LinkServer, "leave", noted)
            monkeypatch.setattr(Endpoint, "answer_forwarded", late)
            await drain(one)
            nursery.start_soon(call)
            await arrived.wait()
        await until(lambda: replies)
        assert result_of(replies[0]) == {"echo": "hello"}
        assert list(other.sessions) == [client.session_id]


async def test_a_session_that_leaves_while_its_request_waits_for_a_place(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was done with the request, so the worker that sent it has it served."""
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        enter = Admission.enter

        async def leave_meanwhile(self: Admission, *args: Any) -> Any:
            refusal = await enter(self, *args)
            if self is one.endpoint.parts.admission:
                one.cluster.drain()
                one.endpoint.runtime.supervisor.begin_drain()
                await passivate(one, client)
            return refusal

        monkeypatch.setattr(Admission, "enter", leave_meanwhile)
        assert result_of(await other.client(client).post(request(2, "ping"))) == {}
        assert list(other.sessions) == [client.session_id]


async def test_a_worker_that_begins_to_drain_serves_the_request_that_it_has(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        enter = Admission.enter

        async def drain_first(self: Admission, *args: Any) -> Any:
            one.cluster.drain()
            one.endpoint.runtime.supervisor.begin_drain()
            return await enter(self, *args)

        monkeypatch.setattr(Admission, "enter", drain_first)
        assert result_of(await other.client(client).post(request(2, "echo", say=1))) == {"echo": 1}
        assert list(one.sessions) == [client.session_id]
