"""Any worker serves any request of any session: two workers in one process, with the client at the wrong one."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
import trio

from mcptrio.auth.server import Principal
from mcptrio.stores.redis.keys import Keys
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.message import HttpRequest, Plain
from tests.redis_server import RedisServer
from tests.transports.app_for_tests import Client, app_of, error_of, notification, plain, request, result_of

from .two_workers import Worker, two_workers, until, working


async def progress(reader: Any, count: int) -> list[int]:
    return [(await reader.frame())["params"]["progress"] for _ in range(count)]


# -- requests at the wrong worker


async def test_a_call_is_forwarded_to_the_home_worker(url: str) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        there = other.client(client)
        for say in range(3):
            assert result_of(await there.post(request(say, "echo", say=say))) == {"echo": say}
        assert list(other.sessions) == []
        assert result_of(await client.post(request(9, "echo", say="here"))) == {"echo": "here"}
        assert one.sessions[client.session_id].epoch == 0  # it never moved


async def test_a_response_larger_than_the_request_limit_is_forwarded(url: str) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        reply = await other.client(client).post(request(1, "echo", say="x" * 1000, times=6000))
        assert len(result_of(reply)["echo"]) == 6_000_000


async def test_a_stream_is_named_to_another_worker_when_it_is_stored(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R7: also in a revision whose streams begin without an id."""
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint, "2025-06-18")
        commit, stored = one.store._backend.commit, trio.Event()

        async def commit_later(group: Any) -> Any:
            await stored.wait()
            return await commit(group)

        monkeypatch.setattr(one.store._backend, "commit", commit_later)
        readers: list[Any] = []

        async def call() -> None:
            readers.append(await other.client(client).stream(request(1, "follow")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await one.stage.cues.send("tell")
            await until(lambda: one.store._has_work() or one.store._writing)
            with trio.move_on_after(0.2):  # without the rule, the other worker looks for the stream now
                await trio.sleep_forever()
            stored.set()
        assert await progress(readers[0], 1) == [0]
        await one.stage.cues.send("end")
        assert (await readers[0].frame())["result"] == {"followed": 1}


async def test_a_client_that_leaves_while_its_stream_is_stored(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The home worker must not go on counting it as a connection."""
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        link = one.sessions[client.session_id].link
        entered = trio.Event()

        async def never() -> None:
            if link.listening:
                entered.set()
                await trio.sleep_forever()

        with monkeypatch.context() as patch:
            patch.setattr(one.store, "flush", never)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(other.client(client).listen)
                with trio.fail_after(10):
                    await entered.wait()
                nursery.cancel_scope.cancel()
            await until(lambda: not link.listening)
        assert await client.listen()


async def test_a_list_of_workers_from_before_one_joined_does_not_end_the_link_to_it(url: str) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        other.cluster._listed.clear()
        await other.client(client).post(request(1, "echo", say=1))
        link = other.cluster._links[one.id]
        other.cluster._on_alive({other.id})
        assert not link.dead
        other.cluster._on_alive({other.id})
        assert link.dead


async def test_an_unknown_session_is_unknown_at_every_worker(url: str) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        near = client.session_id[:-1] + ("y" if client.session_id.endswith("x") else "x")
        for name in ("invented", near):
            assert (await plain(other.endpoint, Client(other.endpoint, name).head(), request(1, "ping"))).status == 404


async def test_progress_and_the_answer_of_a_call(url: str) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        reader = await other.client(client).stream(request(1, "follow"))
        for number in range(3):
            await one.stage.cues.send("tell")
            assert await progress(reader, 1) == [number]
        await one.stage.cues.send("end")
        assert (await reader.frame())["result"] == {"followed": 3}
        assert await reader.frame() is None
        await until(lambda: not one.endpoint.calls)


async def test_a_burst_of_events_arrives_in_order(url: str) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        reader = await other.client(client).stream(request(1, "count", to=700))
        assert await progress(reader, 700) == list(range(700))
        assert (await reader.frame())["result"] == {"counted": 700}


async def test_an_answer_to_a_question_reaches_the_handler(url: str) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint, roots={})
        there = other.client(client)
        reader = await there.stream(request(1, "ask", tell=1))
        await progress(reader, 1)
        question = await reader.frame()
        assert question["method"] == "roots/list"
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}}
        assert (await there.post(json.dumps(answer).encode())).status == 202
        assert (await reader.frame())["result"] == {"answer": {"roots": []}}


async def test_a_cancel_reaches_the_call(url: str) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        there = other.client(client)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(there.stream, request(1, "sleep", seconds=60, name="a")))
            await until(lambda: one.stage.begun == ["a"])
            assert (await there.post(notification("notifications/cancelled", requestId=1))).status == 202
            await until(lambda: one.stage.ended == ["a"])


async def test_a_delete_ends_the_session_everywhere(url: str) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        there = other.client(client)
        stream = await there.listen()
        assert (await plain(other.endpoint, there.head("DELETE"))).status == 200
        assert await stream.event() is None
        for place in (client, there):
            assert (await place.post(request(1, "ping"))).status == 404
        assert list(one.sessions) == []


async def test_a_request_does_not_bring_back_a_session_that_is_being_deleted(
    url: str, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its home has it no longer, and the directory still has it."""
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        homes, commit, stored = one.endpoint.runtime.homes, one.store._backend.commit, trio.Event()
        assert homes is not None
        replies: dict[str, Plain] = {}

        async def commit_late(*args: Any) -> Any:
            await stored.wait()
            return await commit(*args)

        async def ask(name: str, worker: Worker, *content: Any) -> None:
            replies[name] = await plain(worker.endpoint, client.head(name), *content)

        monkeypatch.setattr(one.store._backend, "commit", commit_late)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "DELETE", one)
            await until(lambda: homes.moving)
            nursery.start_soon(ask, "POST", other, request(1, "ping"))
            await until(lambda: homes.moving[client.session_id].done.statistics().tasks_waiting)
            stored.set()
        assert (replies["DELETE"].status, replies["POST"].status) == (200, 404)
        assert redis_server.command("EXISTS", Keys(one.store.name).session(client.session_id)) == 0


async def test_a_delete_that_cannot_be_stored_gets_503_after_its_deadline(
    url: str, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        monkeypatch.setattr("mcptrio._actors.homes.STORE_WITHIN", 0.05)
        monkeypatch.setattr(one.store, "flush", trio.sleep_forever)
        with trio.fail_after(30):
            refused = await plain(one.endpoint, client.head("DELETE"))
        assert refused.status == 503
        assert dict(refused.headers)[b"retry-after"] == b"1"
        with trio.fail_after(30):  # it is deleted as soon as that can be stored
            while redis_server.command("EXISTS", Keys(one.store.name).session(client.session_id)):
                await trio.sleep(0.01)
        assert (await other.client(client).post(request(1, "ping"))).status == 404


async def test_the_standalone_stream(url: str) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        there = other.client(client)
        reader = await there.listen()
        session = one.sessions[client.session_id]
        await session.asks.notify("notifications/message", {"n": 1})
        assert (await reader.frame())["params"] == {"n": 1}
        assert (await there.refused()).status == 409  # in the whole cluster
        assert (await client.refused()).status == 409
        reader.hang_up()
        await until(lambda: not session.link.listening)
        assert (await client.listen()) is not None


async def test_a_lost_connection_is_resumed_at_either_worker(url: str) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        places = [other.client(client), client] * 3
        reader = await client.stream(request(1, "follow"))
        seen = 0
        cursor = None
        for place in places:
            await one.stage.cues.send("tell")
            event = await reader.event()
            assert event is not None
            assert json.loads(event.data)["params"]["progress"] == seen
            seen, cursor = seen + 1, event.id
            reader.hang_up()
            await one.stage.cues.send("tell")
            reader = await place.listen(cursor)
            assert await progress(reader, 1) == [seen]
            seen += 1
        await one.stage.cues.send("end")
        assert (await reader.frame())["result"] == {"followed": seen}


async def test_a_new_connection_replaces_the_one_at_another_worker(url: str) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        first = await other.client(client).stream(request(1, "follow"))
        await one.stage.cues.send("tell")
        event = await first.event()
        assert event is not None
        second = await client.listen(event.id)
        assert await first.event() is None
        await one.stage.cues.send("end")
        assert (await second.frame())["result"] == {"followed": 1}


async def test_a_handler_can_close_a_stream_at_another_worker(url: str) -> None:
    """SEP-1699: the client polls for the rest."""
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        there = other.client(client)
        reader = await there.stream(request(1, "follow"))
        await one.stage.cues.send("tell")
        event = await reader.event()
        assert event is not None
        await one.stage.cues.send("close")
        assert await reader.event() is None
        assert b"retry:" in reader.raw
        await one.stage.cues.send("end")
        again = await there.listen(event.id)
        assert (await again.frame())["result"] == {"followed": 1}


async def test_a_disconnected_client_is_noticed_at_the_home_worker(url: str) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        reader = await other.client(client).stream(request(1, "follow"))
        link = one.sessions[client.session_id].link
        assert link.connections
        reader.hang_up()
        await until(lambda: not link.connections)


async def test_an_answer_as_plain_json_only(url: str) -> None:
    async with two_workers(url, config=HttpConfig(json_only=True)) as (one, other):
        client = await Client.open(one.endpoint)
        assert result_of(await other.client(client).post(request(1, "count", to=3))) == {"counted": 3}


async def test_a_client_that_is_gone_before_the_answer(url: str) -> None:
    async with two_workers(url, config=HttpConfig(json_only=True)) as (one, other):
        client = await Client.open(one.endpoint)
        with trio.move_on_after(0.1):
            await other.client(client).post(request(1, "sleep", seconds=0.3, name="a"))
        await until(lambda: one.stage.ended == ["a"])  # a stateful call goes on
        assert result_of(await other.client(client).post(request(2, "ping"))) == {}


# -- callers


async def by_header(head: HttpRequest) -> Principal:
    return Principal(subject=head.text(b"x-user"), scopes="orders", claims={"team": ["blue"]})


async def test_the_caller_is_known_at_the_home_worker_and_others_are_refused(url: str) -> None:
    async with two_workers(url, authenticator=by_header) as (one, other):
        client = await Client.open(one.endpoint, extra={"x_user": "ada", "authorization": "Bearer secret"})
        there = other.client(client)
        assert result_of(await there.post(request(1, "ping"))) == {}
        stranger = Client(other.endpoint, client.session_id, {"x_user": "eve"})
        assert (await stranger.post(request(1, "ping"))).status == 404
        assert (await stranger.refused()).status == 404
        assert (await plain(other.endpoint, stranger.head("DELETE"))).status == 404
        assert client.session.principal.claims == {"team": ["blue"]}


async def with_an_object(head: HttpRequest) -> Principal:
    return Principal(subject="ada", claims={"row": object()})


async def test_a_caller_that_another_worker_cannot_know_is_refused(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with two_workers(url, authenticator=with_an_object) as (one, other):
        client = await Client.open(one.endpoint)
        assert result_of(await client.post(request(1, "ping"))) == {}
        refused = await other.client(client).post(request(2, "ping"))
        assert refused.status == 401
        assert b"object" not in refused.body
        assert "the claims of its principal have no JSON form" in caplog.text


async def test_the_caller_of_a_session_that_was_taken_over(url: str) -> None:
    async with working(url, "2", authenticator=by_header) as other:
        async with working(url, "1", authenticator=by_header) as one:
            client = await Client.open(one.endpoint, extra={"x_user": "ada"})
        stranger = Client(other.endpoint, client.session_id, {"x_user": "eve"})
        assert (await stranger.post(request(1, "ping"))).status == 404
        assert result_of(await other.client(client).post(request(1, "ping"))) == {}
        assert other.client(client).session.principal.subject == "ada"


async def test_a_stranger_changes_nothing_of_a_session_without_a_home(url: str, redis_server: RedisServer) -> None:
    async with working(url, "2", authenticator=by_header) as other:
        async with working(url, "1", authenticator=by_header) as one:
            client = await Client.open(one.endpoint, extra={"x_user": "ada"})
        key = Keys(other.store.name).session(client.session_id)
        redis_server.command("PEXPIRE", key, 100_000)
        before = redis_server.command("HGETALL", key)
        stranger = Client(other.endpoint, client.session_id, {"x_user": "eve"})
        for reply in (
            await stranger.post(request(1, "ping")),
            await stranger.refused(),
            await plain(other.endpoint, stranger.head("DELETE")),
        ):
            assert reply.status == 404
        assert redis_server.command("HGETALL", key) == before  # also its epoch
        assert 0 < redis_server.command("PTTL", key) <= 100_000
        assert result_of(await other.client(client).post(request(1, "ping"))) == {}
        assert other.client(client).session.epoch == 1


# -- workers that leave or die


async def test_a_session_continues_after_its_worker_has_left(url: str) -> None:
    async with working(url, "2") as other:
        async with working(url, "1") as one:
            client = await Client.open(one.endpoint)
        assert result_of(await other.client(client).post(request(1, "echo", say=1))) == {"echo": 1}
        assert other.client(client).session.epoch == 1


async def kill(worker: Worker, other: Worker) -> None:
    """Let a worker freeze, and have it declared dead."""
    worker.cluster.membership._lease = worker.cluster.membership._lease.at(float("inf"))
    await other.cluster.membership.declare_dead(worker.id)


async def test_a_call_of_a_dead_worker_is_answered_where_its_client_is(url: str) -> None:
    """R8: the client's connection was not cut, and it sends nothing."""
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        reader = await other.client(client).stream(request(1, "follow"))
        await one.stage.cues.send("tell")
        assert await progress(reader, 1) == [0]
        await kill(one, other)
        with trio.fail_after(30):
            answer = await reader.frame()
        assert answer["id"] == 1
        assert answer["error"]["data"] == {"mayHaveRun": True}
        assert await reader.frame() is None
        await one.stage.cues.send("tell")  # it is fenced: nothing of this is stored or shown
        await one.stage.cues.send("end")
        await until(lambda: client.session_id not in one.sessions)
        assert result_of(await other.client(client).post(request(2, "ping"))) == {}


@pytest.mark.parametrize("signed_in", [False, True])
async def test_a_call_that_may_run_twice_runs_again_at_the_new_home(url: str, signed_in: bool) -> None:
    """Unless it needs the principal of its caller, which sends nothing while its connection is open."""
    options = {"authenticator": by_header} if signed_in else {}
    async with two_workers(url, **options) as (one, other):
        app_of(one.endpoint).reruns = app_of(other.endpoint).reruns = True
        client = await Client.open(one.endpoint, extra={"x_user": "ada"} if signed_in else {})
        reader = await other.client(client).stream(request(1, "follow"))
        await one.stage.cues.send("tell")
        assert await progress(reader, 1) == [0]
        await kill(one, other)
        for cue in ("tell", "tell", "end"):
            await other.stage.cues.send(cue)
        if signed_in:
            assert (await reader.frame())["error"]["data"] == {"mayHaveRun": True}
        else:
            assert await progress(reader, 1) == [1], "progress that was sent before is not repeated"
            assert (await reader.frame())["result"] == {"followed": 2}
        assert await reader.frame() is None
        await one.stage.cues.send("end")


async def test_a_call_runs_again_only_if_there_is_a_place_for_it(url: str) -> None:
    async with two_workers(url, config=HttpConfig(max_calls=1)) as (one, other):
        app_of(one.endpoint).reruns = app_of(other.endpoint).reruns = True
        client = await Client.open(one.endpoint)
        reader = await other.client(client).stream(request(1, "follow"))
        await one.stage.cues.send("tell")
        assert await progress(reader, 1) == [0]
        busy = await Client.open(other.endpoint)
        occupied = await busy.stream(request(1, "follow"))
        await kill(one, other)
        with trio.fail_after(10):
            assert (await reader.frame())["error"]["data"] == {"mayHaveRun": True}
        await other.stage.cues.send("end")
        assert (await occupied.frame())["result"] == {"followed": 0}
        await one.stage.cues.send("end")


async def test_a_waiting_forward_is_answered_when_the_home_worker_dies(url: str) -> None:
    """R5, R11: it may have run, so it is not sent again."""
    async with two_workers(url, config=HttpConfig(json_only=True)) as (one, other):
        client = await Client.open(one.endpoint)
        replies: list[Any] = []

        async def call() -> None:
            replies.append(await other.client(client).post(request(1, "sleep", seconds=60, name="a")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await until(lambda: one.stage.begun == ["a"])
            await kill(one, other)
        assert error_of(replies[0])["data"] == {"mayHaveRun": True}
        assert other.stage.begun == []
        await until(lambda: client.session_id in other.sessions)


async def test_a_call_whose_worker_loses_the_session_before_the_answer(url: str) -> None:
    """Its client is connected to that worker. The session exists, so the answer is not 404."""
    async with two_workers(url, config=HttpConfig(json_only=True)) as (one, other):
        client = await Client.open(one.endpoint)
        replies: list[Any] = []

        async def call() -> None:
            replies.append(await client.post(request(1, "sleep", seconds=60, name="a")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await until(lambda: one.stage.begun == ["a"])
            await kill(one, other)
            await one.cluster.membership._renew()
        assert error_of(replies[0])["data"] == {"mayHaveRun": True}
        assert result_of(await other.client(client).post(request(2, "ping"))) == {}


async def test_a_session_that_moves_while_its_request_waits_is_not_unknown(url: str) -> None:
    """The request was routed to this worker, and waited until another one had claimed the session."""
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        await kill(one, other)
        await one.cluster.membership._renew()  # under a new id
        assert result_of(await other.client(client).post(request(1, "ping"))) == {}
        refused = await one.endpoint.sessions.activation.find(client.head())
        assert isinstance(refused, Plain)
        assert refused.status == 503


async def test_a_worker_whose_lease_expired_answers_503(url: str) -> None:
    async with working(url, "1") as one:
        client = await Client.open(one.endpoint)
        membership = one.cluster.membership
        membership._lease = membership._lease.at(float("inf"))
        for reply in (
            await client.post(request(1, "ping")),
            await client.refused(),
            await plain(one.endpoint, client.head(mcp_session_id=None), request(1, "initialize")),
        ):
            assert reply.status == 503
            assert dict(reply.headers)[b"retry-after"] == b"1"
        await membership._renew()
        assert result_of(await client.post(request(2, "ping"))) == {}


async def test_a_worker_whose_lease_expired_serves_no_forwarded_request(url: str) -> None:
    """Another worker may be the home of the session by now."""
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        one.cluster.membership._lease = one.cluster.membership._lease.at(float("inf"))
        reply = await other.client(client).post(request(1, "echo", say=1))
        assert reply.status == 503
        assert error_of(reply)["data"]["limit"] == "lease"


async def test_a_worker_that_drains_claims_nothing(url: str) -> None:
    """R12: the request of a session without a home is served by another worker."""
    async with two_workers(url) as (one, other):
        async with working(url, "3") as third:
            client = await Client.open(third.endpoint)
        one.cluster.drain()
        assert result_of(await one.client(client).post(request(1, "ping"))) == {}
        assert list(one.sessions) == []
        assert client.session_id in other.sessions


async def test_a_home_that_does_not_have_the_session_is_not_believed(url: str) -> None:
    """The reply to its claim was lost: the directory names a worker that has no such session."""
    async with two_workers(url) as (one, other):
        async with working(url, "3") as third:
            client = await Client.open(third.endpoint)
        await one.store.sessions.claim(client.session_id)
        assert result_of(await other.client(client).post(request(1, "ping"))) == {}
        assert other.client(client).session.epoch == 2


async def test_an_unreachable_worker_is_reported_after_a_second(url: str) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        info = one.cluster.membership.info
        one.cluster.membership.info = type(info)("/nonexistent", info.server, info.version, info.slot)
        await one.cluster.membership._renew()

        async def renew() -> None:
            while True:
                await trio.sleep(0.2)
                for worker in (one, other):
                    await worker.cluster.membership._renew()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(renew)
            with trio.fail_after(5):
                reply = await other.client(client).post(request(1, "ping"))
            nursery.cancel_scope.cancel()
        assert reply.status == 503
        assert error_of(reply)["data"]["limit"] == "forward"
        assert result_of(await client.post(request(1, "ping"))) == {}


async def test_a_request_at_a_worker_that_drains_is_served(url: str) -> None:
    """A quiet session leaves with its next request, a busy one stays until its calls have ended."""
    async with two_workers(url) as (one, other):
        quiet, busy = await Client.open(one.endpoint), await Client.open(one.endpoint)
        reader = await busy.stream(request(1, "follow"))
        one.cluster.drain()
        one.endpoint.runtime.supervisor.begin_drain()
        for client in (quiet, busy):
            assert result_of(await client.post(request(2, "ping"))) == {}
            assert result_of(await other.client(client).post(request(3, "ping"))) == {}
        assert list(one.sessions) == [busy.session_id]
        assert list(other.sessions) == [quiet.session_id]
        await one.stage.cues.send("end")
        assert (await reader.frame())["result"] == {"followed": 0}
        assert result_of(await other.client(busy).post(request(4, "ping"))) == {}
        assert list(one.sessions) == []


async def test_a_client_that_listens_is_sent_to_the_new_home(url: str) -> None:
    """Its connection was not cut; the new home has to know that it has one."""
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        there = other.client(client)
        reader = await there.listen()
        await one.sessions[client.session_id].asks.notify("notifications/message", {"n": 1})
        event = await reader.event()
        assert event is not None
        await kill(one, other)
        assert await reader.event() is None
        assert b"retry:" in reader.raw
        again = await there.listen(event.id)
        await there.session.asks.notify("notifications/message", {"n": 2})
        assert (await again.frame())["params"] == {"n": 2}
        assert there.session.link.listening


@pytest.mark.parametrize("again", [False, True], ids=["", "and there is a new one"])
async def test_a_client_whose_home_has_lost_the_link_connects_again(url: str, again: bool) -> None:
    """Also if the next request has opened another link: the home knows nothing of the streams of the first one."""
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint, roots={})
        there = other.client(client)
        reader = await there.stream(request(1, "follow"))
        await one.stage.cues.send("tell")
        event = await reader.event()
        assert event is not None
        link = other.cluster._links[one.id]
        assert link._scope is not None
        link._scope.cancel()
        await until(lambda: not one.sessions[client.session_id].link.connections)
        kept = await there.stream(request(2, "ask")) if again else None
        assert link.connected == again
        await other.cluster.membership._renew()
        with trio.fail_after(30):
            assert await reader.event() is None
        await one.stage.cues.send("end")
        resumed = await there.listen(event.id)
        assert (await resumed.frame())["result"] == {"followed": 1}
        if kept is not None:  # that one has stayed
            question = await kept.frame()
            await there.post(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}}).encode())
            assert (await kept.frame())["result"] == {"answer": {"roots": []}}


async def test_a_call_whose_session_was_taken_over_is_answered(url: str) -> None:
    """Its worker has no lease, and a client must not get an id of a stream that the next home does not know."""
    async with two_workers(url, config=HttpConfig(stream_after=0.01)) as (one, _):
        client = await Client.open(one.endpoint)
        one.store.holds_back = True
        replies: list[Plain] = []

        async def call() -> None:
            replies.append(await client.post(request(1, "sleep", seconds=60, name="a")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await until(lambda: client.session_id in {stream.key.session for stream in one.store._streams.index})
            one.store.sessions.lose(str(client.session_id))
            one.store.holds_back = False
        assert error_of(replies[0])["data"] == {"mayHaveRun": True}


async def test_an_undecided_call_whose_session_was_taken_over_is_answered(url: str) -> None:
    async with two_workers(url) as (one, _):
        client = await Client.open(one.endpoint)
        replies: list[Plain] = []

        async def call() -> None:
            replies.append(await client.post(request(1, "sleep", seconds=60, name="a")))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await until(lambda: one.stage.begun == ["a"])
            one.store.sessions.lose(str(client.session_id))
        assert error_of(replies[0])["data"] == {"mayHaveRun": True}
