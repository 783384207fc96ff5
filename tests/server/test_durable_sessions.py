"""Sessions with a durable store: they survive restarts, leave the memory when idle, and come back as they were."""

from __future__ import annotations

import contextlib
import gc
import json
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio import Context, Limits, Server, SessionHandle, SessionRefused, telemetry
from mcptrio._actors import homes
from mcptrio._actors.session import Session
from mcptrio._actors.session_ids import is_session_id, new_session_id
from mcptrio.auth.server import Principal
from mcptrio.stores import MemoryStore
from mcptrio.stores.sqlite import SqliteStore
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.endpoint.message import HttpRequest
from tests.transports.app_for_tests import (
    Client,
    head,
    initialize,
    notification,
    plain,
    request,
    result_of,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def make_server(**limits: Any) -> Server:
    server = Server("durable", version="1", limits=Limits(**limits))

    @server.tool
    async def who(ctx: Context) -> dict[str, Any]:
        info = ctx.client_info
        return {
            "client": None if info is None else info.name,
            "sampling": ctx.client_capabilities.sampling is not None,
            "epoch": ctx.session.epoch,
            "taken_over": ctx.session.taken_over,
            "state": ctx.state,
        }

    @server.tool
    async def chat(ctx: Context) -> str:
        await ctx.debug("a detail")
        return "done"

    @server.tool
    async def wait(ctx: Context) -> str:
        await ctx.progress(1)
        await trio.sleep_forever()
        return "never"

    @server.resource("notes://{name}")
    async def note(name: str) -> str:
        return name

    return server


@asynccontextmanager
async def serving(
    server: Server, path: Path, *, drain: bool = False, authenticator: Any = None, **config: Any
) -> AsyncIterator[Endpoint]:
    """Run the server on the file; without a drain it ends as a killed process does, as far as the file can tell."""
    async with server._app.make_runtime(SqliteStore(path)).open() as runtime:
        yield Endpoint(runtime, HttpConfig(**{"stream_after": 60, **config}), None, authenticator)
        if drain:
            await runtime.drain(1)


async def tool(client: Client, name: str) -> Any:
    reply = await client.post(request(7, "tools/call", name=name, arguments={}))
    return result_of(reply)["structuredContent"]


async def pass_time(clock: MockClock, seconds: int) -> None:
    """Let time pass, in steps that do not look like a process that was suspended; the disk needs real time."""
    for _ in range(seconds):
        await wait_all_tasks_blocked()
        clock.jump(1)


async def passivated(client: Client) -> None:
    """Wait until the session has left the memory."""
    runtime = client.endpoint.runtime
    assert runtime.homes is not None
    session = client.session
    await session.wait_until_quiet()
    session.doze()
    await wait_all_tasks_blocked()
    assert runtime.homes.may_leave(session)
    runtime.homes.leave_soon(session)
    while client.session_id in runtime.homes.moving:
        await runtime.homes.moving[client.session_id].done.wait()
    assert runtime.supervisor.find(client.session_id) is None


# -- restarts


@pytest.mark.parametrize("drain", [True, False], ids=["drained", "killed"])
async def test_a_session_goes_on_after_a_restart(path: Path, drain: bool) -> None:
    async with serving(make_server(), path, drain=drain) as endpoint:
        client = await Client.open(endpoint, sampling={}, name="probe")
        assert (await tool(client, "who"))["epoch"] == 0
        result_of(await client.post(request(1, "logging/setLevel", level="debug")))
        result_of(await client.post(request(2, "resources/subscribe", uri="notes://a")))
    async with serving(server := make_server(), path) as endpoint:
        client.endpoint = endpoint
        found = await tool(client, "who")
        assert found == {"client": "probe", "sampling": True, "epoch": 1, "taken_over": True, "state": None}
        events = await (await client.stream(request(3, "tools/call", name="chat", arguments={}))).rest()
        assert json.loads(events[0].data)["params"]["data"] == "a detail", "the log level is back"
        listening = await client.listen()
        server.notify_resource_updated("notes://a")
        assert (await listening.frame())["params"] == {"uri": "notes://a"}, "the subscription is back"
        listening.hang_up()


async def test_deleted_sessions_and_refused_ones_stay_gone(path: Path) -> None:
    async with serving(make_server(), path) as endpoint:
        client = await Client.open(endpoint)
        assert (await plain(endpoint, client.head("DELETE"))).status == 200
    async with serving(make_server(), path) as endpoint:
        client.endpoint = endpoint
        assert (await client.post(request(1, "ping"))).status == 404


async def test_a_stored_session_can_be_deleted(path: Path) -> None:
    async with serving(make_server(), path, drain=True) as endpoint:
        client = await Client.open(endpoint)
    async with serving(make_server(), path) as endpoint:
        client.endpoint = endpoint
        assert (await plain(endpoint, client.head("DELETE"))).status == 200
        assert (await client.post(request(1, "ping"))).status == 404
    async with serving(make_server(), path) as endpoint:
        client.endpoint = endpoint
        assert (await client.post(request(1, "ping"))).status == 404


async def test_a_session_of_a_revision_that_is_no_longer_served_is_unknown(path: Path) -> None:
    async with serving(make_server(), path, drain=True) as endpoint:
        client = await Client.open(endpoint, "2025-03-26")
    newer = Server("durable", version="1", protocols=["2025-11-25"])
    async with serving(newer, path) as endpoint:
        client.endpoint = endpoint
        assert (await client.post(request(1, "ping"))).status == 404


async def who(request_head: HttpRequest) -> Principal:
    return Principal(subject=request_head.text(b"authorization") or "anyone")


async def test_a_stored_session_belongs_to_the_principal_that_opened_it(path: Path) -> None:
    async with serving(make_server(), path, drain=True, authenticator=who) as endpoint:
        client = await Client.open(endpoint, extra={"authorization": "ann"})
    async with serving(make_server(), path, authenticator=who) as endpoint:
        client.endpoint = endpoint
        for method in ("POST", "GET", "DELETE"):
            thief = await plain(endpoint, client.head(method, authorization="bob"), request(1, "ping"))
            assert thief.status == 404
        async with trio.open_nursery() as nursery:  # a thief at the same time does no harm either
            nursery.start_soon(plain, endpoint, client.head(authorization="bob"), request(1, "ping"))
            assert (await client.post(request(1, "ping"))).status == 200
        assert client.session.principal == Principal(subject="ann")


async def test_a_stranger_who_names_a_stored_session_does_not_prolong_it(path: Path) -> None:
    async with serving(make_server(idle_timeout=1000), path, authenticator=who) as endpoint:
        client = await Client.open(endpoint, extra={"authorization": "ann"})
        client.session.last_used -= 900
        await passivated(client)
        stranger = client.head("DELETE", authorization="bob")
        assert (await plain(endpoint, stranger)).status == 404
        with contextlib.closing(sqlite3.connect(path)) as file:
            ((expires,),) = file.execute("SELECT expires FROM sessions").fetchall()
        assert expires <= time.time() + 100


async def test_names_of_streams_and_ids_of_requests_are_never_used_twice(path: Path) -> None:
    async with serving(make_server(), path) as endpoint:
        client = await Client.open(endpoint)
        first = await client.stream(request(1, "tools/call", name="wait", arguments={}, _meta={"progressToken": 1}))
        cursor = (await first.event()).id  # type: ignore[union-attr]
        first.hang_up()
    async with serving(make_server(), path) as endpoint:
        client.endpoint = endpoint
        second = await client.stream(request(1, "tools/call", name="wait", arguments={}, _meta={"progressToken": 1}))
        other = (await second.event()).id  # type: ignore[union-attr]
        assert int(other.partition(".")[0]) == 10**9 + 1 > int(cursor.partition(".")[0])
        assert client.session.peer.ledger.ask("ping", object(), None).id == (1 << 32) + 1
        second.hang_up()


async def test_a_call_of_a_process_that_died_is_answered_on_its_own_stream(path: Path) -> None:
    async with serving(make_server(), path) as endpoint:
        client = await Client.open(endpoint)
        reader = await client.stream(request(5, "tools/call", name="wait", arguments={}, _meta={"progressToken": 1}))
        begun = await reader.event()
        assert begun is not None
        reader.hang_up()
    async with serving(make_server(), path) as endpoint:
        client.endpoint = endpoint
        (answer,) = await (await client.listen(begun.id)).rest()
        assert json.loads(answer.data) == {
            "jsonrpc": "2.0",
            "id": 5,
            "error": {
                "code": -32603,
                "message": "the worker that ran this call died; it may have been done",
                "data": {"mayHaveRun": True},
            },
        }
        assert await (await client.listen(answer.id)).rest() == []
    async with serving(make_server(), path) as endpoint:
        client.endpoint = endpoint
        assert await (await client.listen(begun.id)).rest() == [answer], "it is answered once"


async def test_a_call_that_may_run_twice_runs_again_without_repeating_progress(path: Path) -> None:
    def counting(fails: bool, **options: bool) -> tuple[Server, list[int]]:
        server, ran = make_server(), [0]

        @server.tool(**options)
        async def count(to: int, ctx: Context) -> int:
            ran[0] += 1
            for number in range(1, to + 1):
                await ctx.progress(number)
                if fails and number == 3:
                    await trio.sleep_forever()
            return to

        return server, ran

    async def cut(client: Client, number: int) -> Any:
        params = {"name": "count", "arguments": {"to": 5}, "_meta": {"progressToken": 1}}
        reader = await client.stream(request(number, "tools/call", **params))
        seen = [await reader.event() for _ in range(3)]
        reader.hang_up()
        return seen[0]

    for number, options in enumerate(({"read_only": True}, {"idempotent": True}, {"replay": True})):
        file = path.with_name(f"{number}.db")
        server, _ = counting(True, **options)
        async with serving(server, file) as endpoint:
            client = await Client.open(endpoint)
            first = await cut(client, number)
        server, ran = counting(False, **options)
        async with serving(server, file) as endpoint:
            client.endpoint = endpoint
            rest = [json.loads(event.data) for event in await (await client.listen(first.id)).rest()]
            if "replay" in options:
                assert rest[-1]["error"]["data"] == {"mayHaveRun": True}
                assert ran == [0]
                continue
            assert [one["params"]["progress"] for one in rest[:-1]] == [2, 3, 4, 5]
            assert (rest[-1]["id"], rest[-1]["result"]["structuredContent"]) == (number, {"result": 5})
            assert ran == [1]
            assert client.session.peer.calls == 0
            assert endpoint.calls == 0


async def test_the_cursor_of_a_priming_event_is_valid_after_the_process_died(path: Path) -> None:
    """R7: the client may have got nothing else."""
    async with serving(make_server(), path, stream_after=0.01) as endpoint:
        client = await Client.open(endpoint)
        reader = await client.stream(request(5, "tools/call", name="wait", arguments={}))
        await reader.chunk()
        (prime,) = reader.waiting
        listening = await client.listen()
        await listening.chunk()
        (other,) = listening.waiting
        for each in (reader, listening):
            each.hang_up()
    async with serving(make_server(), path) as endpoint:
        client.endpoint = endpoint
        (answer,) = await (await client.listen(prime.id)).rest()
        assert json.loads(answer.data)["error"]["code"] == -32603
        again = await client.listen(other.id)
        again.hang_up()


async def test_a_stream_is_stored_before_its_cursor_is_sent(path: Path) -> None:
    """R7."""

    def stored() -> set[str]:
        with contextlib.closing(sqlite3.connect(path)) as file:
            return {name for (name,) in file.execute("SELECT stream FROM streams")}

    async with serving(make_server(), path, stream_after=0.01) as endpoint:
        client = await Client.open(endpoint)
        reader = await client.stream(request(5, "tools/call", name="wait", arguments={}))
        assert "2" in stored()
        listening = await client.listen()
        assert "0" in stored()
        for each in (reader, listening):
            each.hang_up()


async def test_a_deleted_session_is_gone_before_the_answer(path: Path) -> None:
    async with serving(make_server(), path) as endpoint:
        client = await Client.open(endpoint)
        assert (await plain(endpoint, client.head("DELETE"))).status == 200
        with contextlib.closing(sqlite3.connect(path)) as file:
            assert file.execute("SELECT session FROM sessions").fetchall() == []


async def test_requests_for_a_session_that_was_just_deleted_find_none(path: Path) -> None:
    async with serving(make_server(), path) as endpoint:
        client = await Client.open(endpoint)
        session = client.session
        session.link.close()  # type: ignore[attr-defined]  # as DELETE does; the session ends in a later turn
        assert session.ended is None
        reply = await plain(endpoint, client.head(), request(1, "ping"))
        assert reply.status == 404
        assert (await plain(endpoint, client.head("GET"))).status == 404
        assert (await plain(endpoint, client.head("DELETE"))).status == 404


async def test_the_standalone_stream_goes_on(path: Path) -> None:
    async with serving(server := make_server(), path, drain=True) as endpoint:
        client = await Client.open(endpoint)
        listening = await client.listen()
        server.notify_tools_changed()
        first = await listening.event()
        server.notify_tools_changed()
        second = await listening.event()
        listening.hang_up()
    assert first is not None
    assert second is not None
    async with serving(server := make_server(), path) as endpoint:
        client.endpoint = endpoint
        listening = await client.listen(first.id)
        assert await listening.event() == second
        server.notify_tools_changed()
        third = await listening.event()
        assert third is not None
        assert third.id is not None
        assert third.id.startswith("0.3.")
        listening.hang_up()


# -- passivation


async def test_an_idle_session_leaves_the_memory_and_comes_back(path: Path, mock_clock: MockClock) -> None:
    server = make_server()
    events: list[Any] = []
    server._app.telemetry.add(events.append)
    async with serving(server, path) as endpoint:
        client = await Client.open(endpoint)
        await tool(client, "who")
        await pass_time(mock_clock, 29)
        assert endpoint.runtime.supervisor.find(client.session_id) is not None
        await pass_time(mock_clock, 3)
        while endpoint.runtime.supervisor.sessions or endpoint.runtime.homes.moving:  # type: ignore[union-attr]
            await trio.lowlevel.checkpoint()
        assert telemetry.SessionPassivated(session=client.session_id) in events
        assert list(endpoint.runtime.store._streams.index) == []  # type: ignore[attr-defined]
        assert (await tool(client, "who"))["epoch"] == 1
        assert telemetry.SessionTakenOver(session=client.session_id, reason="passivated") in events
        assert sum(type(event) is telemetry.SessionOpened for event in events) == 1


async def test_a_passivated_session_holds_nothing_in_memory(path: Path) -> None:
    async with serving(make_server(), path) as endpoint:
        clients = [await Client.open(endpoint) for _ in range(3)]
        for client in clients:
            await passivated(client)
        runtime = endpoint.runtime
        del client
        gc.collect()
        assert [one for one in gc.get_objects() if type(one) is Session and one._runtime is runtime] == []
        assert runtime.homes is not None
        assert not runtime.homes.moving
        assert not runtime.supervisor.sessions
        assert len(runtime.store._home) == 0  # type: ignore[attr-defined]
        assert list(runtime.store._streams.index) == []  # type: ignore[attr-defined]


async def test_a_session_with_a_connection_or_a_call_stays(path: Path) -> None:
    async with serving(make_server(), path) as endpoint:
        assert endpoint.runtime.homes is not None
        listener, caller = await Client.open(endpoint), await Client.open(endpoint)
        stream = await listener.listen()
        call = await caller.stream(request(1, "tools/call", name="wait", arguments={}, _meta={"progressToken": 1}))
        for client in (listener, caller):
            client.session.doze()
            await wait_all_tasks_blocked()
            assert not endpoint.runtime.homes.may_leave(client.session)
        stream.hang_up()
        call.hang_up()
        await wait_all_tasks_blocked()
        assert endpoint.runtime.homes.may_leave(listener.session)
        assert not endpoint.runtime.homes.may_leave(caller.session)


async def test_a_session_that_cannot_be_stored_while_it_lives_has_expired(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homes, "RELEASE_WITHIN", 0.01)
    monkeypatch.setattr(homes, "RETRY_RELEASE", 0.001)
    async with serving(make_server(), path) as endpoint:
        client = await Client.open(endpoint)
        tries = 0

        async def release(*_: Any, **__: Any) -> bool:
            nonlocal tries
            tries += 1
            return False

        monkeypatch.setattr(type(endpoint.runtime.store.sessions), "release", release)
        client.session.last_used = float("-inf")
        with trio.fail_after(30):
            await passivated(client)
        assert tries > 1
        assert (await client.post(request(1, "ping"))).status == 404


async def test_sessions_that_are_being_activated_are_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "MAX_ACTIVATIONS", 2)
    async with serving(make_server(busy_timeout=0.05), path) as endpoint:
        clients = [await Client.open(endpoint) for _ in range(3)]
        for client in clients:
            await passivated(client)
        claim, replies = type(endpoint.runtime.store.sessions).claim, dict[int, Any]()
        go = trio.Event()

        async def slow(*arguments: Any) -> Any:
            await go.wait()
            return await claim(*arguments)

        monkeypatch.setattr(type(endpoint.runtime.store.sessions), "claim", slow)

        async def ping(number: int) -> None:
            replies[number] = await clients[number].post(request(1, "ping"))

        async with trio.open_nursery() as nursery:
            for number in range(2):
                nursery.start_soon(ping, number)
            await wait_all_tasks_blocked()
            with trio.fail_after(10):
                await ping(2)
            assert replies[2].status == 503
            assert b'"activations"' in replies[2].body
            go.set()
        assert [replies[number].status for number in range(2)] == [200, 200]
        await ping(2)
        assert replies[2].status == 200


async def test_requests_during_passivation_wait_and_are_served(path: Path) -> None:
    """R4: nothing is answered with 404 while the session moves."""
    async with serving(make_server(), path) as endpoint:
        client = await Client.open(endpoint)
        found = endpoint.sessions.find(client.head())
        assert found is not None
        for round in range(20):
            while (session := endpoint.runtime.supervisor.find(client.session_id)) is None:
                await trio.lowlevel.checkpoint()
            await session.wait_until_quiet()
            session.doze()
            await wait_all_tasks_blocked()
            early = client.head()
            assert endpoint.refuse_early(early) is None  # the session is found before it begins to move
            endpoint.runtime.homes.leave_soon(session)  # type: ignore[union-attr]
            replies: list[int] = []

            async def ask(number: int) -> None:
                for _ in range(number):
                    await trio.lowlevel.checkpoint()
                replies.append((await client.post(request(number, "ping"))).status)  # noqa: B023 - it ends in time

            async with trio.open_nursery() as nursery:
                for number in range(5):
                    nursery.start_soon(ask, number * 3)
                reply = await endpoint.answer(early, request(99, "ping"))
                assert (await reply.reply()).status == 200  # type: ignore[union-attr]
            assert replies == [200] * 5, round


async def test_a_request_that_waits_for_a_place_finds_its_session_again(path: Path) -> None:
    """R4: it had found the session before the passivation began."""
    async with serving(make_server(), path, max_calls=1) as endpoint:
        client, busy = await Client.open(endpoint), await Client.open(endpoint)
        call = await busy.stream(request(1, "tools/call", name="wait", arguments={}, _meta={"progressToken": 1}))
        replies: list[int] = []

        async def ask() -> None:
            replies.append((await client.post(request(2, "ping"))).status)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await wait_all_tasks_blocked()
            await passivated(client)
            assert (await plain(endpoint, busy.head("DELETE"))).status == 200
        call.hang_up()
        assert replies == [200]
        assert client.session.epoch == 1


async def test_one_session_is_claimed_once_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R9."""
    async with serving(make_server(), path) as endpoint:
        client = await Client.open(endpoint)
        await passivated(client)
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(client.post, request(1, "ping"))
        assert client.session.epoch == 1


async def test_changes_during_the_absence_are_announced_once(path: Path) -> None:
    async with serving(server := make_server(), path) as endpoint:
        client = await Client.open(endpoint)
        for uri in ("notes://a", "notes://b"):
            result_of(await client.post(request(2, "resources/subscribe", uri=uri)))
        await passivated(client)
        for _ in range(3):
            server.notify_resource_updated("notes://a")
            server.notify_prompts_changed()
            server.notify_tools_changed()
        listening = await client.listen()
        received = [await listening.frame() for _ in range(2)]
        listening.hang_up()
        assert sorted(one["method"] for one in received) == [
            "notifications/resources/updated",
            "notifications/tools/list_changed",
        ]
        again = await client.listen()
        server.notify_resource_updated("notes://b")
        assert (await again.frame())["params"] == {"uri": "notes://b"}, "nothing else was waiting"
        again.hang_up()


async def test_an_invented_id_never_reaches_the_store(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(make_server(), path) as endpoint:
        client = await Client.open(endpoint)
        store = endpoint.runtime.store

        async def claim(session: str) -> None:
            raise AssertionError(session)

        monkeypatch.setattr(store.sessions, "claim", claim)
        good = client.session_id
        for bad in ("unknown", good[:-1], good + "x", good[:-1] + ("A" if good[-1] != "A" else "B"), "é" * 40):
            for method in ("POST", "GET", "DELETE"):
                reply = await plain(endpoint, head(method, mcp_session_id=bad), request(1, "ping"))
                assert reply.status in (400, 404)
        assert is_session_id(new_session_id(store.secret), store.secret)
        assert not is_session_id(new_session_id(b"other"), store.secret)
        assert is_session_id(new_session_id(store.secret, "ann"), store.secret, "ann")
        assert not is_session_id(new_session_id(store.secret, "ann"), store.secret, "bob")


async def test_stored_sessions_do_not_pass_the_limit_of_their_principal(path: Path) -> None:
    async with serving(make_server(), path, authenticator=who, max_sessions_per_principal=1) as endpoint:
        first = await Client.open(endpoint, extra={"authorization": "ann"})
        await passivated(first)
        second = await Client.open(endpoint, extra={"authorization": "ann"})
        assert (await first.post(request(1, "ping"))).status == 503
        await passivated(second)
        assert result_of(await first.post(request(2, "ping"))) == {}, "it was only refused, not lost"


async def test_a_full_memory_passivates_the_oldest_idle_session(path: Path) -> None:
    async with serving(make_server(max_sessions=3), path) as endpoint:
        clients = [await Client.open(endpoint) for _ in range(10)]
        assert len(endpoint.runtime.supervisor.sessions) <= 3
        for client in clients:
            assert (await client.post(request(1, "ping"))).status == 200


async def test_a_draining_process_claims_nothing(path: Path) -> None:
    """R12."""
    async with serving(make_server(), path) as endpoint:
        client = await Client.open(endpoint)
        await passivated(client)
        await endpoint.runtime.drain(0)
        reply = await client.post(request(1, "ping"))
        assert reply.status == 503
        with contextlib.closing(sqlite3.connect(path)) as file:
            assert file.execute("SELECT epoch FROM sessions").fetchall() == [(0,)]
    async with serving(make_server(), path) as endpoint:
        client.endpoint = endpoint
        assert (await client.post(request(1, "ping"))).status == 200


async def test_a_passivated_session_expires(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(make_server(idle_timeout=60), path) as endpoint:
        gone, back = await Client.open(endpoint), await Client.open(endpoint)
        gone.session.last_used -= 50
        for client in (gone, back):
            await passivated(client)
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 30)
        assert (await gone.post(request(1, "ping"))).status == 404
        assert (await back.post(request(1, "ping"))).status == 200


async def test_with_the_memory_store_a_session_only_sleeps(autojump_clock: MockClock) -> None:
    async with make_server()._app.make_runtime(MemoryStore()).open() as runtime:
        client = await Client.open(Endpoint(runtime))
        await trio.sleep(100)
        assert client.session.inbox.asleep
        assert runtime.homes is None


async def test_initialize_is_answered_when_its_record_is_stored(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R3."""
    async with serving(make_server(), path) as endpoint:
        reply = await plain(endpoint, head(), initialize())
        session_id = dict(reply.headers)[b"mcp-session-id"].decode()
        assert session_id not in endpoint.runtime.store._home.changes  # type: ignore[attr-defined]
        assert endpoint.runtime.store._home.find(session_id) is not None  # type: ignore[attr-defined]


# -- the session function


async def test_a_session_function_pins_its_sessions(path: Path, mock_clock: MockClock) -> None:
    server = make_server()
    ended: list[str | None] = []

    @server.session
    async def state(session: SessionHandle) -> AsyncIterator[str]:
        yield "mine"
        ended.append(session.ended)

    async with serving(server, path, drain=True) as endpoint:
        client = await Client.open(endpoint)
        await pass_time(mock_clock, 40)
        assert (await tool(client, "who"))["state"] == "mine"
        assert client.session.epoch == 0
    assert ended == ["the server is shutting down"]
    async with serving(make_server(), path) as endpoint:
        client.endpoint = endpoint
        assert (await client.post(request(1, "ping"))).status == 404


def movable(refuses: bool = False) -> tuple[Server, list[Any]]:
    server, log = make_server(), []

    @server.session(movable=True)
    async def state(session: SessionHandle) -> AsyncIterator[Any]:
        log.append((session.taken_over, session.saved))
        if refuses:
            raise SessionRefused("not again")
        session.save({"opened": 1 if session.saved is None else session.saved["opened"] + 1})
        yield session.saved["opened"]
        log.append(session.ended)
        session.save({**session.saved, "closed": True})

    return server, log


async def test_a_movable_session_function_runs_again(path: Path) -> None:
    server, log = movable()
    async with serving(server, path) as endpoint:
        client = await Client.open(endpoint)
        assert (await tool(client, "who"))["state"] == 1
        await passivated(client)
        assert (await tool(client, "who"))["state"] == 2
    assert log[:3] == [
        (False, None),
        "the session was stored and left the memory",
        (True, {"opened": 1, "closed": True}),
    ]
    server, log = movable()
    async with serving(server, path) as endpoint:
        client.endpoint = endpoint
        assert (await tool(client, "who"))["state"] == 3


async def test_a_session_function_may_refuse_to_continue(path: Path) -> None:
    server, _ = movable()
    async with serving(server, path, drain=True) as endpoint:
        client = await Client.open(endpoint)
    server, log = movable(refuses=True)
    async with serving(server, path) as endpoint:
        client.endpoint = endpoint
        assert (await client.post(request(1, "ping"))).status == 404
        assert log == [(True, {"opened": 1, "closed": True})]
        assert not endpoint.runtime.supervisor.sessions
    server, log = movable()
    async with serving(server, path) as endpoint:
        client.endpoint = endpoint
        assert (await tool(client, "who"))["state"] == 2


async def test_a_session_function_that_hangs_does_not_hold_its_session_for_ever(path: Path) -> None:
    server = Server("hangs", version="1", limits=Limits(call_timeout=0.2))
    hangs = False

    @server.session(movable=True)
    async def state(session: SessionHandle) -> AsyncIterator[None]:
        if hangs:
            await trio.sleep_forever()
        yield

    async with serving(server, path) as endpoint:
        client = await Client.open(endpoint)
        await passivated(client)
        hangs = True
        with trio.fail_after(30):
            assert (await client.post(request(1, "ping"))).status == 503
            hangs = False
            assert (await client.post(request(2, "ping"))).status == 200


async def test_too_large_a_value_is_not_saved(path: Path) -> None:
    server = make_server()

    @server.session(movable=True)
    async def state(session: SessionHandle) -> AsyncIterator[None]:
        with pytest.raises(ValueError, match="65536"):
            session.save("x" * 65536)
        with pytest.raises(TypeError):
            session.save(object())
        yield

    async with serving(server, path) as endpoint:
        client = await Client.open(endpoint)
        assert client.session.data.get("saved") is None


async def test_narrowed_capabilities_stay_narrow(path: Path) -> None:
    server = make_server()

    @server.session(movable=True)
    async def narrow(session: SessionHandle) -> AsyncIterator[None]:
        if not session.taken_over:
            session.capabilities = attrs.evolve(session.capabilities, resources=None)
        yield

    async with serving(server, path) as endpoint:
        client = await Client.open(endpoint)
        assert "error" in json.loads((await client.post(request(1, "resources/list"))).body)
        await passivated(client)
        assert "error" in json.loads((await client.post(request(1, "resources/list"))).body)


async def test_a_client_that_was_interrupted_before_initialized_goes_on(path: Path) -> None:
    async with serving(make_server(), path) as endpoint:
        reply = await plain(endpoint, head(), initialize())
        client = Client(endpoint, dict(reply.headers)[b"mcp-session-id"].decode())
    async with serving(make_server(), path) as endpoint:
        client.endpoint = endpoint
        assert (await client.post(notification("notifications/initialized"))).status == 202
        assert client.session.peer.state.value == "ready"
        assert (await tool(client, "who"))["epoch"] == 1
