"""Functions declared with `runs="asyncio"`: they are awaited in an asyncio loop, and their context works there."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import trio

from mcptrio._bridge.to_asyncio import run_in_asyncio, settle_in_asyncio
from mcptrio._bridge.to_trio import TrioCall, Way
from mcptrio.server.context import Context, RequestHandle, SessionHandle


async def call_in_asyncio(ctx: Context, fn: Callable[..., Any], kwargs: dict[str, Any], injected: str | None) -> Any:
    """Await an asyncio function for a request. Its end, an exception or a cancellation is that of the request."""
    way = ctx._session.runtime.asyncio_loop().way
    if injected is None:
        return await run_in_asyncio(way, partial(fn, **kwargs))
    failure: BaseException | None = None
    async with trio.open_nursery() as nursery:  # for what the function calls of its context
        kwargs[injected] = AsyncioContext(ctx._session, ctx._call, _trio=ctx, _way=way, _nursery=nursery)
        try:
            result = await run_in_asyncio(way, partial(fn, **kwargs))
        except trio.Cancelled:
            raise
        except BaseException as error:  # noqa: BLE001 - raised below, where no nursery wraps it in a group
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return result


def _crossing(name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Make the method of a context that runs in Trio and is awaited in asyncio."""

    @functools.wraps(getattr(Context, name))
    async def method(self: AsyncioContext, *args: Any, **kwargs: Any) -> Any:
        return await self._cross(partial(getattr(self._trio, name), *args, **kwargs))

    return method


class AsyncioContext(Context, kw_only=True):
    """The context of a function that runs in asyncio: the same methods, awaited there."""

    _trio: Context
    _way: Way
    _nursery: trio.Nursery

    async def _cross(self, fn: Callable[[], Awaitable[Any]]) -> Any:
        return await TrioCall(self._way, self._nursery, fn).wait()

    progress = report_progress = _crossing("progress")
    log = _crossing("log")
    elicit = _crossing("elicit")
    elicit_url = _crossing("elicit_url")
    elicitation_complete = _crossing("elicitation_complete")
    sample = _crossing("sample")
    list_roots = _crossing("list_roots")

    async def once(self, key: str, fn: Callable[..., Any], *args: Any) -> Any:
        """Run `fn(*args)` in asyncio, record its result under `key`, and return it; see `Context.once`."""

        @functools.wraps(fn)
        async def run(*args: Any) -> Any:
            return await settle_in_asyncio(self._way, fn, args)

        return await self._cross(partial(self._trio.once, key, run, *args))

    def close_stream(self) -> None:
        self._way.to_trio(self._trio.close_stream)

    @property
    def data(self) -> dict[str, Any]:
        return self._trio.data

    @property
    def session(self) -> SessionHandle:
        if self._call.start.capabilities is not None:
            return _AsyncioRequestHandle(self._way, self._session, self._call)
        return _AsyncioSessionHandle(self._way, self._session, self._call)


class _AsyncioHandle(SessionHandle):
    """A handle for asyncio: its background tasks run there."""

    __slots__ = ("_way",)

    def __init__(self, way: Way, *args: Any) -> None:
        super().__init__(*args)
        self._way = way

    def start_soon(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> None:
        self._way.to_trio(partial(super().start_soon, run_in_asyncio, self._way, partial(fn, *args)))


class _AsyncioSessionHandle(_AsyncioHandle):
    """A session handle for asyncio."""

    __slots__ = ()

    def end(self, reason: str) -> None:
        self._way.to_trio(partial(super().end, reason))


class _AsyncioRequestHandle(_AsyncioHandle, RequestHandle):
    """A handle of a stateless request for asyncio; there is no session that it could end."""

    __slots__ = ()
