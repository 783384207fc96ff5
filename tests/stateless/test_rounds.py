"""Rounds of questions: what is asked again, what goes on meanwhile, and calls that are run again from their journal."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio import Context, Server
from mcptrio._actors import parking
from mcptrio._actors.limits import Limits
from mcptrio.stores import StoreLimits
from mcptrio.stores.sqlite import SqliteStore
from tests.server.talk import Refused, Talk, open_server

from .kit import Poster, Reply, Trail, accept, ask, endpoint_of, meta, posting

KEY = "00" * 32


@dataclass
class Name:
    name: str


@dataclass
class Age:
    age: int


def make_server(trail: Trail, wording: str = "How old?", **options: Any) -> Server:
    server = Server("rounds", state_keys=[KEY], **options)

    async def steps(ctx: Context) -> str:
        trail("begun")
        name = await ctx.elicit("Who?", Name, key="name")
        order = await ctx.once("order", trail, f"ordered for {name.value.name if name.value else '-'}")
        age = await ctx.elicit(wording, Age, key="age")
        return f"{order}, aged {age.value.age if age.value else '-'}"

    server.add_tool(steps, name="plain")
    server.add_tool(steps, name="replayed", replay=True)
    server.add_tool(steps, name="idempotent", idempotent=True)
    server.add_tool(steps, name="reading", read_only=True)

    @server.tool
    async def two(ctx: Context) -> str:
        received = {}

        async def who() -> None:
            received["name"] = await ctx.elicit("Who?", Name, key="name")

        async def old() -> None:
            received["age"] = await ctx.elicit("How old?", Age, key="age")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(who)
            nursery.start_soon(old)
        return f"{received['name'].value} {received['age'].value}"

    @server.tool
    async def two_one_impatient(ctx: Context) -> str:
        async def impatient() -> None:
            await trio.sleep(0.003)  # the last one to ask ...
            with trio.move_on_after(0.001):  # ... and the first to leave
                await ctx.elicit("How old?", Age, key="age")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(impatient)
            name = await ctx.elicit("Who?", Name, key="name")
        return f"{name.value}"

    @server.tool
    async def works_on(ctx: Context) -> str:
        """Goes on while its question waits, and needs no answer in the end."""

        async def work() -> None:
            for step in range(3):
                await trio.sleep(1)
                await ctx.progress(step)
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            await ctx.elicit("Who?", Name, key="name")
        return "did without"

    @server.tool
    async def same_key(ctx: Context) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.elicit, "Who?", Name)
            nursery.start_soon(ctx.elicit, "Who?", Name)
        return "asked twice"

    @server.tool
    async def who_am_i(ctx: Context) -> str:
        before = (ctx.request_id, ctx.meta.get("traceparent"))
        await ctx.elicit("Who?", Name, key="name")
        return f"{before} {(ctx.request_id, ctx.meta.get('traceparent'))} {ctx.trace}"

    return server


# -- what is asked again


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"other": accept(name="A")},
        {"name": 12345},
        {"name": None},
        {"name": {"action": "accept"}},
        {"name": {"action": "perhaps"}},
        {"name": accept(name=7)},
        {"name": accept(nom="A")},
    ],
    ids=str,
)
async def test_an_answer_that_is_missing_or_wrong_is_asked_for_again(
    answers: dict[str, Any], autojump_clock: MockClock
) -> None:
    trail = Trail()
    async with posting(make_server(trail)) as poster:
        first = await poster.call("plain")
        again = await poster.retry(first, "plain", **answers)
        assert again.asked == first.asked
        assert again.state != first.state
        second = await poster.retry(again, "plain", name=accept(name="Ada"))
        assert list(second.asked) == ["age"]
    assert trail.done == ["begun", "ordered for Ada"]


@pytest.mark.parametrize("answers", [None, [], "name", 7], ids=str)
async def test_answers_that_are_no_object_are_refused_and_use_nothing_up(
    answers: Any, autojump_clock: MockClock
) -> None:
    async with posting(make_server(Trail())) as poster:
        first = await poster.call("plain")
        reply = await poster.call("plain", requestState=first.state, inputResponses=answers)
        assert reply.error["code"] == -32602
        assert list((await poster.retry(first, "plain", name=accept(name="A"))).asked) == ["age"]


async def test_extra_answers_are_ignored(autojump_clock: MockClock) -> None:
    async with posting(make_server(Trail())) as poster:
        first = await poster.call("plain")
        second = await poster.retry(first, "plain", name=accept(name="A"), more=accept(x=1), age=accept(age=99))
        assert list(second.asked) == ["age"]
        assert (await poster.retry(second, "plain", age=accept(age=3))).text == "ordered for A, aged 3"


async def test_questions_that_are_asked_together_leave_together(autojump_clock: MockClock) -> None:
    async with posting(make_server(Trail())) as poster:
        asked = await poster.call("two")
        assert sorted(asked.asked) == ["age", "name"]
        rest = await poster.retry(asked, "two", age=accept(age=3))
        assert list(rest.asked) == ["name"]
        assert (await poster.retry(rest, "two", name=accept(name="A"))).text == "Name(name='A') Age(age=3)"


async def test_a_question_that_is_withdrawn_does_not_hold_up_the_others(autojump_clock: MockClock) -> None:
    async with posting(make_server(Trail())) as poster:
        asked = await poster.call("two_one_impatient")
        assert list(asked.asked) == ["name"]
        assert (await poster.retry(asked, "two_one_impatient", name=accept(name="A"))).text == "Name(name='A')"


async def test_the_same_question_twice_at_once_has_two_keys(autojump_clock: MockClock) -> None:
    async with posting(make_server(Trail())) as poster:
        asked = await poster.call("same_key")
        assert len(asked.asked) == 2
        reply = await poster.retry(asked, "same_key", **dict.fromkeys(asked.asked, accept(name="A")))
        assert reply.text == "asked twice"


async def test_answers_may_come_before_they_are_asked_for(autojump_clock: MockClock) -> None:
    async with posting(make_server(Trail())) as poster:
        given = {"name": accept(name="A"), "age": accept(age=3)}
        assert (await poster.call("plain", inputResponses=given)).text == "ordered for A, aged 3"
        assert list((await poster.call("plain", inputResponses={"age": accept(age=3)})).asked) == ["name"]


# -- while it is parked


async def test_notifications_of_a_parked_call_are_dropped_and_its_result_waits(autojump_clock: MockClock) -> None:
    async with open_server(make_server(Trail())) as join, join(opened=False) as talk:
        params = {"_meta": meta(progressToken="p"), "name": "works_on", "arguments": {}}
        asked = await talk.request("tools/call", **params)
        await trio.sleep(10)
        assert talk.notified == []
        result = await talk.request("tools/call", **params, requestState=asked["requestState"], inputResponses={})
        assert result["content"][0]["text"] == "did without"


@pytest.mark.defect("C25")
@pytest.mark.parametrize("token", ["second", None])
async def test_progress_that_was_held_back_carries_the_token_of_the_retry(
    token: str | None, autojump_clock: MockClock
) -> None:
    server = Server("s", limits=Limits(notify_burst=1, notify_rate=0.001))

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.progress(2)
        await ctx.elicit("Who?", Name, key="name")
        return "done"

    async with open_server(server) as join, join(opened=False) as talk:
        params: dict[str, Any] = {"name": "work", "arguments": {}}
        asked = await talk.request("tools/call", _meta=meta(progressToken="first"), **params)
        again = {"requestState": asked["requestState"], "inputResponses": {"name": accept(name="A")}}
        await talk.request("tools/call", _meta=meta(progressToken=token), **params, **again)
        received = [(about["progressToken"], about["progress"]) for _, about in talk.notified]
        assert received == [("first", 1), *([(token, 2)] if token else [])]


async def test_after_the_retry_the_context_shows_the_new_request(autojump_clock: MockClock) -> None:
    async with posting(make_server(Trail())) as poster:
        call = {"name": "who_am_i", "arguments": {}}
        asked = await poster.post("tools/call", {**call, "_meta": meta(traceparent="00-a-b-01")})
        given = {"requestState": asked.state, "inputResponses": {"name": accept(name="A")}}
        received = await poster.post(
            "tools/call", {**call, **given, "_meta": meta(traceparent="00-c-d-01", baggage="k=v")}
        )
        trace = "TraceContext(traceparent='00-c-d-01', tracestate=None, baggage='k=v')"
        assert received.text == f"(1, '00-a-b-01') (2, '00-c-d-01') {trace}"


async def test_a_retry_that_is_cancelled_ends_the_handler(autojump_clock: MockClock) -> None:
    trail = Trail()
    server = make_server(trail)

    @server.tool
    async def slow(ctx: Context) -> str:
        await ctx.elicit("Who?", Name, key="name")
        try:
            await trio.sleep(1000)
        finally:
            trail("ended")
        return "done"

    async with posting(server) as poster:
        asked = await poster.call("slow")
        more = {"requestState": asked.state, "inputResponses": {"name": accept(name="A")}}
        stream = await poster.stream("tools/call", {"name": "slow", "arguments": {}, **more})
        stream.hang_up()
        await wait_all_tasks_blocked()
        assert trail.done == ["ended"]
        assert not poster.endpoint.runtime.supervisor.exchanges
        assert poster.endpoint.calls == 0


@pytest.mark.parametrize("how", ["answered", "cancelled", "hung up"])
async def test_a_call_on_one_pipe_goes_on_for_a_retry_on_another(how: str, autojump_clock: MockClock) -> None:
    """basic/index: a server should not require that a client uses the same connection for related requests."""
    trail = Trail()
    server = make_server(trail)

    @server.tool
    async def slow(ctx: Context) -> str:
        await ctx.elicit("Who?", Name, key="name")
        try:
            await trio.sleep(5)
        except trio.Cancelled:
            trail("cancelled")
            raise
        return "done"

    async with open_server(server) as join, join(opened=False) as one:
        asked = await ask(one, "tools/call", name="slow", arguments={})
        again = {"requestState": asked["requestState"], "inputResponses": {"name": accept(name="A")}}
        async with join(opened=False) as two:
            number = await two.begin("tools/call", _meta=meta(), name="slow", arguments={}, **again)
            await wait_all_tasks_blocked()
            if how == "cancelled":
                await two.notify("notifications/cancelled", requestId=number)
            if how != "hung up":
                await trio.sleep(6)
                answers = [frame for frame in two.raw if b'"done"' in frame]
                assert len(answers) == (how == "answered")
        await trio.sleep(6)
        assert trail.done == ([] if how == "answered" else ["cancelled"])
        assert len(one.raw) == 1


# -- run again


async def asked_here(server: Server, tool: str, store: Any = None) -> Reply:
    """The second question of a call, at a process that is gone afterwards."""
    async with posting(server, store=store) as poster:
        first = await poster.call(tool)
        return await poster.retry(first, tool, name=accept(name="Ada"))


@pytest.mark.parametrize("tool", ["replayed", "idempotent", "reading"])
async def test_a_call_that_may_be_run_again_goes_on_in_another_process(tool: str, autojump_clock: MockClock) -> None:
    trail = Trail()
    asked = await asked_here(make_server(trail), tool)
    assert list(asked.asked) == ["age"]
    async with posting(make_server(trail)) as elsewhere:
        reply = await elsewhere.retry(asked, tool, age=accept(age=3))
        assert reply.text == "ordered for Ada, aged 3"
    assert trail.done == ["begun", "ordered for Ada", "begun"]


async def test_a_call_that_may_not_be_run_again_is_refused_with_a_reason_in_the_log(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    trail = Trail()
    asked = await asked_here(make_server(trail), "plain")
    async with posting(make_server(trail)) as elsewhere:
        reply = await elsewhere.retry(asked, "plain", age=accept(age=3))
    assert reply.error == {"code": -32602, "message": parking.REFUSED}
    assert "read_only, idempotent or replay=True" in caplog.text
    assert trail.done == ["begun", "ordered for Ada"]


async def test_a_question_that_is_worded_otherwise_when_it_is_run_again_is_asked_again(
    autojump_clock: MockClock,
) -> None:
    trail = Trail()
    asked = await asked_here(make_server(trail), "replayed")
    async with posting(make_server(trail, wording="How old are you?")) as elsewhere:
        again = await elsewhere.retry(asked, "replayed", age=accept(age=3))
        assert again.asked["age"]["params"]["message"] == "How old are you?"
        assert (await elsewhere.retry(again, "replayed", age=accept(age=4))).text == "ordered for Ada, aged 4"
    assert trail.done.count("ordered for Ada") == 1


async def test_once_is_done_once_by_two_tasks_of_a_call(autojump_clock: MockClock) -> None:
    trail = Trail()
    server = Server("once")

    @server.tool
    async def twice(ctx: Context) -> str:
        async def work() -> str:
            await trio.sleep(1)
            return trail("worked")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.once, "work", work)
            nursery.start_soon(ctx.once, "work", work)
        return str(await ctx.once("work", work))

    async with posting(server) as poster:
        assert (await poster.call("twice")).text == "worked"
    assert trail.done == ["worked"]


@pytest.mark.defect("S7")
async def test_one_client_cannot_make_the_used_states_of_others_valid_again(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parking, "_MAX_USED", 4)
    async with endpoint_of(make_server(Trail())) as endpoint:
        honest, greedy = Poster(endpoint, client=("192.0.2.1", 1)), Poster(endpoint, client=("192.0.2.2", 1))
        used = await honest.call("replayed")
        await honest.retry(used, "replayed", name=accept(name="Ada"))
        for _ in range(6):
            await greedy.retry(await greedy.call("replayed"), "replayed", name=accept(name="Eve"))
        again = await honest.retry(used, "replayed", name=accept(name="Ada"))
        assert again.error["message"] == parking.REFUSED


# Real time: what follows writes to a real file, from a thread.


async def test_with_a_durable_store_a_state_is_accepted_once_also_after_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trail = Trail()
    asked = await asked_here(make_server(trail), "replayed", SqliteStore(tmp_path / "s.db"))
    for expected in ("ordered for Ada, aged 3", None):
        async with posting(make_server(trail), store=SqliteStore(tmp_path / "s.db")) as poster:
            reply = await poster.retry(asked, "replayed", age=accept(age=3))
            if expected is None:
                assert reply.error["message"] == parking.REFUSED
            else:
                assert reply.text == expected
    assert [record.levelno for record in caplog.records if record.name == "mcptrio.parking"] == [logging.WARNING]
    assert trail.done == ["begun", "ordered for Ada", "begun"]


async def test_with_a_durable_store_a_state_that_was_used_where_the_call_waited_is_refused_after_a_restart(
    tmp_path: Path,
) -> None:
    trail = Trail()
    async with posting(make_server(trail), store=SqliteStore(tmp_path / "s.db")) as poster:
        first = await poster.call("replayed")
        await poster.retry(first, "replayed", name=accept(name="Ada"))
    async with posting(make_server(trail), store=SqliteStore(tmp_path / "s.db")) as poster:
        reply = await poster.retry(first, "replayed", name=accept(name="Ada"))
        assert reply.error["message"] == parking.REFUSED


@pytest.mark.defect("C08")
async def test_used_states_and_results_of_once_evict_no_session(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.db", limits=StoreLimits(sessions=1))
    async with posting(make_server(Trail()), store=store) as poster:
        store.sessions.put("alive", 0, b"record")
        await store.sessions.release("alive", 0, b"record", ttl=3600)  # one that is at home is never evicted
        for _ in range(3):
            asked = await poster.retry(await poster.call("replayed"), "replayed", name=accept(name="Ada"))
            assert (await poster.retry(asked, "replayed", age=accept(age=3))).text == "ordered for Ada, aged 3"
        assert await store.sessions.claim("alive") is not None
        assert len(store.marks) == 3 * 3  # two used states and one result of `once` for each call


async def refused(talk: Talk, **params: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        await ask(talk, "tools/call", **params)
    return caught.value


async def test_a_handler_of_another_method_cannot_ask(autojump_clock: MockClock) -> None:
    """basic/patterns/mrtr: only tools, prompts and resources may be answered with questions."""
    server = Server("s")

    @server.route("own/method")
    async def own(ctx: Context, params: Any) -> dict[str, Any]:
        await ctx.elicit("Who?", Name)
        return {}

    async with posting(server) as poster:
        assert "cannot ask" in (await poster.post("own/method")).error["message"]


async def test_a_question_whose_capability_was_not_declared_is_never_asked(autojump_clock: MockClock) -> None:
    async with posting(make_server(Trail())) as poster:
        call = {"name": "plain", "arguments": {}, "_meta": meta({"sampling": {}})}
        reply = await poster.post("tools/call", call)
        assert reply.status == 400
        assert reply.error["code"] == -32021
        assert reply.error["data"] == {"requiredCapabilities": {"elicitation": {}}}


async def test_the_clock_of_a_call_stands_still_while_it_is_parked(autojump_clock: MockClock) -> None:
    server = Server("s")

    @server.tool(timeout=10)
    async def patient(ctx: Context) -> str:
        await trio.sleep(6)
        await ctx.elicit("Who?", Name, key="name")
        await trio.sleep(9)
        return "in time"

    async with posting(server) as poster:
        asked = await poster.call("patient")
        await trio.sleep(500)
        assert (await poster.retry(asked, "patient", name=accept(name="A"))).text == "in time"


async def test_two_retries_of_one_state_go_to_one_of_them(autojump_clock: MockClock) -> None:
    async with posting(make_server(Trail())) as poster:
        asked = await poster.call("two")
        received: list[str] = []

        async def retry(poster: Poster) -> None:
            reply = await poster.retry(asked, "two", name=accept(name="A"), age=accept(age=1))
            received.append(reply.error["message"] if "error" in reply.last else reply.text)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(retry, Poster(poster.endpoint))
        assert sorted(received) == sorted([parking.REFUSED] * 4 + ["Name(name='A') Age(age=1)"])


@pytest.mark.defect("S7")
async def test_one_client_cannot_push_the_marks_of_others_out(tmp_path: Path) -> None:
    trail, limits = Trail(), StoreLimits(marks=4)
    async with endpoint_of(make_server(trail), store=SqliteStore(tmp_path / "s.db", limits=limits)) as endpoint:
        honest, greedy = Poster(endpoint, client=("192.0.2.1", 1)), Poster(endpoint, client=("192.0.2.2", 1))
        used = await honest.call("replayed")
        await honest.retry(used, "replayed", name=accept(name="Ada"))
        for _ in range(6):
            await greedy.retry(await greedy.call("replayed"), "replayed", name=accept(name="Eve"))
        marks = endpoint.runtime.store.marks
        assert len(marks) == 2 * 4  # type: ignore[arg-type]  # four states, four results of `once`
    trail.done.clear()
    async with endpoint_of(make_server(trail), store=SqliteStore(tmp_path / "s.db", limits=limits)) as endpoint:
        honest = Poster(endpoint, client=("192.0.2.1", 1))
        again = await honest.retry(used, "replayed", name=accept(name="Ada"))
        assert again.error["message"] == parking.REFUSED
    assert trail.done == []
