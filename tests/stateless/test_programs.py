"""Random handlers that ask: in one process, and hopping between processes, they give the same result.

A program is a list of steps: `elicit` and `sample` ask, with or without a key; `late` asks what the client
never answers; `once` has a side effect; `loop` repeats steps, and `together` runs branches in a nursery.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio
from attrs import define, field
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from mcptrio import Context, RequestTimeout, Server
from mcptrio.stores._records import MarkTable
from mcptrio.stores.base import StoreLimits
from mcptrio.stores.memory import MemoryStore
from mcptrio.stores.sqlite import SqliteStore
from mcptrio.types import TextContent

from .kit import Json, Poster, Reply, accept, posting

KEY = "00" * 32
Program = list[tuple[Any, ...]]

keys = st.sampled_from([None, "k", "k-2", "other"])
words = st.sampled_from(["A?", "B?"])
asks = st.tuples(st.sampled_from(["elicit", "sample"]), words, keys)
late = st.tuples(st.just("late"), words, keys)
once = st.tuples(st.just("once"), st.sampled_from(["pay", "mail"]))


def steps(*simple: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.one_of(*simple),
        lambda inner: st.one_of(
            st.tuples(st.just("loop"), st.integers(1, 3), st.lists(inner, min_size=1, max_size=2)),
            st.tuples(st.just("together"), st.lists(st.lists(inner, max_size=2), min_size=2, max_size=3)),
        ),
        max_leaves=6,
    )


def programs(*simple: st.SearchStrategy[Any]) -> st.SearchStrategy[Program]:
    return st.lists(steps(*simple), min_size=1, max_size=4)


@dataclass
class Said:
    said: str

    def __post_init__(self) -> None:
        if self.said.startswith("wrong"):
            raise RuntimeError(self.said)


# -- the handler


async def perform(ctx: Context, program: Program, effects: Counter[str], path: str = "") -> list[Any]:
    """Run a program. Messages and keys name their branch, because branches run in random order."""
    results: list[Any] = []
    for step in program:
        match step:
            case ("elicit", word, key):
                answer = await ctx.elicit(f"{word}{path}", Said, key=key and key + path)
                results.append((f"{word}{path}", answer.value and answer.value.said))
            case ("sample", word, key):
                said = await ctx.sample(f"{word}{path}", key=key and key + path)
                assert isinstance(said.content[0], TextContent)
                results.append((f"{word}{path}", said.content[0].text))
            case ("late", word, key):
                try:
                    await ctx.elicit(f"ignored {word}{path}", Said, key=key and key + path, timeout=5)
                except RequestTimeout:
                    results.append("late")
            case ("once", name):
                results.append(await ctx.once(name + path, perform_once, effects, name + path))
            case ("loop", times, steps):
                for _ in range(times):
                    results.append(await perform(ctx, steps, effects, path))
            case ("together", branches):
                results.append(await together(ctx, branches, effects, path, len(results)))
    return results


def perform_once(effects: Counter[str], name: str) -> tuple[str, int]:
    effects[name] += 1
    return name, effects[name]


async def together(
    ctx: Context, branches: list[Program], effects: Counter[str], path: str, number: int
) -> dict[int, Any]:
    done: dict[int, Any] = {}

    async def run(index: int, branch: Program) -> None:
        done[index] = await perform(ctx, branch, effects, f"{path}/{number}.{index}")

    async with trio.open_nursery() as nursery:
        for index, branch in enumerate(branches):
            nursery.start_soon(run, index, branch)
    return {index: done[index] for index in sorted(done)}


# -- the client


@define(eq=False)
class Person:
    """Answers each question with its own words; sometimes with a wrong answer first; never if it is to be ignored.

    It also sends its earlier answers again, which must not settle anything.
    """

    wrong: list[bool]
    answered: int = 0
    _refused: set[str] = field(factory=set)
    _earlier: Json = field(factory=dict)

    def answer(self, asked: dict[str, Json]) -> Json:
        answers: Json = {}
        for key, question in asked.items():
            params = question["params"]
            if question["method"] == "sampling/createMessage":
                text = f"{params['messages'][0]['content']['text']}|{key}"
                answers[key] = {"role": "assistant", "model": "m", "content": {"type": "text", "text": text}}
            elif params["message"].startswith("ignored"):
                continue
            elif key not in self._refused and self.wrong and self.wrong.pop():
                self._refused.add(key)
                answers[key] = accept(said="wrong")
                continue
            else:
                answers[key] = accept(said=f"{params['message']}|{key}")
            self.answered += 1
        return answers

    def with_earlier(self, asked: dict[str, Json], answers: Json) -> Json:
        """Add the earlier answers under keys that nothing is asked under at present."""
        sent = {**{key: value for key, value in self._earlier.items() if key not in asked}, **answers}
        self._earlier.update(answers)
        return sent


Choose = Callable[[bool], Any]
"""Returns the process for the next request: `await choose(True)` may be another one, `await choose(False)` not."""


async def converse(choose: Choose, person: Person) -> Reply:
    poster: Poster = await choose(True)
    reply = await poster.call("run")
    for _ in range(200):
        if "error" in reply.last or reply.result["resultType"] != "input_required":
            return reply
        answers = person.answer(reply.asked)
        if not answers:
            await trio.sleep(6)  # every question that is left is to be ignored: the handler must see its time pass
        poster = await choose(bool(answers))
        reply = await poster.retry(reply, "run", **person.with_earlier(reply.asked, answers))
    raise AssertionError("the program does not end")


def make_server(program: Program, effects: Counter[str]) -> Server:
    server = Server("programs", state_keys=[KEY])

    @server.tool(replay=True)
    async def run(ctx: Context) -> str:
        return repr(await perform(ctx, program, effects))

    return server


@define(eq=False)
class Processes:
    """Servers that come and go. Each lives in a task of its own, so that they end in any order."""

    nursery: trio.Nursery
    make: Callable[[int], Any]
    hops: list[int]
    """Which process is asked next: 0 or 1; 2 restarts the present one first."""
    _open: dict[int, tuple[Poster, trio.Event, trio.Event]] = field(factory=dict)
    _now: int = 0

    async def choose(self, may_hop: bool) -> Poster:
        hop = self.hops.pop() if self.hops and may_hop else self._now
        if hop == 2:
            _, stop, stopped = self._open.pop(self._now, (None, trio.Event(), None))
            stop.set()
            if stopped is not None:
                await stopped.wait()
        else:
            self._now = hop
        if self._now not in self._open:
            self._open[self._now] = await self.nursery.start(self._serve, self._now)
        return self._open[self._now][0]

    async def _serve(self, number: int, task_status: trio.TaskStatus[Any]) -> None:
        stop, stopped = trio.Event(), trio.Event()
        async with self.make(number) as poster:
            task_status.started((poster, stop, stopped))
            await stop.wait()
        stopped.set()


@asynccontextmanager
async def open_processes(make: Callable[[int], Any], hops: list[int]) -> AsyncIterator[Processes]:
    async with trio.open_nursery() as nursery:
        yield Processes(nursery, make, hops)
        nursery.cancel_scope.cancel()


async def run_once(
    make: Callable[[int], Any], hops: list[int], wrong: list[bool], afterwards: float = 0
) -> tuple[str, int]:
    person = Person(wrong)
    async with open_processes(make, hops) as processes:
        reply = await converse(processes.choose, person)
        await trio.sleep(afterwards)  # the copies that were left behind see their questions time out
    return reply.text, person.answered


def check(results: Any) -> int:
    """Check that each ask got the answer to its own words; return how many asks were answered."""
    match results:
        case (str(message), str(said)) if "|" in said:
            assert said.startswith(f"{message}|"), results
            return 1
        case list() | tuple():
            return sum(check(each) for each in results)
        case dict():
            return sum(check(each) for each in results.values())
    return 0


hops = st.lists(st.integers(0, 2), max_size=12)
journeys = st.one_of(
    st.tuples(programs(asks, once), hops),
    # A call that hopped away leaves a copy behind, parked, and when its question times out the copy goes on as well.
    # `once` knows of the other run because the processes share their marks.
    st.tuples(programs(asks, late, once), hops),
)
wrong = st.lists(st.booleans(), max_size=6)


LEFT_BEHIND = ([("together", [[("late", "A?", None), ("once", "pay")], [("elicit", "B?", None)]])], [1, 0])


@settings(max_examples=100, deadline=None)
@given(journeys, wrong)
@example(LEFT_BEHIND, [])
def test_a_program_has_the_same_result_whichever_processes_run_it(
    journey: tuple[Program, list[int]], wrong: list[bool]
) -> None:
    program, hops = journey
    received: list[tuple[str, int]] = []
    for where, mistakes in (([], []), (list(hops), list(wrong))):
        effects: Counter[str] = Counter()
        clock = MockClock(autojump_threshold=0)
        marks = MarkTable(StoreLimits())

        def make(number: int, effects: Counter[str] = effects, marks: MarkTable = marks) -> Any:
            store = MemoryStore()
            store.marks = marks
            return posting(make_server(program, effects), store=store)

        received.append(trio.run(run_once, make, where, mistakes, 30, clock=clock))
        assert set(effects.values()) <= {1}
    here, elsewhere = received
    assert here == elsewhere
    assert check(eval(here[0])) == here[1]


# Real time: a file is written from a thread, which the mock clock would overtake.


# These processes share no marks: one knows the `once` results of the other from the journal in the state. So no `once`
# runs next to a question here, because a round may leave while the result of the `once` is still being written.
in_turn = st.lists(st.one_of(once, steps(asks)), min_size=1, max_size=4)


@settings(max_examples=15, deadline=None)
@given(in_turn, hops, wrong)
def test_a_program_goes_on_in_processes_that_restart_with_a_durable_store(
    tmp_path_factory: Any, program: Program, hops: list[int], wrong: list[bool]
) -> None:
    folder: Path = tmp_path_factory.mktemp("store")
    received: list[tuple[str, int]] = []
    for where, mistakes in (([], []), (list(hops), list(wrong))):
        effects: Counter[str] = Counter()
        run = len(received)

        def make(number: int, effects: Counter[str] = effects, run: int = run) -> Any:
            # A file belongs to one process at a time; the next one in this place opens it again.
            return posting(make_server(program, effects), store=SqliteStore(folder / f"{run}-{number}.db"))

        received.append(trio.run(run_once, make, where, mistakes))
        assert set(effects.values()) <= {1}
    assert received[0] == received[1]
