"""The routing table, and the guard around every handler that it runs.

Methods of the specification and custom methods are rows of the same table. It serves both roles, rejects duplicates
and is frozen when serving begins.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from msgspec import field
from msgspec.structs import replace

from mcptrio._peer.messages import Answered, Failed, Outcome
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import LoneSurrogate, encode_value
from mcptrio._wire.objects.converter import StructureError, structure, unstructure
from mcptrio.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_CLIENT_CAPABILITY,
    CapabilityMissing,
    DeclarationError,
    LocalProtocolError,
    MCPError,
    Overloaded,
    RemoteProtocolError,
    RequestTimeout,
)

if TYPE_CHECKING:
    from mcptrio._actors.call import Call
    from mcptrio._actors.incoming import Incoming
    from mcptrio._actors.lending import Lendable
    from mcptrio._actors.runtime import Runtime

logger = logging.getLogger("mcptrio.call")

Handler = Callable[..., Any]
CallNext = Callable[[Any, Any], Awaitable[Any]]
Middleware = Callable[[Any, "Incoming", CallNext], Awaitable[Any]]
Finish = Callable[[dict[str, Any]], dict[str, Any]]


class Route(Entity):
    """One row: a method, the class of its parameters, and its handler."""

    method: str
    params: type | str | None
    """A class, or the name of one in `mcptrio.types`. None: the handler gets the JSON object as received."""
    handler: Handler
    """`async def handler(ctx, params)`, or a plain function when `inline`."""
    inline: bool = False
    """Runs in the session's own loop: only for handlers of the runtime that never wait."""
    builtin: bool = False
    """Whether a user's row may replace it, once."""
    long: bool = False
    """Whether it only waits for events: then it takes no slot from working calls."""
    quick: Callable[[dict[str, Any]], Any] | None = None
    """Fast reader for parameters of the usual shape; returns None for any other, which is then read and checked in
    full."""
    named_by: str | None = None
    """The parameter that names the tool, prompt or resource, or refers to it."""
    entries: Mapping[str, Lendable] | None = None
    """The tools or prompts by name, see `lending`."""
    timed_out: Callable[[Call], dict[str, Any]] | None = None
    """Builds the result of a call that timed out; None: an error."""
    failed: Callable[[str], dict[str, Any]] | None = None
    """Builds the result of a call that failed, from a text; None: an error."""
    waits: bool = False
    """Whether the handler has ever waited, see `lending`."""
    home: Callable[[Runtime, Mapping[str, Any]], Awaitable[str | None]] | None = None
    """Finds the worker of a cluster that must answer a request, because something that it names lives there; None: any
    worker may. It may raise `Overloaded`."""


class Router(Entity):
    """Method -> route."""

    max_reply: int = 16 * 1024 * 1024
    routes: dict[str, Route] = field(default_factory=dict)
    chain: CallNext | None = None
    """The middleware around every handler, once serving has begun."""
    _middleware: list[Middleware] = field(default_factory=list)
    _frozen: bool = False

    def add(self, route: Route) -> None:
        """Put a row into the table.

        Raises:
            DeclarationError: the method has a row already, or serving has begun.
        """
        self.check(route)
        self.routes[route.method] = route

    def check(self, route: Route) -> None:
        """Raise what `add` would raise, without changing the table."""
        self._check_open(f"a route for {route.method!r}")
        there = self.routes.get(route.method)
        if there is not None and not there.builtin:
            raise DeclarationError(f"there is a route for {route.method!r} already; remove one of the two")

    def add_all(self, routes: Iterable[Route]) -> None:
        for route in routes:
            self.add(replace(route, builtin=True))

    def use(self, middleware: Middleware) -> None:
        self._check_open("middleware")
        self._middleware.append(middleware)

    def _check_open(self, what: str) -> None:
        if self._frozen:
            raise DeclarationError(f"{what} must be added before serving begins")

    def freeze(self) -> None:
        """Freeze the table and build the middleware chain."""
        if self._frozen:
            return
        self._frozen = True
        if self._middleware:
            chain: CallNext = self._call_route
            for middleware in reversed(self._middleware):
                chain = _wrap(middleware, chain)
            self.chain = chain

    def __contains__(self, method: object) -> bool:
        return method in self.routes

    def __iter__(self) -> Iterator[Route]:
        return iter(self.routes.values())

    def __getitem__(self, method: str) -> Route:
        return self.routes[method]

    async def _call_route(self, ctx: Any, request: Incoming) -> Any:
        route = self.routes[request.method]
        result = route.handler(ctx, request.params)
        return result if route.inline else await result

    # -- the call guard

    async def run(self, method: str, params: dict[str, Any], ctx: Any, finish: Finish | None = None) -> Outcome:
        """Run the handler for `method`. Whatever it raises, except `Cancelled`, becomes an outcome.

        `finish` adds the fields that every result of the request's revision has.
        """
        route = self.routes[method]
        try:
            typed = None if route.quick is None else route.quick(params)
            if typed is None:
                typed = params if route.params is None else structure(params, route.params)
            if self.chain is not None:
                from mcptrio._actors.incoming import Incoming  # only where there is middleware

                result = await self.chain(ctx, Incoming(method, typed))
            elif route.inline:
                result = route.handler(ctx, typed)
            else:
                result = await route.handler(ctx, typed)
            if type(result) is dict and (self.chain is not None or not route.builtin):
                result = {**result}  # `finish` changes the dict, which the user may keep
            return self.answer(result, finish)
        except trio.Cancelled:
            raise
        except BaseException as error:  # noqa: BLE001 - the call guard: a handler's crash stops here
            pass_on_interrupt(error)
            failed = failure(error, self._describe(method, params))
            if type(error) is LoneSurrogate and route.failed is not None:
                return self.answer(route.failed(failed.message), finish)
            return failed

    def _describe(self, method: str, params: dict[str, Any]) -> str:
        """Return a request as an error names it: its method, and the tool, prompt or resource that it is about."""
        named_by = self.routes[method].named_by
        name = None if named_by is None else params.get(named_by)
        if type(name) is dict:
            name = name.get("name", name.get("uri"))
        return f"{method} {name[:200]!r}" if type(name) is str else method

    def run_inline(self, method: str, params: dict[str, Any], ctx: Any, finish: Finish | None = None) -> Outcome:
        """Run a handler that never waits, see `run`."""
        try:
            route = self.routes[method]
            typed = params if route.params is None else structure(params, route.params)
            return self.answer(route.handler(ctx, typed), finish)
        except BaseException as error:  # noqa: BLE001 - the call guard
            return failure(error, method)

    def answer(self, result: Any, finish: Finish | None) -> Answered:
        """Encode a result.

        Raises:
            MCPError: it is too large.
            TypeError, ValueError: it has no JSON form.
        """
        is_error = False
        if type(result) is not msgspec.Raw:
            wire = result if type(result) is dict else {} if result is None else unstructure(result)
            if finish is not None and type(wire) is dict:
                wire = finish(wire)
            is_error = type(wire) is dict and wire.get("isError") is True
            result = msgspec.Raw(encode_value(wire))
        if len(result) > self.max_reply:
            raise MCPError(INTERNAL_ERROR, f"the answer is larger than {self.max_reply} bytes")
        return Answered(result, is_error)


def _wrap(middleware: Middleware, call_next: CallNext) -> CallNext:
    async def call(ctx: Any, request: Incoming) -> Any:
        return await middleware(ctx, request, call_next)

    return call


def failure(error: BaseException, what: str) -> Failed:
    """Return the error that the peer sees for an exception. The text of an unexpected exception is only logged.

    `what` is the method of the request, perhaps with the name of what it is about.
    """
    match error:
        case BaseExceptionGroup():
            cancelled, rest = error.split(trio.Cancelled)
            try:
                if rest is None:
                    raise error
                if cancelled is not None:
                    logger.error("%s failed while it was cancelled", what, exc_info=rest)
                    raise cancelled
            finally:
                del error, cancelled  # their traceback has this frame: a cycle would wait for the garbage collector
            leaves = list(_leaves(rest))
            if len(leaves) == 1:
                return failure(leaves[0], what)
            logger.error("%s failed", what, exc_info=rest)
            return Failed(INTERNAL_ERROR, "internal error")
        case MCPError(code=code, message=message, data=data):
            return Failed(code, message, _sendable(data, what))
        case RemoteProtocolError(code=code, message=message, data=data, http_status=status):
            return Failed(code, message, data, status)
        case StructureError():
            return Failed(INVALID_PARAMS, "; ".join(error.faults) or "invalid params")
        case CapabilityMissing(required=required):
            data = {"requiredCapabilities": required} if required else None
            return Failed(MISSING_CLIENT_CAPABILITY, str(error), data)
        case Overloaded(retry_after=seconds, limit=limit, http_status=status):
            data = {"retryAfter": seconds} if limit is None else {"retryAfter": seconds, "limit": limit}
            return Failed(INTERNAL_ERROR, f"overloaded: {error}", data, status)
        case LoneSurrogate():
            logger.error("%s failed", what, exc_info=error)
            return Failed(INTERNAL_ERROR, f"{what} failed: {error.reason}")
        case RequestTimeout() | LocalProtocolError():
            return Failed(INTERNAL_ERROR, str(error))
        case _:
            logger.error("%s failed%s", what, asyncio_hint(error), exc_info=error)
            return Failed(INTERNAL_ERROR, "internal error")


def asyncio_hint(error: BaseException) -> str:
    """Return a hint for the log if a handler awaited an asyncio library outside of asyncio."""
    no_loop = isinstance(error, RuntimeError) and "no running event loop" in str(error)
    if not no_loop and not (isinstance(error, TypeError) and "unrecognized yield message" in str(error)):
        return ""
    return (
        ': it awaited an asyncio library, and handlers run on Trio. Declare it with runs="asyncio", as in '
        '`@server.tool(runs="asyncio")`, or use a library for Trio or anyio'
    )


def foreign_cancelled(error: BaseException, what: str) -> Failed:
    """Log a `Cancelled` that belongs to another task, and return the error that the peer sees."""
    logger.error("%s raised a Cancelled that belongs to another task", what, exc_info=error)
    return Failed(INTERNAL_ERROR, "internal error")


def pass_on_interrupt(error: BaseException) -> None:
    """Deliver a Ctrl-C that was raised in a child task of a handler to the main task, as Trio would have done."""
    if isinstance(error, BaseExceptionGroup) and error.subgroup(KeyboardInterrupt) is not None:
        signal.raise_signal(signal.SIGINT)


def _sendable(data: Any, what: str) -> Any:
    try:
        encode_value(data)
    except (TypeError, ValueError, RecursionError):
        logger.exception("the data of the error that %s raised has no JSON form and is left out", what)
        return None
    return data


def _leaves(group: BaseExceptionGroup[Any]) -> Iterator[BaseException]:
    for member in group.exceptions:
        if isinstance(member, BaseExceptionGroup):
            yield from _leaves(member)
        else:
            yield member
