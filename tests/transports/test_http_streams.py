"""Responses to a request: JSON or a stream, the events of a stream, its resumption, and its end."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio._actors.limits import Limits
from mcptrio._wire.sse import SseReader
from mcptrio.stores.base import StoreLimits
from mcptrio.stores.memory import MemoryStore
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.post import PostStream

from .app_for_tests import (
    Client,
    Reader,
    app_of,
    error_of,
    exchange,
    head,
    initialize,
    notification,
    open_endpoint,
    plain,
    request,
    result_of,
    stage_of,
    stream,
)

STATEFUL = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


# -- JSON or a stream


async def test_a_quick_call_is_answered_with_json_and_nothing_is_stored(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        reply = await client.post(request(1, "echo", say="hi"))
        assert dict(reply.headers)[b"content-type"] == b"application/json"
        assert result_of(reply) == {"echo": "hi"}
        assert endpoint.runtime.store._index.count == 0
        assert endpoint.calls == 0


async def test_a_quick_call_costs_the_exchange_one_wait() -> None:
    """The hot path: no nursery, no watcher, one park until the answer is there."""
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        me = trio.lowlevel.current_task()
        switches = 0

        class Count(trio.abc.Instrument):
            def before_task_step(self, task: trio.lowlevel.Task) -> None:
                nonlocal switches
                switches += task is me

        instrument = Count()
        trio.lowlevel.add_instrument(instrument)
        await client.post(request(1, "ping"))
        assert switches == 0  # answered in the session's place, without a task switch
        await client.post(request(2, "echo"))
        trio.lowlevel.remove_instrument(instrument)
        assert switches == 1


async def test_a_slow_call_becomes_a_stream_after_a_moment(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        before = trio.current_time()
        reader = await client.stream(request(1, "sleep", seconds=3))
        assert trio.current_time() - before == pytest.approx(0.05)
        headers = dict(reader.reply.headers)
        assert headers[b"content-type"] == b"text/event-stream"
        assert headers[b"x-accel-buffering"] == b"no"
        assert (await reader.frame())["result"] == {"slept": 3}
        assert await reader.frame() is None
        assert trio.current_time() - before == pytest.approx(3)
        assert endpoint.calls == 0


async def test_a_call_that_sends_something_first_becomes_a_stream_at_once(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        before = trio.current_time()
        reader = await client.stream(request("a", "count", to=3))
        frames = [json.loads(event.data) for event in await reader.rest()]
        assert [frame["params"]["progress"] for frame in frames[:3]] == [0, 1, 2]
        assert frames[3] == {"jsonrpc": "2.0", "id": "a", "result": {"counted": 3}}
        assert trio.current_time() == before


@pytest.mark.parametrize("date", STATEFUL)
async def test_events_have_ids_and_only_the_newest_date_primes(date: str, autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint, date)
        reader = await client.stream(request(1, "count", to=2, every=1))
        primed = date == "2025-11-25"
        await reader.chunk()
        first = reader.raw.split(b"\n\n")[0]
        assert first.startswith(b"id: ")
        assert (b"\nretry: 1000\ndata: " in first and first.endswith(b"data: ")) == primed
        events = await reader.rest()
        ids = [event.id for event in events]
        assert len(set(ids)) == 3
        assert all(ids)
        assert (await client.refused(ids[0] + "x")).status == 400


async def test_sse_only_answers_every_call_with_a_stream() -> None:
    async with open_endpoint(HttpConfig(sse_only=True)) as endpoint:
        reader = await stream(endpoint, head(), initialize())
        session_id = dict(reader.reply.headers)[b"mcp-session-id"].decode()
        assert (await reader.frame())["result"]["protocolVersion"] == "2025-11-25"
        assert await reader.frame() is None
        reader = await Client(endpoint, session_id).stream(request(1, "echo", say=1))
        assert (await reader.frame())["result"] == {"echo": 1}
        again = await Client(endpoint, session_id).post(initialize())
        assert again.status == 400, "an error with a status of its own is said with it"


async def test_a_stream_that_is_over_before_it_began_comes_whole_and_can_be_resumed() -> None:
    async with open_endpoint(HttpConfig(sse_only=True)) as endpoint:
        session_id = dict((await exchange(endpoint, head(), initialize())).headers)[b"mcp-session-id"].decode()
        client = Client(endpoint, session_id)
        reply = await client.post(request(1, "echo", say=1))
        assert reply.headers == ((b"content-type", b"text/event-stream"),)  # nothing to say to proxies: it has a length
        reader = SseReader()
        (answer,) = [event for event in reader.feed(reply.body) if event.data]
        assert json.loads(answer.data)["result"] == {"echo": 1}
        primed = reply.body.split(b"\n", 1)[0].removeprefix(b"id: ").decode()
        assert primed != answer.id
        resumed = await client.listen(primed)
        (again,) = await resumed.rest()
        assert (again.id, again.data) == (answer.id, answer.data)


async def test_answers_that_were_sent_or_abandoned_hold_no_memory() -> None:
    async with open_endpoint(HttpConfig(sse_only=True)) as endpoint:
        session_id = dict((await exchange(endpoint, head(), initialize())).headers)[b"mcp-session-id"].decode()
        client = Client(endpoint, session_id)
        await client.post(request(1, "echo", say=1))
        assert endpoint.admission.unread.room.used == 0
        posted = head(mcp_session_id=session_id)
        assert endpoint.refuse_early(posted) is None
        pending = await endpoint.answer(posted, request(2, "echo", say=1))
        assert isinstance(pending, PostStream)
        await wait_all_tasks_blocked()
        assert endpoint.admission.unread.room.used > 0
        pending._abandon()  # as if it were cancelled while a durable store writes the answer
        assert endpoint.admission.unread.room.used == 0


async def test_a_session_that_ends_before_its_stream_is_followed_holds_no_memory() -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        posted = client.head()
        assert endpoint.refuse_early(posted) is None
        pending = await endpoint.answer(posted, request(1, "count", to=3, every=60))
        assert isinstance(pending, PostStream)
        await wait_all_tasks_blocked()
        assert endpoint.admission.unread.room.used > 0
        await exchange(endpoint, client.head("DELETE"))
        await wait_all_tasks_blocked()
        assert (await pending.reply()).status == 404
        assert endpoint.admission.unread.room.used == 0


@pytest.mark.parametrize("deleted", [True, False])
async def test_an_answer_that_the_store_has_dropped_holds_no_memory(deleted: bool) -> None:
    """The session was deleted, or another stream took its place."""
    async with open_endpoint(store=MemoryStore(StoreLimits(streams=1))) as endpoint:
        client = await Client.open(endpoint)

        async def post(number: int) -> PostStream:
            posted = client.head()
            assert endpoint.refuse_early(posted) is None
            pending = await endpoint.answer(posted, request(number, "count", to=1, every=0))
            assert isinstance(pending, PostStream)
            await wait_all_tasks_blocked()
            return pending

        pending = await post(1)
        assert endpoint.admission.unread.room.used > 0
        if deleted:
            await exchange(endpoint, client.head("DELETE"))
            await wait_all_tasks_blocked()
        else:
            (await post(2))._abandon()
        assert (await pending.reply()).status == (404 if deleted else 500)
        assert endpoint.admission.unread.room.used == 0


async def test_json_only_waits_for_the_answer_and_counts_what_it_drops(autojump_clock: MockClock) -> None:
    async with open_endpoint(HttpConfig(json_only=True)) as endpoint:
        client = await Client.open(endpoint)
        reply = await client.post(request(1, "count", to=4, every=1), accept="application/json")
        assert result_of(reply) == {"counted": 4}
        assert app_of(endpoint).counted("json_only") == 4


async def test_json_only_asks_on_the_get_stream_or_fails_at_once(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    async with open_endpoint(HttpConfig(json_only=True)) as endpoint:
        client = await Client.open(endpoint, roots={})
        alone = await client.post(request(1, "ask"))
        assert "json_only" in error_of(alone)["message"]
        listener = await client.listen()
        replies: list[Any] = []

        async def call() -> None:
            replies.append(result_of(await client.post(request(2, "ask"))))

        nursery.start_soon(call)
        asked = await listener.frame()
        assert asked["method"] == "roots/list"
        answer = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}}).encode()
        assert (await client.post(answer)).status == 202
        await wait_all_tasks_blocked()
        assert replies == [{"answer": {"roots": []}}]
        listener.hang_up()


async def test_a_question_travels_on_the_stream_of_its_call_and_the_answer_by_post(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint, roots={})
        reader = await client.stream(request(1, "ask"))
        asked = await reader.frame()
        assert asked["method"] == "roots/list"
        reply = await client.post(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}}).encode())
        assert (reply.status, reply.body) == (202, b"")
        assert (await reader.frame())["result"] == {"answer": {"roots": []}}
        assert await reader.frame() is None


async def test_notifications_of_a_busy_stream_leave_together(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        before = trio.current_time()
        reader = await client.stream(request("a", "count", to=40, every=0.001))
        pieces = 0
        while await reader.chunk() is not None:
            pieces += 1
        frames = [json.loads(event.data) for event in reader.waiting if event.data]
        assert [frame["params"]["progress"] for frame in frames[:-1]] == list(range(40))
        assert pieces <= 8
        assert trio.current_time() - before == pytest.approx(0.04)  # the answer waits for nothing


async def test_a_question_on_a_busy_stream_leaves_at_once(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint, roots={})
        before = trio.current_time()
        reader = await client.stream(request(1, "ask", tell=3))
        frames = [await reader.frame() for _ in range(4)]
        assert [frame["method"] for frame in frames] == ["notifications/progress"] * 3 + ["roots/list"]
        assert trio.current_time() == before


async def test_a_full_stream_does_not_pause(autojump_clock: MockClock) -> None:
    async with open_endpoint(HttpConfig(outbox_events=2)) as endpoint:
        client = await Client.open(endpoint)
        before = trio.current_time()
        reader = await client.stream(request("a", "count", to=40))
        assert len(await reader.rest()) == 41
        assert trio.current_time() == before


async def test_a_batch_is_answered_with_one_array(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint, "2025-03-26")
        parts = [request(1, "echo", say=1), request("1", "echo", say=2), notification("notifications/x")]
        reply = await client.post(b"[" + b",".join(parts) + b"]")
        answers = {answer["id"]: answer["result"]["echo"] for answer in json.loads(reply.body)}
        assert answers == {1: 1, "1": 2}
        quiet = await client.post(b"[" + notification("notifications/x") + b"]")
        assert (quiet.status, quiet.body) == (202, b"")
        reader = await client.stream(b"[" + request(1, "count", to=1) + b"," + request(2, "echo", say=3) + b"]")
        frames = [json.loads(event.data) for event in await reader.rest()]
        assert frames[0]["method"] == "notifications/progress"
        assert {answer["id"] for answer in frames[1]} == {1, 2}
        both = b"[" + request(1, "echo") + b',{"jsonrpc":"2.0","id":1,"result":{}}]'
        assert (await client.post(both)).status == 400
        assert (await client.post(b"[" + initialize("2025-03-26") + b"]")).status == 400
        many = b"[" + b",".join([request(n, "echo") for n in range(101)]) + b"]"
        assert (await client.post(many)).status == 400
        mixed = await client.post(b"[1," + request(7, "echo", say=7) + b"]")
        assert [answer.get("id") for answer in json.loads(mixed.body)] == [None, 7]


async def test_a_handler_sees_the_head_of_its_request() -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        assert result_of(await client.post(request(1, "where"))) == {"path": "/mcp"}


async def test_a_slow_initialize_is_still_answered_with_json_and_its_session(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        reply = await plain(endpoint, head(), initialize(name="slow"))
        assert b"mcp-session-id" in dict(reply.headers)


async def test_two_calls_with_one_id_both_get_an_outcome(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        first = await client.stream(request(1, "sleep", seconds=1))
        second = await client.post(request(1, "sleep", seconds=1))
        assert (second.status, error_of(second)["code"]) == (400, -32600)
        assert (await first.frame())["result"] == {"slept": 1}


async def test_three_posts_at_once_get_each_its_own_answer(nursery: trio.Nursery) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        found: dict[int, Any] = {}

        async def call(number: int) -> None:
            found[number] = result_of(await client.post(request(number, "echo", say=number)))["echo"]

        async with trio.open_nursery() as calls:
            for number in range(20):
                calls.start_soon(call, number)
        assert found == {number: number for number in range(20)}


# -- heartbeats, back-pressure


async def test_a_quiet_stream_has_a_heartbeat(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        listener = await client.listen()
        assert (await listener.chunk() or b"").startswith(b"id: ")
        before = trio.current_time()
        for beat in range(1, 4):
            assert await listener.chunk() == b":\n\n"
            assert trio.current_time() - before == pytest.approx(15 * beat)
        reader = await client.stream(request(1, "sleep", seconds=20))
        await reader.chunk()
        assert await reader.chunk() == b":\n\n"


async def test_a_flooding_handler_waits_for_a_reader_that_lags_and_nothing_is_lost(
    autojump_clock: MockClock,
) -> None:
    config = HttpConfig(outbox_events=8)
    async with open_endpoint(config) as endpoint:
        client = await Client.open(endpoint)
        reader = await client.stream(request(1, "count", to=100))
        await trio.sleep(1)
        post = next(iter(client.session.link.posts.values()))
        assert post.log.last <= 8 + client.session.service.limits.inbox + 2
        frames = [json.loads(event.data) for event in await reader.rest()]
        assert [f["params"]["progress"] for f in frames[:-1]] == list(range(100))


async def test_events_for_a_later_connection_are_bounded_and_the_response_is_kept(
    autojump_clock: MockClock,
) -> None:
    config = HttpConfig(outbox_events=8)
    async with open_endpoint(config) as endpoint:
        client = await Client.open(endpoint)
        reader = await client.stream(request(1, "count", to=100, every=0.1))
        event = await reader.event()
        assert event is not None
        reader.hang_up()
        await trio.sleep(60)
        assert app_of(endpoint).counted("outbox_full") > 80
        back = await client.listen(event.id)
        frames = [json.loads(event.data) for event in await back.rest()]
        assert [f["params"]["progress"] for f in frames[:-1]] == list(range(1, 9))
        assert frames[-1]["result"] == {"counted": 100}


@pytest.mark.defect("S7")
async def test_streams_that_one_client_does_not_read_share_their_memory(autojump_clock: MockClock) -> None:
    config = HttpConfig(max_outbox_memory=133_334, outbox_events=10_000)
    async with open_endpoint(config) as endpoint:
        memory = endpoint.admission.unread.room
        hosts = ("192.0.2.1", "192.0.2.2")
        greedy, other = [await Client.open(endpoint, extra={"client": (host, 1)}) for host in hosts]
        assert len(await (await other.stream(request(1, "count", to=10))).rest()) == 11
        readers = [await greedy.stream(request(number, "count", to=1000)) for number in range(4)]
        await wait_all_tasks_blocked()
        assert 75_000 <= memory.used < 100_000, "three quarters, and what was on the way"
        assert len(await (await other.stream(request(2, "count", to=10))).rest()) == 11
        for reader in readers:
            assert len(await reader.rest()) == 1001
        assert (memory.used, memory.held) == (0, {})


async def test_without_room_for_another_stream_a_call_is_answered_with_json(autojump_clock: MockClock) -> None:
    store = MemoryStore(StoreLimits(streams=1))
    async with open_endpoint(store=store) as endpoint:
        client = await Client.open(endpoint)
        running = await client.stream(request(1, "sleep", seconds=60))
        assert result_of(await client.post(request(2, "count", to=3, every=1))) == {"counted": 3}
        assert result_of(await client.post(request(3, "sleep", seconds=1))) == {"slept": 1}
        assert (await client.refused()).status == 503
        client.session.asks.notify_nowait("notifications/message", {})
        await wait_all_tasks_blocked()
        assert result_of(await client.post(request(4, "echo", say=1))) == {"echo": 1}
        running.hang_up()


# -- disconnects


async def test_a_call_goes_on_without_its_connection_until_the_grace_is_over(autojump_clock: MockClock) -> None:
    async with open_endpoint(limits=Limits(call_timeout=10_000, call_timeout_hard=10_000)) as endpoint:
        client = await Client.open(endpoint)
        stage = stage_of(endpoint)
        reader = await client.stream(request(1, "sleep", seconds=2000, name="long"))
        reader.hang_up()
        await trio.sleep(299)
        assert stage.ended == []
        await trio.sleep(2)
        assert stage.ended == ["long"]
        assert endpoint.calls == 0
        assert app_of(endpoint).counted("disconnected") == 1


async def test_nothing_is_left_of_a_call_that_ended_without_its_connection(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        await wait_all_tasks_blocked()
        before = trio.lowlevel.current_statistics().tasks_living
        reader = await client.stream(request(1, "sleep", seconds=5))
        reader.hang_up()
        await trio.sleep(4)
        assert trio.lowlevel.current_statistics().tasks_living > before
        await trio.sleep(2)
        assert trio.lowlevel.current_statistics().tasks_living <= before  # the session may sleep by now


async def test_a_client_that_comes_back_in_time_stops_the_clock(autojump_clock: MockClock) -> None:
    async with open_endpoint(limits=Limits(call_timeout=10_000, call_timeout_hard=10_000)) as endpoint:
        client = await Client.open(endpoint)
        reader = await client.stream(request(1, "sleep", seconds=1000))
        await reader.chunk()
        for _ in range(3):
            cursor = reader.raw.split(b"\n")[0].removeprefix(b"id: ").decode()
            reader.hang_up()
            await trio.sleep(200)
            back = await client.listen(cursor)
            await back.chunk()
            back.raw, reader = reader.raw, back
        assert (await reader.frame())["result"] == {"slept": 1000}


async def test_a_cancelled_call_ends_its_stream_without_an_answer(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        reader = await client.stream(request(1, "sleep", seconds=60))
        assert (await client.post(notification("notifications/cancelled", requestId=1))).status == 202
        assert await reader.frame() is None
        assert endpoint.calls == 0


async def test_a_call_that_is_cancelled_at_once_gets_an_empty_response(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    for settings, status in (({"stream_after": 10.0}, 200), ({"json_only": True}, 202)):
        async with open_endpoint(HttpConfig(**settings)) as endpoint:
            client = await Client.open(endpoint)
            replies: list[Any] = []

            async def call(client: Client = client, replies: list[Any] = replies) -> None:
                replies.append(await client.post(request(1, "sleep", seconds=60)))

            nursery.start_soon(call)
            await wait_all_tasks_blocked()
            await client.post(notification("notifications/cancelled", requestId=1))
            await wait_all_tasks_blocked()
            assert replies[0].status == status
            assert b"jsonrpc" not in replies[0].body


async def test_a_cancelled_http_exchange_leaves_the_call_running(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        with trio.move_on_after(0.01):
            await client.post(request(1, "sleep", seconds=5, name="alone"))
        await trio.sleep(1)
        assert stage_of(endpoint).ended == []
        await trio.sleep(5)
        assert stage_of(endpoint).ended == ["alone"]
        assert endpoint.calls == 0


# -- resuming


async def take(reader: Reader, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        event = await reader.event()
        assert event is not None
        found.append(event)
    return found


@pytest.mark.parametrize("cut", range(6))
@pytest.mark.parametrize("date", STATEFUL)
async def test_a_stream_cut_after_any_event_is_resumed_with_exactly_the_rest(
    cut: int, date: str, autojump_clock: MockClock
) -> None:
    """The connection dies after each event in turn, and events go on arriving before, while and after it is resumed."""
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint, date)
        stage = stage_of(endpoint)
        for _ in range(cut if cut < 5 else 5):
            stage.cues.send_nowait("tell")
        if cut == 5:
            stage.cues.send_nowait("end")
        reader = await client.stream(request(1, "follow"))
        seen = await take(reader, cut) if cut < 5 else await reader.rest()
        if cut == 0 and date != "2025-11-25":
            return  # no event, no id: nothing to come back with
        if cut == 0:
            await reader.chunk()
        cursor = seen[-1].id if seen else reader.raw.split(b"\n")[0].removeprefix(b"id: ").decode()
        reader.hang_up()
        for _ in range(cut, 3):
            stage.cues.send_nowait("tell")
        await wait_all_tasks_blocked()
        back = await client.listen(cursor)
        for _ in range(max(cut, 3), 5):
            stage.cues.send_nowait("tell")
        if cut < 5:
            stage.cues.send_nowait("end")
        whole = seen + await back.rest()
        frames = [json.loads(event.data) for event in whole]
        assert [frame["params"]["progress"] for frame in frames[:5]] == list(range(5))
        assert frames[5] == {"jsonrpc": "2.0", "id": 1, "result": {"followed": 5}}
        assert len(frames) == 6
        assert len({event.id for event in whole}) == 6


async def test_a_resume_wins_over_the_connection_that_is_still_open(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        stage = stage_of(endpoint)
        stage.cues.send_nowait("tell")
        old = await client.stream(request(1, "follow"))
        (first,) = await take(old, 1)
        new = await client.listen(first.id)
        stage.cues.send_nowait("tell")
        await wait_all_tasks_blocked()
        assert await old.event() is None
        assert b"retry" not in old.raw.partition(b"\n\n")[2]
        stage.cues.send_nowait("end")
        assert [json.loads(e.data).get("id") for e in await new.rest()] == [None, 1]
        assert not client.session.link.connections


async def test_a_stream_is_kept_after_its_answer_so_that_the_answer_can_be_fetched_again(
    autojump_clock: MockClock,
) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        reader = await client.stream(request(1, "count", to=2))
        events = await reader.rest()
        for position in range(3):
            again = await client.listen(events[position].id)
            assert await again.rest() == events[position + 1 :]
        await trio.sleep(1200)
        assert (await client.refused(events[0].id)).status == 400


async def test_no_cursor_reaches_another_session_or_stream() -> None:
    """Two sessions that do the same things with the same ids: each sees its own events only."""
    async with open_endpoint() as endpoint:
        ann, bob = await Client.open(endpoint), await Client.open(endpoint)
        events = {}
        for client in (ann, bob):
            reader = await client.stream(request(1, "count", to=3))
            events[client.session_id] = await reader.rest()
        mine, theirs = events[ann.session_id], events[bob.session_id]
        assert {event.id for event in mine}.isdisjoint(event.id for event in theirs)
        unknown = await bob.refused("1.1.AAAAAAAAAAAAAAAA")
        assert (unknown.status, error_of(unknown)["code"]) == (400, -32600)
        for event in mine:
            reply = await bob.refused(event.id)
            assert (reply.status, reply.headers, reply.body) == (400, unknown.headers, unknown.body)
        other = await (await ann.stream(request(2, "count", to=1))).rest()
        stream_of, number, mac = mine[0].id.split(".")
        other_stream = other[0].id.split(".")[0]
        assert other_stream != stream_of
        for forged in (f"{other_stream}.{number}.{mac}", f"{stream_of}.2.{mac}", f"0.0.{mac}"):
            assert (await ann.refused(forged)).body == unknown.body
        assert sum(type(event).__name__ == "ReplayRefused" for event in app_of(endpoint).events) == 8


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "0",
        "0.0",
        "..",
        "0.0.",
        "1" * 5000,
        "0.-1.AAAAAAAAAAAAAAAA",
        "\xff\xfe",
        "0.0.AAAA\x00AAAAAAAAAAA",
        "٠.1.AAAAAAAAAAAAAAAA",
    ],
)
async def test_an_invalid_cursor_is_refused_with_a_hint_to_start_over(cursor: str) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        headers = [*client.head("GET").headers, (b"last-event-id", cursor.encode())]
        request_head = client.head("GET")
        reply = await plain(endpoint, type(request_head)(method="GET", path="/mcp", headers=headers))
        assert (reply.status, error_of(reply)["message"]) == (
            400,
            "Last-Event-ID cannot be resumed from; start over without it",
        )


async def test_a_closed_stream_is_polled_for_the_rest(autojump_clock: MockClock) -> None:
    """SEP-1699: the handler ends the connection, the call goes on, the client comes back for the answer."""
    async with open_endpoint(HttpConfig(retry_ms=700)) as endpoint:
        client = await Client.open(endpoint)
        stage = stage_of(endpoint)
        stage.cues.send_nowait("close")
        reader = await client.stream(request(1, "follow"))
        assert await reader.event() is None
        assert reader.raw.startswith(b"id: ")
        assert reader.raw.endswith(b"retry: 700\n\n")
        cursor = reader.raw.split(b"\n")[0].removeprefix(b"id: ").decode()
        stage.cues.send_nowait("tell")
        await wait_all_tasks_blocked()
        back = await client.listen(cursor)
        (event,) = await take(back, 1)
        stage.cues.send_nowait("close")
        assert await back.event() is None
        assert back.raw.endswith(b"retry: 700\n\n")
        stage.cues.send_nowait("end")
        await wait_all_tasks_blocked()
        last = await client.listen(event.id)
        assert [json.loads(e.data)["result"] for e in await last.rest()] == [{"followed": 1}]


async def test_a_connection_is_not_closed_on_clients_that_could_not_come_back(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint, "2025-06-18")
        stage = stage_of(endpoint)
        for cue in ("close", "tell", "close", "end"):
            stage.cues.send_nowait(cue)
        reader = await client.stream(request(1, "follow"))
        assert len(await reader.rest()) == 2


# -- the standalone stream


async def test_notifications_without_a_call_go_to_the_get_stream(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        session = client.session
        await session.asks.notify("notifications/message", {"n": 1})
        await wait_all_tasks_blocked()
        listener = await client.listen()
        assert (await listener.frame())["params"] == {"n": 1}
        await session.asks.notify("notifications/message", {"n": 2})
        event = await listener.event()
        assert event is not None
        listener.hang_up()
        await session.asks.notify("notifications/message", {"n": 3})
        await wait_all_tasks_blocked()
        back = await client.listen(event.id)
        assert (await back.frame())["params"] == {"n": 3}
        back.hang_up()
        await session.asks.notify("notifications/message", {"n": 4})
        await wait_all_tasks_blocked()
        fresh = await client.listen()
        assert (await fresh.frame())["params"] == {"n": 4}, "without a cursor: the events that were not read yet"
        fresh.hang_up()


async def test_a_second_get_stream_is_refused_and_the_first_one_goes_on(autojump_clock: MockClock) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        first = await client.listen()
        assert (await client.refused()).status == 409
        await client.session.asks.notify("notifications/message", {"n": 1})
        event = await first.event()
        assert event is not None
        assert json.loads(event.data)["params"] == {"n": 1}
        second = await client.listen(event.id)
        assert await first.event() is None, "with a cursor the new one wins"
        assert (await client.refused()).status == 409
        second.hang_up()
        (await client.listen()).hang_up()


async def test_an_open_stream_keeps_an_idle_session_alive(autojump_clock: MockClock) -> None:
    async with open_endpoint(idle=100) as endpoint:
        client, other = await Client.open(endpoint), await Client.open(endpoint)
        listener = await client.listen()
        await trio.sleep(500)
        assert (await other.post(request(1, "ping"))).status == 404
        assert (await client.post(request(1, "ping"))).status == 200
        listener.hang_up()
        await trio.sleep(90)
        assert (await client.post(request(2, "ping"))).status == 200
        await trio.sleep(200)
        assert (await client.post(request(3, "ping"))).status == 404


# -- the end of a session


async def test_delete_cancels_calls_ends_streams_and_forgets_everything(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint)
        stage = stage_of(endpoint)
        reader = await client.stream(request(1, "sleep", seconds=60, name="a"))
        listener = await client.listen()
        waiting: list[Any] = []

        async def call() -> None:
            waiting.append(await exchange(endpoint, client.head(), request(2, "sleep", seconds=60, name="b")))

        nursery.start_soon(call)
        await wait_all_tasks_blocked(0.001)
        assert (await plain(endpoint, client.head("DELETE"))).status == 200
        for method in ("POST", "GET", "DELETE"):
            gone = await plain(endpoint, client.head(method), request(3, "ping"))
            assert (gone.status, error_of(gone)["code"]) == (404, -32600)
        await trio.sleep(0.01)
        assert sorted(stage.ended) == ["a", "b"]
        assert await reader.frame() is None
        assert await listener.frame() is None
        assert waiting[0].status in (200, 404)
        assert b"result" not in getattr(waiting[0], "body", b"")
        await trio.sleep(1)
        assert not endpoint.runtime.supervisor.sessions
        assert endpoint.calls == 0
        assert endpoint.runtime.store._index.count == 0


async def test_a_session_that_crashes_ends_its_posts_and_no_others(
    autojump_clock: MockClock, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_endpoint(HttpConfig(json_only=True)) as endpoint:
        client, other = await Client.open(endpoint), await Client.open(endpoint)
        replies: list[Any] = []

        async def call() -> None:
            replies.append(await client.post(request(1, "sleep", seconds=60)))

        nursery.start_soon(call)
        await wait_all_tasks_blocked()
        client.session.inbox.post_nowait(object())  # type: ignore[arg-type]
        await wait_all_tasks_blocked()
        (failed,) = replies  # not 404, for which a client would repeat the call in a new session
        assert failed.status == 500
        assert error_of(failed)["data"] == {"mayHaveRun": True}
        assert (await client.post(request(2, "ping"))).status == 404
        assert (await other.post(request(2, "ping"))).status == 200


# -- draining


async def test_a_drain_lets_calls_finish_refuses_new_ones_and_ends_streams_with_retry(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    async with open_endpoint() as endpoint:
        client = await Client.open(endpoint, roots={})
        reader = await client.stream(request(1, "sleep", seconds=5))
        long = await client.stream(request(2, "sleep", seconds=50))
        asking = await client.stream(request(3, "ask"))
        asked = await asking.frame()
        listener = await client.listen()
        await listener.chunk()
        nursery.start_soon(endpoint.runtime.drain, 10)
        await wait_all_tasks_blocked()

        ready = await plain(endpoint, head("GET", "/readyz"))
        assert (ready.status, ready.body) == (503, b"draining\n")
        assert (await plain(endpoint, head("GET", "/livez"))).status == 200
        for refusal in (await client.post(request(4, "ping")), await plain(endpoint, head(), initialize())):
            assert refusal.status == 503
            headers = dict(refusal.headers)
            assert headers[b"connection"] == b"close"
            assert b"retry-after" in headers
            assert error_of(refusal)["code"] == -32603
        answer = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}}).encode()
        assert (await client.post(answer)).status == 202, "a running call may wait for it"
        assert (await asking.frame())["result"]["answer"] == {"roots": []}

        assert (await reader.frame())["result"] == {"slept": 5}
        ended = await long.frame()
        assert ended["error"]["message"] == "the server is shutting down"
        assert await long.frame() is None
        assert await listener.event() is None
        assert listener.raw.endswith(b"retry: 1000\n\n")
        await trio.sleep(2)
        assert not endpoint.runtime.supervisor.sessions
        assert (await plain(endpoint, client.head("GET"))).status == 404
