"""Asking, at every date that can, over the memory link."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from trio.testing import MockClock

from tests.e2e.programs import asking

from .asking_cases import every_case, every_date_that_asks


@asynccontextmanager
async def in_memory() -> AsyncIterator[Any]:
    yield asking.server


@every_case
@every_date_that_asks
async def test_a_question_works_in_memory(case: Any, date: str, autojump_clock: MockClock) -> None:
    await case(in_memory, date)
