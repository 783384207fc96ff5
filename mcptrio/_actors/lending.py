"""Lending: the task that read a request runs its handler, as long as that handler has never waited.

Starting a task is the most expensive part of a short call, and a handler that never waits does not need one. So the
reader of a pipe (stdio, a WebSocket, a memory link) offers its task with every request that it delivers:

    loan = Loan()
    await session.deliver(frame, link, context, loan)
    if loan.call is not None and await loan.run(on_wait):
        return      # this task became the handler's, and the handler has ended

Meanwhile the task has the name of the call. If the handler waits, `on_wait` starts another reader, and the handler
keeps the task. Its tool, prompt or route is marked: from then on each of its calls gets a task in the nursery of its
session.

The handler cannot tell the difference. It has a cancel scope of its own with the deadline of the call, and the task's
context variables are those of its request. `Task.iter_await_frames` sees through `_Driver`.

A tool that waits costs more when it is lent a task than with a task of its own; hence the mark. The HTTP engines do not
lend: docs/design/hot-path.md has the measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

import trio

from mcptrio._struct import Entity

if TYPE_CHECKING:
    from mcptrio._actors.call import Call
    from mcptrio._actors.handlers import Handlers


class Lendable(Protocol):
    """A tool, prompt or route."""

    waits: bool
    """Whether a handler of it has ever waited."""


class Loan(Entity):
    """A reader's offer of its task to the handler of the request that it delivers. It can be used again."""

    call: Call | None = None
    """The call whose handler shall run in the reader's task."""
    _handlers: Handlers | None = None
    _entry: Lendable | None = None

    def accept(self, call: Call, handlers: Handlers, entry: Lendable) -> None:
        """Let the handler of this call run in the reader's task."""
        self.call, self._handlers, self._entry = call, handlers, entry

    async def run(self, on_wait: Callable[[], None]) -> bool:
        """Run the handler that accepted the loan, in the present task; return whether the handler kept the task.

        `on_wait` is called when the handler waits for the first time. It must let another task take over the reader's
        work: this one belongs to the handler from then on.
        """
        call, handlers, entry = self.call, self._handlers, self._entry
        if call is None or handlers is None or entry is None:
            return False
        self.call = self._handlers = self._entry = None
        task = trio.lowlevel.current_task()
        own, context = (task.name, task.context), _context_of(call)
        coroutine = handlers.run(call)
        task.name, task.context = call.name, context
        try:
            trap = context.run(coroutine.send, None)
        except StopIteration:
            task.name, task.context = own
            return False
        except BaseException:
            task.name, task.context = own
            raise
        entry.waits = True
        try:
            on_wait()
        except BaseException:
            coroutine.close()
            raise
        await _Driver(coroutine, trap)  # from here on Trio resumes the task in `context`
        return True


def _context_of(call: Call) -> Context:
    context: Context | None = call.start.context
    return copy_context() if context is None else context.copy()


async def run_in(context: Context, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Await a coroutine in the present task, but with other context variables."""
    try:
        trap = context.run(coroutine.send, None)
    except StopIteration as done:
        return done.value
    return await _Driver(coroutine, trap, context)


def _call(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


class _Driver:
    """An awaitable for a coroutine that has already run up to its first trap.

    An `await` would refuse it, as it waits for something else already. The attributes of a coroutine let debuggers see
    through.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], trap: Any, context: Context | None = None) -> None:
        self._coroutine: Any = coroutine
        self._first: tuple[Any, ...] = (trap,)
        self._run: Callable[..., Any] = _call if context is None else context.run

    def __await__(self) -> Generator[Any, Any, Any]:
        return self

    __iter__ = __await__

    def __next__(self) -> Any:
        if self._first:
            (trap,), self._first = self._first, ()
            return trap
        return self.send(None)

    def send(self, value: Any) -> Any:
        return self._run(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        return self._run(self._coroutine.throw, *error)

    def close(self) -> None:
        self._coroutine.close()

    @property
    def cr_frame(self) -> FrameType | None:
        frame: FrameType | None = self._coroutine.cr_frame
        return frame

    @property
    def cr_await(self) -> Any:
        return self._coroutine.cr_await
