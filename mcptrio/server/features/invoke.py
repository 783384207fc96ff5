"""Calling a user's function: its arguments bound, its context given, in a thread if it is not async."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import trio
from msgspec import Struct

from mcptrio._schema.build import Signature, describe
from mcptrio.errors import DeclarationError, Overloaded
from mcptrio.server.context import Context

MAX_WAITING_FOR_A_THREAD = 64


def is_context(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Context)


def caller_names(depth: int = 2) -> dict[str, Any]:
    """The local names where something is declared, so that string annotations of inner functions can be resolved."""
    try:
        frame = sys._getframe(depth)
    except ValueError:
        return {}
    return dict(frame.f_locals) if frame.f_code.co_name != "<module>" else {}


class Function(Struct, frozen=True, eq=False):
    """A user's function, ready to be called."""

    fn: Callable[..., Any]
    signature: Signature
    inline: bool = False
    """A plain function that is quick and never blocks: called directly instead of in a thread."""

    def __call__(self, ctx: Context, kwargs: dict[str, Any], threads: trio.CapacityLimiter) -> Awaitable[Any]:
        """What has to be awaited: an async function's own coroutine, nothing around it."""
        signature = self.signature
        if signature.injected is not None:
            kwargs[signature.injected] = ctx
        if signature.is_async:
            return self.fn(**kwargs)  # type: ignore[no-any-return]  # it is
        return _settled(self.fn(**kwargs)) if self.inline else self._call_in_thread(kwargs, threads)

    async def _call_in_thread(self, kwargs: dict[str, Any], threads: trio.CapacityLimiter) -> Any:
        if threads.statistics().tasks_waiting >= MAX_WAITING_FOR_A_THREAD:
            raise Overloaded("every worker thread is busy")
        # A thread cannot be ended from outside: when the call is cancelled it is left to itself.
        result = await trio.to_thread.run_sync(partial(self.fn, **kwargs), limiter=threads, abandon_on_cancel=True)
        return await _settled(result)


async def _settled(result: Any) -> Any:
    """The result of a plain function that turns out to give an awaitable (a partial, a callable object)."""
    return await result if inspect.isawaitable(result) else result


def declare(fn: Callable[..., Any], *, inline: bool = False, names: Mapping[str, Any] | None = None) -> Function:
    """Raises `DeclarationError` if the function's parameters cannot be described."""
    signature = describe(fn, injected=is_context, names=names)
    if inline and signature.is_async:
        raise DeclarationError("inline=True is for plain functions; an async one needs no thread anyway")
    return Function(fn, signature, inline)


def function_name(fn: Any) -> str:
    while isinstance(fn, partial):
        fn = fn.func
    name = getattr(fn, "__name__", None) or type(fn).__name__
    if name == "<lambda>":
        raise DeclarationError("a lambda has no name; pass name=")
    return str(name)
