"""Asking, at every date that can, between processes: stdio, Streamable HTTP, WebSocket."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.stateless.asking_cases import DATES_THAT_ASK, every_case, every_date_that_asks
from tests.tiers import sample

from .server_process import PROGRAMS, ServerProcess, running

# A generator of the HTTP library's own, which it leaves to the garbage collector when a stream is not read to its end.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'httpcore2:ResourceWarning")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running("asking.py", tmp_path_factory.mktemp("asking") / "log") as process:
        trio.run(process.wait_ready)
        yield process


@every_case
@every_date_that_asks
@pytest.mark.parametrize("scheme", ["http", "ws"])
async def test_a_question_works_over_the_network(case: Any, date: str, scheme: str, server: ServerProcess) -> None:
    @asynccontextmanager
    async def reach() -> AsyncIterator[str]:
        yield f"{scheme}://127.0.0.1:{server.port}/mcp"

    with trio.fail_after(30):
        await case(reach, date)


@every_case
@pytest.mark.parametrize("date", sample(DATES_THAT_ASK, DATES_THAT_ASK[-1]))
async def test_a_question_works_over_stdio(case: Any, date: str) -> None:
    @asynccontextmanager
    async def reach() -> AsyncIterator[list[str | Path]]:
        yield [sys.executable, "-m", "mcptrio", "run", PROGRAMS / "asking.py", "--log-level", "error"]

    with trio.fail_after(30):
        await case(reach, date)
