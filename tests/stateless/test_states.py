"""The sealed state that leads back to a parked call: who may use it, how often, for how long."""

from __future__ import annotations

import gc
import logging
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from attrs import define
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio import Context, DeclarationError, Server
from mcptrio._actors import parking
from mcptrio._actors.exchange import Exchange
from mcptrio._actors.limits import Limits
from mcptrio.auth.server import Principal
from tests.tiers import exhaustive

from .kit import Poster, Reply, Trail, accept, endpoint_of, posting, tasks_of

OLD, NEW = "00" * 32, "11" * 32
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def make_server(trail: Trail | None = None, name: str = "states", **options: Any) -> Server:
    server = Server(name, **options)
    trail = trail or Trail()

    async def greet(ctx: Context, greeting: str = "Hello") -> str:
        trail("begun")
        try:
            answer = await ctx.elicit("What is your name?", NAME, key="name")
        except trio.Cancelled:
            trail("cancelled")
            raise
        trail("answered")
        return f"{greeting}, {answer.content['name'] if answer.content else answer.action}!"

    server.add_tool(greet)
    server.add_tool(greet, name="greet_as_well")

    @server.prompt
    async def greeting(ctx: Context) -> str:
        return await greet(ctx)

    return server


def is_refused(reply: Reply) -> bool:
    return reply.error == {"code": -32602, "message": parking.REFUSED}


@define
class Case:
    """A state that must not be accepted: what is done with it, and what the log says of it."""

    use: Callable[[Poster, Reply], Any]
    why: str


def changed(state: str) -> str:
    data = bytearray(urlsafe_b64decode(state + "=" * (-len(state) % 4)))
    data[-1] ^= 1
    return urlsafe_b64encode(data).decode().rstrip("=")


def with_state(change: Callable[[str], Any]) -> Callable[[Poster, Reply], Any]:
    return lambda poster, asked: poster.call(
        "greet", requestState=change(asked.state), inputResponses={"name": accept(name="A")}
    )


def elsewhere(**request: Any) -> Callable[[Poster, Reply], Any]:
    async def use(poster: Poster, asked: Reply) -> Reply:
        params = {"requestState": asked.state, "inputResponses": {"name": accept(name="A")}}
        return await poster.post(request.get("method", "tools/call"), {**params, **request["params"]})

    return use


async def as_somebody_else(poster: Poster, asked: Reply) -> Reply:
    return await Poster(poster.endpoint, principal=Principal(subject="mallory")).retry(
        asked, "greet", name=accept(name="A")
    )


REFUSALS = {
    "changed": Case(with_state(changed), "modified, or bound"),
    "cut": Case(with_state(lambda state: state[:80]), "modified, or bound"),
    "with something behind": Case(with_state(lambda state: state + "-TAMPERED"), ""),
    "in another alphabet": Case(with_state(lambda state: "\u00e9" + state), "not base64"),
    "empty": Case(with_state(lambda state: ""), "unknown format"),
    "too long": Case(with_state(lambda state: "A" * 300_000), "too long"),
    "not a text": Case(with_state(lambda state: 7), "not a string"),
    "null": Case(with_state(lambda state: None), "not a string"),
    "sealed with an unknown key": Case(with_state(lambda state: state[:1] + "B" + state[2:]), ""),
    "for other arguments": Case(
        elsewhere(params={"name": "greet", "arguments": {"greeting": "Bye"}}), "bound to another request"
    ),
    "for another tool": Case(elsewhere(params={"name": "greet_as_well", "arguments": {}}), "bound to another"),
    "for another method": Case(elsewhere(method="prompts/get", params={"name": "greeting"}), "bound to another"),
    "of another principal": Case(as_somebody_else, "bound to another"),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=list(REFUSALS))
async def test_every_bad_state_is_refused_with_the_same_text(
    case: Case, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    """Only the operator learns why a state was refused; the client does not."""
    trail = Trail()
    async with posting(make_server(trail)) as poster:
        asked = await poster.call("greet")
        with caplog.at_level(logging.WARNING, "mcptrio.parking"):
            assert is_refused(await case.use(poster, asked))
        (record,) = caplog.records
        assert case.why in record.getMessage()
        assert asked.state not in record.getMessage()
        # The call itself still waits, and its owner can go on.
        assert (await poster.retry(asked, "greet", name=accept(name="Ada"))).text == "Hello, Ada!"
    assert trail.done == ["begun", "answered"]


async def test_a_state_is_accepted_once(autojump_clock: MockClock) -> None:
    async with posting(make_server()) as poster:
        asked = await poster.call("greet")
        assert (await poster.retry(asked, "greet", name=accept(name="Ada"))).text == "Hello, Ada!"
        assert is_refused(await poster.retry(asked, "greet", name=accept(name="Ada")))


async def test_a_state_of_another_server_is_refused_although_the_keys_are_the_same(autojump_clock: MockClock) -> None:
    async with posting(make_server(name="one", state_keys=[OLD])) as one:
        asked = await one.call("greet")
        async with posting(make_server(name="two", state_keys=[OLD])) as two:
            assert is_refused(await two.retry(asked, "greet", name=accept(name="A")))


async def test_an_expired_state_is_refused(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    now = time.time()
    monkeypatch.setattr(parking, "time", SimpleNamespace(time=lambda: now))
    async with posting(make_server(limits=Limits(parked_ttl=60))) as poster:
        asked = await poster.call("greet")
        monkeypatch.setattr(parking, "time", SimpleNamespace(time=lambda: now + 61))
        assert is_refused(await poster.retry(asked, "greet", name=accept(name="A")))


# -- keys


async def replayed(first: Server, second: Server) -> Reply:
    """A prompt that asks at one server, and is answered at another."""
    async with posting(first) as one:
        asked = await one.post("prompts/get", {"name": "greeting"})
    params = {"name": "greeting", "requestState": asked.state, "inputResponses": {"name": accept(name="Ada")}}
    async with posting(second) as two:
        return await two.post("prompts/get", params)


@pytest.mark.parametrize("keys", [[OLD], [NEW, OLD], [OLD, NEW]])
async def test_every_key_of_the_ring_opens(keys: list[str], autojump_clock: MockClock) -> None:
    """A key can be exchanged: first it is added behind, then in front, then the old one is taken away."""
    reply = await replayed(make_server(state_keys=[OLD]), make_server(state_keys=keys))
    assert reply.result["messages"][0]["content"]["text"] == "Hello, Ada!"


@pytest.mark.parametrize(
    "keys", [{}, {"state_keys": [NEW]}, {"state_keys": [OLD], "state_audience": "others"}], ids=str
)
async def test_a_server_without_the_key_refuses(keys: Any, autojump_clock: MockClock) -> None:
    assert is_refused(await replayed(make_server(state_keys=[OLD]), make_server(**keys)))


async def test_the_first_key_of_the_ring_seals(autojump_clock: MockClock) -> None:
    reply = await replayed(make_server(state_keys=[NEW, OLD]), make_server(state_keys=[NEW]))
    assert "result" in reply.last


async def test_servers_of_different_names_share_states_if_they_have_the_same_audience(
    autojump_clock: MockClock,
) -> None:
    one, two = (make_server(name=name, state_keys=[OLD], state_audience="all") for name in ("one", "two"))
    assert "result" in (await replayed(one, two)).last


@pytest.mark.parametrize("keys", [["short"], [], "AAAA"])
def test_bad_keys_are_refused_when_declared(keys: Any) -> None:
    with pytest.raises(DeclarationError):
        Server("s", state_keys=keys)


# -- bounds


async def test_the_oldest_call_is_dropped_when_too_many_are_parked(autojump_clock: MockClock) -> None:
    trail = Trail()
    async with posting(make_server(trail, limits=Limits(parked_max=3))) as poster:
        first = await poster.call("greet")
        others = [await poster.call("greet") for _ in range(3)]
        await wait_all_tasks_blocked()
        assert trail.done == ["begun"] * 4 + ["cancelled"]
        assert is_refused(await poster.retry(first, "greet", name=accept(name="A")))
        for asked in others:
            assert (await poster.retry(asked, "greet", name=accept(name="B"))).text == "Hello, B!"


@pytest.mark.defect("S7")
async def test_one_client_cannot_push_the_parked_calls_of_others_out(autojump_clock: MockClock) -> None:
    async with endpoint_of(make_server(limits=Limits(parked_max=10))) as endpoint:
        honest, greedy = Poster(endpoint, client=("192.0.2.1", 1)), Poster(endpoint, client=("192.0.2.2", 1))
        asked = await honest.call("greet")
        for _ in range(30):
            await greedy.call("greet")
        assert len(endpoint.runtime.parking) == 10
        assert (await honest.retry(asked, "greet", name=accept(name="Ada"))).text == "Hello, Ada!"


async def test_a_parked_call_is_dropped_after_its_ttl(autojump_clock: MockClock) -> None:
    trail = Trail()
    async with posting(make_server(trail, limits=Limits(parked_ttl=60))) as poster:
        await poster.call("greet")
        await trio.sleep(59)
        assert trail.done == ["begun"]
        await trio.sleep(2)
        assert trail.done == ["begun", "cancelled"]
        runtime = poster.endpoint.runtime
        assert (len(runtime.parking), len(runtime.supervisor.exchanges), tasks_of(runtime)) == (0, 0, 0)


async def test_a_parked_call_waits_although_the_clock_began_long_ago(autojump_clock: MockClock) -> None:
    """The clock of a process begins anywhere: a call that was just parked is not an old one."""
    async with posting(make_server()) as poster:
        autojump_clock.jump(1_000_000)
        asked = await poster.call("greet")
        await trio.sleep(300)
        assert (await poster.retry(asked, "greet", name=accept(name="Ada"))).text == "Hello, Ada!"


@exhaustive
async def test_ten_thousand_unanswered_questions_leave_nothing_behind(autojump_clock: MockClock) -> None:
    """F07: what a client never comes back for is bounded in number and age."""
    async with endpoint_of(make_server(limits=Limits(parked_max=100, parked_ttl=600))) as endpoint:
        runtime, poster = endpoint.runtime, Poster(endpoint)

        async def ask(number: int) -> None:
            assert list((await poster.call("greet", {"greeting": str(number)})).asked) == ["name"]

        for hundred in range(100):
            async with trio.open_nursery() as nursery:
                for number in range(100):
                    nursery.start_soon(ask, hundred * 100 + number)
            assert len(runtime.parking) <= 100
            await wait_all_tasks_blocked()
            assert tasks_of(runtime) <= 101  # the alarm of those that wait to be answered is one
        await trio.sleep(601)
        assert (len(runtime.parking), len(runtime.supervisor.exchanges), tasks_of(runtime)) == (0, 0, 0)
        assert endpoint.calls == 0
        gc.collect()
        assert sum(isinstance(thing, Exchange) for thing in gc.get_objects()) < 5  # what some frame still remembers


async def test_a_drain_drops_parked_calls(autojump_clock: MockClock) -> None:
    trail = Trail()
    async with posting(make_server(trail)) as poster:
        await poster.call("greet")
        began = trio.current_time()
        await poster.endpoint.runtime.drain(25)
        await wait_all_tasks_blocked()
        assert trail.done == ["begun", "cancelled"]
        assert trio.current_time() - began < 1.5
