"""The routing table, and the guard around every handler that it runs.

Spec methods are rows; so are methods of the user's own. The table is the same class for both roles, refuses duplicates
and is frozen when serving begins.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import trio
from msgspec import Struct, field
from msgspec.structs import replace

from mcptrio._peer.messages import Answered, Failed, Outcome
from mcptrio._struct import Entity
from mcptrio._wire.converter import StructureError, structure, unstructure
from mcptrio._wire.jsonrpc import encode_value
from mcptrio.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_CLIENT_CAPABILITY,
    CapabilityMissing,
    DeclarationError,
    LocalProtocolError,
    McpError,
    Overloaded,
    RemoteProtocolError,
    RequestTimeout,
)

if TYPE_CHECKING:
    from mcptrio._actors.incoming import Incoming

logger = logging.getLogger("mcptrio.call")

Handler = Callable[..., Any]
CallNext = Callable[[Any, Any], Awaitable[Any]]
Middleware = Callable[[Any, "Incoming", CallNext], Awaitable[Any]]


class Route(Struct, frozen=True):
    """One row: a method, what its parameters become, who handles them."""

    method: str
    params: type | str | None
    """A class, or the name of one of `mcptrio.types`. None: the handler gets the JSON object as it came."""
    handler: Handler
    """`async def handler(ctx, params)`, or a plain function when `inline`."""
    inline: bool = False
    """Runs in the session's own loop: only for handlers of the runtime that never wait."""
    builtin: bool = False
    """May be replaced once by a user's row."""
    long: bool = False
    """Waits for things to happen rather than working: it takes no place from others."""
    quick: Callable[[dict[str, Any]], Any] | None = None
    """Reads parameters of the usual shape; None for any other, which is read, and checked, in full."""


class Router(Entity):
    """Method -> route."""

    max_reply: int = 16 * 1024 * 1024
    finish: Callable[[dict[str, Any], Any], dict[str, Any]] | None = None
    """Completes a result before it is encoded: `finish(wire, ctx)`."""
    _routes: dict[str, Route] = field(default_factory=dict)
    _middleware: list[Middleware] = field(default_factory=list)
    _frozen: bool = False
    _chain: CallNext | None = None

    def add(self, route: Route) -> None:
        """Put a row into the table.

        Raises:
            DeclarationError: the method has a row already, or serving has begun.
        """
        self._check_open(f"a route for {route.method!r}")
        there = self._routes.get(route.method)
        if there is not None and not there.builtin:
            raise DeclarationError(f"there is a route for {route.method!r} already; remove one of the two")
        self._routes[route.method] = route

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
        """Serving begins: the table stays as it is."""
        if self._frozen:
            return
        self._frozen = True
        if self._middleware:
            chain: CallNext = self._call_route
            for middleware in reversed(self._middleware):
                chain = _wrap(middleware, chain)
            self._chain = chain

    @property
    def methods(self) -> Container[str]:
        return self._routes.keys()

    def __contains__(self, method: object) -> bool:
        return method in self._routes

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes.values())

    def __getitem__(self, method: str) -> Route:
        return self._routes[method]

    def is_inline(self, route: Route) -> bool:
        return route.inline and self._chain is None

    async def _call_route(self, ctx: Any, request: Incoming) -> Any:
        route = self._routes[request.method]
        result = route.handler(ctx, request.params)
        return result if route.inline else await result

    # -- the call guard

    async def run(self, method: str, params: dict[str, Any], ctx: Any) -> Outcome:
        """Run the handler for `method`. Whatever it raises, save `Cancelled`, becomes an outcome."""
        try:
            route = self._routes[method]
            typed = None if route.quick is None else route.quick(params)
            if typed is None:
                typed = params if route.params is None else structure(params, route.params)
            if self._chain is not None:
                from mcptrio._actors.incoming import Incoming  # only where there is middleware

                result = await self._chain(ctx, Incoming(method, typed))
            elif route.inline:
                result = route.handler(ctx, typed)
            else:
                result = await route.handler(ctx, typed)
            if type(result) is dict and (self._chain is not None or not route.builtin):
                result = {**result}  # it is completed below, and may be something that the user keeps
            return self._answer(result, ctx)
        except trio.Cancelled:
            raise
        except BaseException as error:  # noqa: BLE001 - the call guard: a handler's crash stops here
            return failure(error, method)

    def run_inline(self, method: str, params: dict[str, Any], ctx: Any) -> Outcome:
        """The same for a handler that never waits."""
        try:
            route = self._routes[method]
            typed = params if route.params is None else structure(params, route.params)
            return self._answer(route.handler(ctx, typed), ctx)
        except BaseException as error:  # noqa: BLE001 - the call guard
            return failure(error, method)

    def _answer(self, result: Any, ctx: Any) -> Outcome:
        if type(result) is not msgspec.Raw:
            wire = result if type(result) is dict else {} if result is None else unstructure(result)
            if self.finish is not None and type(wire) is dict:
                wire = self.finish(wire, ctx)
            result = msgspec.Raw(encode_value(wire))
        if len(result) > self.max_reply:
            raise McpError(INTERNAL_ERROR, f"the answer is larger than {self.max_reply} bytes")
        return Answered(result)


def _wrap(middleware: Middleware, call_next: CallNext) -> CallNext:
    async def call(ctx: Any, request: Incoming) -> Any:
        return await middleware(ctx, request, call_next)

    return call


def failure(error: BaseException, method: str) -> Failed:
    """What the peer sees of an exception. Texts of exceptions that were not meant for it stay here, in the log."""
    match error:
        case BaseExceptionGroup():
            cancelled, rest = error.split(trio.Cancelled)
            if rest is None:
                raise error
            if cancelled is not None:
                logger.error("%s failed while it was cancelled", method, exc_info=rest)
                raise cancelled
            leaves = list(_leaves(rest))
            if len(leaves) == 1:
                return failure(leaves[0], method)
            logger.error("%s failed", method, exc_info=rest)
            return Failed(INTERNAL_ERROR, "internal error")
        case McpError(code=code, message=message, data=data):
            return Failed(code, message, _sendable(data, method))
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
        case RequestTimeout() | LocalProtocolError():
            return Failed(INTERNAL_ERROR, str(error))
        case _:
            logger.error("%s failed", method, exc_info=error)
            return Failed(INTERNAL_ERROR, "internal error")


def _sendable(data: Any, method: str) -> Any:
    try:
        encode_value(data)
    except (TypeError, ValueError, RecursionError):
        logger.exception("the data of the error that %s raised has no JSON form and is left out", method)
        return None
    return data


def _leaves(group: BaseExceptionGroup[Any]) -> Iterator[BaseException]:
    for member in group.exceptions:
        if isinstance(member, BaseExceptionGroup):
            yield from _leaves(member)
        else:
            yield member
