"""One plain exception out: what a block raised, as it raised it, although a nursery was around it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from mcptrio.errors import LinkClosed


@asynccontextmanager
async def open_plain_nursery() -> AsyncIterator[trio.Nursery]:
    """A nursery for tasks that never fail themselves; an exception of the block waits for them, and leaves alone.

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


def plain(error: Exception) -> Exception:
    """The one exception in a group of one; a group of several becomes one, with the group as its cause."""
    while isinstance(error, ExceptionGroup):
        if len(error.exceptions) == 1:
            error = error.exceptions[0]
            continue
        several = LinkClosed("several things failed: " + ", ".join(type(e).__name__ for e in error.exceptions))
        several.__cause__ = error
        return several
    return error
