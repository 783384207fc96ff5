"""Matching answers to questions; the task that asked validates the answer, never the machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from mcptrio import Context, RequestTimeout, Server
from tests.server.talk import Refused, open_server, talking

from .kit import Trail, accept, ask, posting

KEY = "00" * 32


def replayed(run: Callable[[Context], Any]) -> Callable[[], Server]:
    """Make servers with the tool `run`; each one stands for a process."""

    def make() -> Server:
        server = Server("answers", state_keys=[KEY])
        server.add_tool(run, name="run", replay=True)
        return server

    return make


@dataclass
class Even:
    """A form whose own code raises what its field says."""

    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise KeyError("no such number")
        if self.number % 2:
            raise ValueError("must be even")


async def even(ctx: Context) -> str:
    return str((await ctx.elicit("Number?", Even, key="number")).value)


# -- C23: code of users never runs inside a step


@pytest.mark.defect("C23")
@pytest.mark.parametrize("number", [-1, 3], ids=["KeyError", "ValueError"])
async def test_an_answer_that_makes_the_form_raise_is_asked_for_again(number: int, autojump_clock: MockClock) -> None:
    async with posting(replayed(even)()) as poster:
        first = await poster.call("run")
        second = await poster.retry(first, "run", number=accept(number=number))
        assert second.asked == first.asked
        assert (await poster.retry(second, "run", number=accept(number=4))).text == "Even(number=4)"


@pytest.mark.defect("C23")
@pytest.mark.parametrize("number", [-1, 3], ids=["KeyError", "ValueError"])
async def test_an_answer_that_makes_the_form_raise_is_asked_for_again_by_a_replay(
    number: int, autojump_clock: MockClock
) -> None:
    make = replayed(even)
    async with posting(make()) as here:
        first = await here.call("run")
    async with posting(make()) as elsewhere:
        second = await elsewhere.retry(first, "run", number=accept(number=number))
        assert second.asked == first.asked
        assert (await elsewhere.retry(second, "run", number=accept(number=4))).text == "Even(number=4)"


@pytest.mark.defect("C23")
async def test_a_form_that_raises_does_not_end_the_session_of_a_pipe(autojump_clock: MockClock) -> None:
    async with open_server(replayed(even)()) as join, join(opened=False) as talk:
        first = await ask(talk, "tools/call", name="run", arguments={})
        again = {"requestState": first["requestState"], "inputResponses": {"number": accept(number=-1)}}
        second = await ask(talk, "tools/call", name="run", arguments={}, **again)
        assert second["resultType"] == "input_required"


@pytest.mark.defect("C23")
async def test_in_a_session_a_form_that_raises_fails_the_tool_only(caplog: pytest.LogCaptureFixture) -> None:
    script = {"elicitation/create": lambda params: accept(number=-1)}
    async with talking(replayed(even)(), capabilities={"elicitation": {}}, script=script) as talk:
        assert "failed" in await talk.fault("run")
        assert await talk.request("ping") == {}
    assert "no such number" in caplog.text


BAD_FORMS: dict[str, Any] = {
    "no object": {"type": "string"},
    "no properties": {"type": "object"},
    "no type": {"properties": {"a": {"type": "string"}}},
    "an unknown type": {"type": "object", "properties": {"a": {"type": "text"}}},
    "a pattern that cannot be compiled": {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
    "a reference to nowhere": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}},
}


@pytest.mark.defect("C23")
@pytest.mark.parametrize("form", BAD_FORMS.values(), ids=list(BAD_FORMS))
async def test_an_invalid_form_is_an_error_at_the_first_ask(
    form: Any, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    async def run(ctx: Context) -> str:
        return (await ctx.elicit("A?", form)).action

    async with posting(replayed(run)()) as poster:
        assert (await poster.call("run")).result["isError"]
    assert "DeclarationError" in caplog.text


async def test_an_answer_with_a_very_large_number_is_kept_in_the_state(autojump_clock: MockClock) -> None:
    async def run(ctx: Context) -> str:
        form = {"type": "object", "properties": {"n": {"type": "integer"}}}
        first = await ctx.elicit("First?", form, key="first")
        await ctx.elicit("Second?", form, key="second")
        return str(first.content)

    make = replayed(run)
    async with posting(make()) as here:
        second = await here.retry(await here.call("run"), "run", first=accept(n=10**30))
    async with posting(make()) as elsewhere:
        assert (await elsewhere.retry(second, "run", second=accept(n=1))).text == f"{{'n': {10**30}}}"


# -- C02, C03: keys


@dataclass
class Size:
    size: str


async def until_known(ctx: Context) -> str:
    sizes: list[str] = []
    while "XL" not in sizes:
        answer = await ctx.elicit("Which size?", Size, key="size")
        sizes.append(answer.value.size if answer.value else "-")
    return " ".join(sizes)


@pytest.mark.defect("C02")
@pytest.mark.parametrize("hop", [False, True], ids=["one process", "many processes"])
async def test_a_loop_under_one_key_asks_each_time(hop: bool, autojump_clock: MockClock) -> None:
    make = replayed(until_known)
    async with posting(make()) as poster:
        reply = await poster.call("run")
        shown = []
        for size in ("S", "M", "XL"):
            (key,) = reply.asked
            shown.append(key)
            async with posting(make()) as elsewhere:
                reply = await (elsewhere if hop else poster).retry(reply, "run", **{key: accept(size=size)})
    assert shown == ["size", "size-2", "size-3"]
    assert reply.text == "S M XL"


@pytest.mark.defect("C02")
async def test_a_recorded_answer_is_a_checkpoint(autojump_clock: MockClock) -> None:
    async def run(ctx: Context) -> str:
        for _ in range(3):
            with assert_checkpoints():
                await ctx.elicit("Which size?", Size, key="size")
        return "done"

    async with posting(replayed(run)()) as poster:
        given = {key: accept(size="S") for key in ("size", "size-2", "size-3")}
        assert (await poster.call("run", inputResponses=given)).text == "done"


@pytest.mark.defect("C03")
async def test_one_key_for_two_questions_is_replayed_to_the_end(autojump_clock: MockClock) -> None:
    async def run(ctx: Context) -> str:
        size = await ctx.elicit("Which size?", Size, key="answer")
        name = await ctx.elicit("Whose?", Size, key="answer")
        last = await ctx.elicit("Really?", Size, key="last")
        return " ".join(a.value.size for a in (size, name, last) if a.value)

    make = replayed(run)
    reply = None
    for word in (None, "S", "Ada", "yes"):
        async with posting(make()) as process:
            if reply is None:
                reply = await process.call("run")
            else:
                reply = await process.retry(reply, "run", **{next(iter(reply.asked)): accept(size=word)})
    assert reply is not None
    assert reply.text == "S Ada yes"


@pytest.mark.parametrize("hop", [False, True], ids=["one process", "many processes"])
async def test_a_counted_key_and_the_same_key_written_out_are_two_questions(
    hop: bool, autojump_clock: MockClock
) -> None:
    async def run(ctx: Context) -> str:
        answers = [await ctx.elicit("Which?", Size, key=key) for key in ("a", "a-2", "a")]
        return " ".join(answer.value.size for answer in answers if answer.value)

    make = replayed(run)
    async with posting(make()) as poster:
        reply = await poster.call("run")
        for word in ("one", "two", "three"):
            async with posting(make()) as elsewhere:
                (key,) = reply.asked
                reply = await (elsewhere if hop else poster).retry(reply, "run", **{key: accept(size=word)})
    assert reply.text == "one two three"


async def test_two_tasks_cannot_wait_under_one_key(autojump_clock: MockClock) -> None:
    async def run(ctx: Context) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: ctx.elicit("One?", Size, key="k"))
            nursery.start_soon(lambda: ctx.elicit("Two?", Size, key="k"))
        return "never"

    async with open_server(replayed(run)()) as join, join(opened=False) as talk:
        result = await ask(talk, "tools/call", name="run", arguments={})
        assert result["isError"]


# -- C04: rounds


@pytest.mark.defect("C04")
@pytest.mark.parametrize("key", ["delete", None], ids=["explicit key", "default key"])
async def test_an_answer_settles_only_the_question_that_was_asked(key: str | None, autojump_clock: MockClock) -> None:
    form = {"type": "object", "properties": {}}

    async def run(ctx: Context) -> str:
        try:
            await ctx.elicit("Delete old.log?", form, key=key, timeout=60)
        except RequestTimeout:
            answer = await ctx.elicit("Delete customers.db?", form, key=key)
            return f"customers.db: {answer.action}"
        return "old.log"

    async with posting(replayed(run)()) as poster:
        first = await poster.call("run")
        await trio.sleep(61)
        (shown,) = first.asked
        second = await poster.retry(first, "run", **{shown: accept(), "delete": accept(), "delete-2": accept()})
        ((shown, question),) = second.asked.items()
        assert question["params"]["message"] == "Delete customers.db?"
        assert (await poster.retry(second, "run", **{shown: {"action": "decline"}})).text == "customers.db: decline"


@pytest.mark.defect("C04")
async def test_a_question_that_was_asked_while_the_call_was_parked_is_not_answered_by_the_retry(
    autojump_clock: MockClock,
) -> None:
    async def run(ctx: Context) -> str:
        received: dict[str, str] = {}

        async def later() -> None:
            await trio.sleep(1)
            received["late"] = (await ctx.elicit("Late?", Size, key="late")).action

        async with trio.open_nursery() as nursery:
            nursery.start_soon(later)
            received["soon"] = (await ctx.elicit("Soon?", Size, key="soon")).action
        return str(sorted(received.items()))

    async with posting(replayed(run)()) as poster:
        first = await poster.call("run")
        await trio.sleep(2)
        given = {"soon": {"action": "decline"}, "late": {"action": "cancel"}}
        second = await poster.retry(first, "run", **given)
        assert list(second.asked) == ["late"]
        reply = await poster.retry(second, "run", late={"action": "decline"})
        assert reply.text == "[('late', 'decline'), ('soon', 'decline')]"


async def test_a_question_that_timed_out_is_not_asked_again_by_a_replay(autojump_clock: MockClock) -> None:
    async def run(ctx: Context) -> str:
        words: list[str] = []
        for key, timeout in (("a", 10.0), ("b", 600.0), ("c", 600.0)):
            try:
                words.append((await ctx.elicit("Well?", Size, key=key, timeout=timeout)).action)
            except RequestTimeout:
                words.append("timeout")
        return " ".join(words)

    make = replayed(run)
    async with posting(make()) as here:
        first = await here.call("run")
        await trio.sleep(11)
        second = await here.retry(first, "run")
        assert list(second.asked) == ["b"]
    async with posting(make()) as elsewhere:
        third = await elsewhere.retry(second, "run", b=accept(size="S"))
        assert list(third.asked) == ["c"]
        assert (await elsewhere.retry(third, "run", c=accept(size="S"))).text == "timeout accept accept"


# -- C26: once


@dataclass
class Receipt:
    number: int
    lines: tuple[str, ...] = ("a", "b")


@pytest.mark.defect("C26")
@pytest.mark.parametrize("hop", [False, True], ids=["the first time", "replayed"])
async def test_once_returns_the_json_form(hop: bool, autojump_clock: MockClock) -> None:
    trail = Trail()

    def pay(number: int) -> Receipt:
        trail("paid")
        return Receipt(number)

    async def run(ctx: Context) -> str:
        receipt = await ctx.once("pay", pay, 7)
        receipt["lines"].append("changed")
        await ctx.elicit("Which size?", Size, key="size")
        again = await ctx.once("pay", pay, 7)
        return f"{receipt} {again}"

    make = replayed(run)
    async with posting(make()) as here, posting(make()) as elsewhere:
        first = await here.call("run")
        reply = await (elsewhere if hop else here).retry(first, "run", size=accept(size="S"))
    assert reply.text == "{'number': 7, 'lines': ['a', 'b', 'changed']} {'number': 7, 'lines': ['a', 'b']}"
    assert trail.done == ["paid"]


@pytest.mark.defect("C26")
async def test_once_returns_the_json_form_in_a_session_too() -> None:
    async def run(ctx: Context) -> str:
        return str(await ctx.once("pay", Receipt, 7))

    async with talking(replayed(run)()) as talk:
        assert await talk.text("run") == "{'number': 7, 'lines': ['a', 'b']}"


@pytest.mark.defect("C26")
async def test_a_function_whose_result_cannot_be_recorded_is_not_run(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    trail = Trail()

    def connect() -> trio.SocketStream:
        raise AssertionError(trail("run"))

    async def run(ctx: Context) -> str:
        return str(await ctx.once("pay", connect))

    async with posting(replayed(run)()) as poster:
        assert (await poster.call("run")).result["isError"]
    assert trail.done == []
    assert "the return annotation of" in caplog.text


@pytest.mark.parametrize("hop", [False, True], ids=["one process", "replayed"])
async def test_a_key_of_once_that_was_used_for_another_function_is_an_error(
    hop: bool, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    trail = Trail()
    lives: list[int] = []

    def pay() -> str:
        return trail("paid")

    def refund() -> str:
        return trail("refunded")

    async def run(ctx: Context) -> str:
        lives.append(1)
        if len(lives) == 1:
            await ctx.once("money", pay)
            await ctx.elicit("Which size?", Size, key="size")
        return str(await ctx.once("money", refund))

    make = replayed(run)
    async with posting(make()) as here, posting(make()) as elsewhere:
        first = await here.call("run")
        reply = await (elsewhere if hop else here).retry(first, "run", size=accept(size="S"))
        assert reply.result["isError"]
    assert trail.done == ["paid"]
    assert "was recorded for" in caplog.text


async def test_a_refused_state_of_another_version_does_not_end_the_session(autojump_clock: MockClock) -> None:
    async with open_server(replayed(even)()) as join, join(opened=False) as talk:
        with pytest.raises(Refused):
            await ask(talk, "tools/call", name="run", arguments={}, requestState="AQ" + "A" * 80, inputResponses={})
        await wait_all_tasks_blocked()
        assert (await ask(talk, "tools/call", name="run", arguments={}))["resultType"] == "input_required"
