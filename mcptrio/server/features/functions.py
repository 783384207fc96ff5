"""Calls of user functions: arguments are bound, the context is passed, plain functions run in a thread."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from mcptrio._schema.build import Signature, describe
from mcptrio.errors import INTERNAL_ERROR, DeclarationError, MCPError, UrlElicitationRequired
from mcptrio.server.context import Context


def is_context(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Context)


def caller_names() -> dict[str, Any]:
    """Return the local names where a decorator is used, to resolve string annotations of inner functions."""
    try:
        frame = sys._getframe(2)  # the caller of the decorator
    except ValueError:
        return {}
    return dict(frame.f_locals) if frame.f_code.co_name != "<module>" else {}


class Function(Struct, frozen=True, eq=False):
    """A user's function, ready to be called."""

    fn: Callable[..., Any]
    signature: Signature
    inline: bool = False
    """Whether it is a plain function that is fast and never blocks: it is called directly instead of in a thread."""

    def __call__(self, ctx: Context, kwargs: dict[str, Any]) -> Awaitable[Any]:
        """Return an awaitable; for an async function its own coroutine, without a wrapper."""
        signature = self.signature
        if signature.injected is not None:
            kwargs[signature.injected] = ctx
        if signature.is_async:
            return self.fn(**kwargs)  # type: ignore[no-any-return]  # it is
        return _settled(self.fn(**kwargs)) if self.inline else self._call_in_thread(ctx, kwargs)

    async def _call_in_thread(self, ctx: Context, kwargs: dict[str, Any]) -> Any:
        return await _settled(await ctx._session.runtime.threads.run(ctx._call, partial(self.fn, **kwargs)))


class AsyncioFunction(Function, frozen=True, eq=False):
    """An async function that runs in asyncio."""

    def __call__(self, ctx: Context, kwargs: dict[str, Any]) -> Awaitable[Any]:
        from mcptrio.server.asyncio_context import call_in_asyncio

        return call_in_asyncio(ctx, self.fn, kwargs, self.signature.injected)


async def _settled(result: Any) -> Any:
    """Await the result of a plain function that returned an awaitable (a partial, a callable object)."""
    return await result if inspect.isawaitable(result) else result


def declare(
    fn: Callable[..., Any],
    *,
    inline: bool = False,
    runs: str | None = None,
    names: Mapping[str, Any] | None = None,
    closed: bool = True,
) -> Function:
    """Describe a function; raise `DeclarationError` if its parameters cannot be described."""
    signature = describe(fn, injected=is_context, names=names, closed=closed)
    if inline and signature.is_async:
        raise DeclarationError("inline=True is for plain functions; an async one needs no thread anyway")
    return ready(fn, signature, inline=inline, runs=runs)


def ready(fn: Callable[..., Any], signature: Signature, *, inline: bool, runs: str | None) -> Function:
    """Return the function, for the event loop that it runs in.

    Raises:
        DeclarationError: `runs` is given for a plain function.
    """
    if runs is None:
        return Function(fn, signature, inline)
    if not signature.is_async:
        raise DeclarationError(f"runs={runs!r} is for async functions; a plain one runs in a thread, in no event loop")
    return AsyncioFunction(fn, signature) if runs == "asyncio" else Function(fn, signature)


def for_revision(error: UrlElicitationRequired, ctx: Context) -> MCPError:
    """Return the error as the revision of the request has it: the code -32042 exists in 2025-11-25 only."""
    if ctx._call.start.era.features.elicitation_error:
        return error
    urls = " ".join(page["url"] for page in error.elicitations)
    return MCPError(INTERNAL_ERROR, f"{error.message}: {urls}", error.data)


def require_function(kind: str, fn: Any) -> None:
    """Raise `DeclarationError` for what cannot be called, such as the name in `@server.tool("refund")`."""
    if not callable(fn):
        hint = f"; a name is an option: @server.{kind}(name={fn!r:.80})" if isinstance(fn, str) else ""
        raise DeclarationError(f"a {kind} is made from a function, not from {fn!r:.80}{hint}")


def function_name(fn: Any) -> str:
    while isinstance(fn, partial):
        fn = fn.func
    name = getattr(fn, "__name__", None) or type(fn).__name__
    if name == "<lambda>":
        raise DeclarationError("a lambda has no name; pass name=")
    return str(name)
