"""Raise the exception of a block as it is, although a nursery surrounds the block."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from mcptrio.errors import ConnectionLost


@asynccontextmanager
async def open_unwrapped_nursery() -> AsyncIterator[trio.Nursery]:
    """Open a nursery for tasks that never fail; an exception of the block waits for them and is raised unwrapped.

    The block has to end the tasks, also when it fails.
    """
    raised: BaseException | None = None
    async with trio.open_nursery() as nursery:
        try:
            yield nursery
        except (trio.Cancelled, GeneratorExit):
            raise
        except BaseException as error:
            if isinstance(error, BaseExceptionGroup) and error.subgroup(trio.Cancelled) is not None:
                raise
            raised = error
    if raised is not None:
        raise raised


def unwrap(error: Exception) -> Exception:
    """Return the only exception of a group; for several, return one with the group as its cause."""
    while isinstance(error, ExceptionGroup):
        if len(error.exceptions) == 1:
            error = error.exceptions[0]
            continue
        several = ConnectionLost("several things failed: " + ", ".join(type(e).__name__ for e in error.exceptions))
        several.__cause__ = error
        return several
    return error
