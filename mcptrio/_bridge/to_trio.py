"""Calls from asyncio to Trio: a Trio function runs as a task of a nursery, and an asyncio task waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, Protocol, TypeVar

import trio
from outcome import Error, Outcome, Value

from mcptrio.errors import ConnectionLost

T = TypeVar("T")

logger = logging.getLogger("mcptrio.asyncio")


class Way(Protocol):
    """How plain functions get from one side to the other."""

    loop: asyncio.AbstractEventLoop
    given_up: bool
    """Whether Trio does not end, and nothing shall wait for it any more."""

    def to_trio(self, fn: Callable[[], object], /) -> None: ...

    def to_asyncio(self, fn: Callable[[], object], /) -> None: ...


class SameThread:
    """Both sides are in one thread, because Trio is a guest of the loop: calls are direct."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.given_up = False

    def to_trio(self, fn: Callable[[], object], /) -> None:
        fn()

    def to_asyncio(self, fn: Callable[[], object], /) -> None:
        fn()


class OtherThread:
    """The loop runs in a thread of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, token: trio.lowlevel.TrioToken) -> None:
        self.loop = loop
        self.given_up = False
        self._token = token

    def to_trio(self, fn: Callable[[], object], /) -> None:
        self._token.run_sync_soon(partial(copy_context().run, _guarded, fn))

    def to_asyncio(self, fn: Callable[[], object], /) -> None:
        self.loop.call_soon_threadsafe(fn)


def _guarded(fn: Callable[[], object]) -> None:
    """Call a function of the other thread, whose exception would end the Trio run."""
    try:
        fn()
    except Exception:
        logger.exception("a call from the asyncio thread failed")


class TrioCall:
    """One Trio function that an asyncio task waits for. A cancellation is passed on, and waited for."""

    def __init__(self, way: Way, nursery: trio.Nursery, async_fn: Callable[..., Awaitable[Any]], *args: Any) -> None:
        self._way = way
        self._nursery = nursery
        self._async_fn = async_fn
        self._args = args
        self._scope = trio.CancelScope()
        self._outcome: Outcome[Any] | None = None
        self._ended: asyncio.Future[None] = way.loop.create_future()

    async def wait(self) -> Any:
        """Run the function and return its result. Called in asyncio, once."""
        self._way.to_trio(self._start)
        cancelled: asyncio.CancelledError | None = None
        while self._outcome is None:
            try:
                await self._ended
            except asyncio.CancelledError as error:
                if self._way.given_up:
                    raise
                if self._outcome is None:
                    self._ended = self._way.loop.create_future()
                    self._way.to_trio(self._scope.cancel)
                cancelled = cancelled or error
        if cancelled is not None:
            raise cancelled
        try:
            return self._outcome.unwrap()
        finally:
            del self  # an exception must not hold its own traceback

    def _start(self) -> None:
        if not trio.lowlevel.in_trio_run():  # a client that is used after its end
            self._finish(Error(_over()))
            return
        try:
            self._nursery.start_soon(self._run, name=getattr(self._async_fn, "__qualname__", None))
        except RuntimeError:  # the nursery is closed
            self._finish(Error(_over()))

    async def _run(self) -> None:
        outcome: Outcome[Any] = Error(_over())
        try:
            with self._scope:
                outcome = Value(await self._async_fn(*self._args))
        except trio.Cancelled:
            raise
        except BaseException as error:  # noqa: BLE001 - it goes to the asyncio task
            outcome = Error(error)
        finally:
            self._way.to_asyncio(partial(self._finish, outcome))

    def _finish(self, outcome: Outcome[Any]) -> None:
        self._outcome = outcome
        if not self._ended.done() and not self._way.loop.is_closed():
            self._ended.set_result(None)


def _over() -> ConnectionLost:
    return ConnectionLost("the Trio task that this call needs has ended")


@asynccontextmanager
async def held(
    way: Way, nursery: trio.Nursery, manager: AbstractAsyncContextManager[T], *, timeout: float | None = None
) -> AsyncIterator[T]:
    """Enter a context manager of Trio from asyncio; one Trio task enters and leaves it.

    If leaving it takes longer than `timeout` seconds, it is left behind, with everything that still runs in Trio.
    """
    entered: asyncio.Future[T] = way.loop.create_future()
    leave = trio.Event()

    async def hold() -> None:
        async with manager as value:
            way.to_asyncio(partial(_settle, entered, value))
            await leave.wait()

    task = asyncio.ensure_future(TrioCall(way, nursery, hold).wait())
    try:
        await asyncio.wait((entered, task), return_when=asyncio.FIRST_COMPLETED)
        if not entered.done():
            await task  # it failed
        try:
            yield entered.result()
        except Exception:
            way.to_trio(leave.set)
            await asyncio.wait((task,), timeout=timeout)
            raise
        way.to_trio(leave.set)
        await asyncio.wait((task,), timeout=timeout)
        if task.done():
            task.result()
        else:
            _give_up(way, timeout)
    finally:
        task.cancel()
        await asyncio.wait((task,), timeout=timeout)
        if not task.done():  # an exception or a cancellation ended the block
            _give_up(way, timeout)
            task.cancel()
            await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # seen: where nothing else was raised, it was raised above


def _give_up(way: Way, timeout: float | None) -> None:
    logger.error("what runs in Trio did not end within %g s; it is left behind", timeout)
    way.given_up = True


def _settle(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)
