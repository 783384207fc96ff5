"""A handler behaves as in a plain Trio task, whatever it does and whichever transport its call came by.

Every body of the catalogue is called twice. Where readers lend their tasks, the first call runs in the reader's task,
and a body that waits runs in a task of its own from the second call on.
"""

from __future__ import annotations

import gc
import signal
from functools import partial
from itertools import product
from typing import Any

import pytest
import trio

from mcptrio import Server, connect
from mcptrio.errors import MCPTrioError
from tests.tiers import sample

from .handler_catalogue import BROKEN, CATALOGUE, Body
from .tool_callers import CALLERS, DATES, Answer, Calling

Outcome = tuple[Answer, list[Any]]
"""The answer, and what the body noted."""

_SETTLE = 1.0
"""Seconds that a note may take after the call, for example of a generator that Trio closes."""


async def as_a_task(name: str, body: Body) -> Outcome:
    """Run a body as a plain Trio task; return what a client should see of it."""
    notes: list[Any] = []
    answer: Answer = ("none", "")

    async def task() -> None:
        nonlocal answer
        try:
            answer = ("result", await body(notes.append))
        except BaseException as error:
            answer = ("tool error", "")
            if isinstance(error, BaseExceptionGroup) and error.subgroup(KeyboardInterrupt):
                notes.append("SIGINT")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(task, name=f"tools/call {name} · plain")
    gc.collect()
    await trio.sleep(0.001)
    return answer, notes


class Tools:
    """The bodies of the catalogue as tools of one server."""

    def __init__(self) -> None:
        self.server = Server("catalogue")
        self.notes: list[Any] = []
        for name, body in (CATALOGUE | BROKEN).items():
            self._add(name, body)

    def _add(self, name: str, body: Body) -> None:
        async def tool() -> str:
            return await body(self.notes.append)

        self.server.add_tool(tool, name=name)

    async def call(self, call: Calling, name: str, expected: list[Any]) -> Outcome:
        self.notes = []
        answer = await call(name)
        with trio.move_on_after(_SETTLE):
            while len(self.notes) < len(expected):
                await trio.sleep(0.001)
        return answer, self.notes


@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")  # one body leaves a generator open
@pytest.mark.parametrize(
    ("caller", "date"), sample(product(CALLERS, DATES), ("stdio", "stateful"), ("http hypercorn", "stateless"))
)
async def test_a_handler_behaves_as_in_a_plain_task(caller: str, date: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = Tools()
    monkeypatch.setattr(signal, "raise_signal", lambda number: tools.notes.append(signal.Signals(number).name))
    differences: dict[str, tuple[Any, Any]] = {}
    with trio.fail_after(240):
        async with CALLERS[caller](tools.server, DATES[date]) as call:
            for name, body in CATALOGUE.items():
                expected = await as_a_task(name, body)
                for turn in ("first", "second"):
                    seen = await tools.call(call, name, expected[1])
                    if seen != expected:
                        differences[f"{name}, {turn} call"] = (seen, expected)
            assert await call("pass_a_checkpoint") == ("result", "there")
    assert differences == {}


@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
@pytest.mark.slow
@pytest.mark.parametrize("date", DATES)
@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_a_handler_that_breaks_the_rules_of_trio_harms_no_other_session(
    scheme: str, date: str, engine: str
) -> None:
    """Such a plain task makes its nursery fail, so such a tool may end its own session; it must fail at least."""
    tools = Tools()
    with trio.fail_after(240):
        async with trio.open_nursery() as nursery:
            bound = await nursery.start(partial(tools.server.serve_http, port=0, engine=engine))
            url = f"{scheme}://{bound[0].url.partition('://')[2]}/mcp"
            async with connect(url, protocol=DATES[date]) as other:
                for name in BROKEN:
                    for _ in range(2):
                        with pytest.raises(MCPTrioError):
                            async with connect(url, protocol=DATES[date]) as client:
                                await client.call_tool(name)
                        assert (await other.call_tool("pass_a_checkpoint")).text == "there"
            nursery.cancel_scope.cancel()
