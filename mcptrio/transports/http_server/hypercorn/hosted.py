"""The ASGI application for servers and frameworks of others: on Trio as it is, on asyncio with Trio as a guest.

app = server.asgi()
FastAPI(lifespan=app.lifespan)           # frameworks do not run the lifespan of a mounted application
"""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

import trio

from mcptrio._actors.runtime import Runtime
from mcptrio.errors import DeclarationError, LocalProtocolError
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.endpoint.message import Authenticator
from mcptrio.transports.http_server.hypercorn.asgi import NOT_OPEN, AsgiApp, Receive, Scope, Send

if TYPE_CHECKING:
    from mcptrio._bridge.guest import Guest

logger = logging.getLogger("mcptrio.http")

_OPEN_TWICE: Final = (
    "this application is open already: enter `app.lifespan()` once, either in the lifespan of the application that "
    "mounts it or by an ASGI server that sends it lifespan events; call server.asgi() again for a second application"
)
_NOT_TRIO: Final = (
    "app.open() needs Trio, and no Trio task runs here: in an asyncio application pass the lifespan on, "
    "`FastAPI(lifespan=app.lifespan)`, or write `async with app.lifespan(): yield` in a lifespan of your own"
)
_ELSEWHERE: Final = (
    "the lifespan of this MCP application runs in another event loop, or its Trio run has failed (see the log): "
    "send requests in the event loop that runs the lifespan"
)
_END: Final = 1.5  # seconds after the drain timeout, after which handlers that cannot be stopped are left behind
_LOOK: Final = 0.1  # seconds between two looks at uvicorn's state


class HostedApp(AsgiApp):
    """An MCP endpoint as an ASGI application, which runs under Trio and under asyncio.

    Its sessions live in its lifespan. An ASGI server runs that itself; if the application is mounted in another one,
    pass `lifespan` on.
    """

    def __init__(
        self,
        make_runtime: Callable[[], Runtime],
        config: HttpConfig | None = None,
        *,
        authenticator: Authenticator | None = None,
        open_scopes: bool = True,
        metrics: Callable[[], str] | None = None,
        join: Callable[[Endpoint], AbstractAsyncContextManager[object]] | None = None,
    ) -> None:
        """`join` lets the endpoint serve together with other processes."""
        super().__init__(None, config)
        self._join = join or (lambda endpoint: nullcontext())
        self._make_runtime = make_runtime
        self._authenticator = authenticator
        self._open_scopes = open_scopes
        self._metrics = metrics
        self._is_open = False
        self._guest: Guest | None = None
        self._explained = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Endpoint]:
        """Run the application in a Trio program, and drain it at the end.

        Raises:
            LocalProtocolError: the application is open already.
            DeclarationError: Trio does not run here.
        """
        if not trio.lowlevel.in_trio_task():
            raise DeclarationError(_NOT_TRIO)
        if self._is_open:
            raise LocalProtocolError(_OPEN_TWICE)
        self._is_open = True
        try:
            async with self._make_runtime().open() as runtime:
                self.endpoint = Endpoint(runtime, self.config, self._metrics, self._authenticator, self._open_scopes)
                try:
                    async with self._join(self.endpoint):
                        yield self.endpoint
                        await runtime.drain(self.config.drain_timeout)
                finally:
                    self.endpoint = None
                    close = getattr(self._authenticator, "close", None)
                    if close is not None:
                        await close()
        finally:
            self._is_open = False

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncIterator[None]:
        """Run the application, and drain it at the end: `FastAPI(lifespan=app.lifespan)`.

        Works on Trio and on asyncio. `app` is the application that mounts this one, and is not used.

        Raises:
            LocalProtocolError: the application is open already.
        """
        if trio.lowlevel.in_trio_task():
            async with self.open():
                yield
            return
        from mcptrio._bridge.guest import open_guest
        from mcptrio._bridge.to_trio import held

        timeout = self.config.drain_timeout + _END
        async with open_guest() as guest, held(guest.way, guest.nursery, self.open(), timeout=timeout) as endpoint:
            self._guest = guest
            try:
                async with _draining_early(guest, endpoint):
                    yield
            finally:
                self._guest = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif trio.lowlevel.in_trio_task():
            await super().__call__(scope, receive, send)
        elif self._guest is None:
            await self._refuse_all(NOT_OPEN, scope, receive, send)
        elif not trio.lowlevel.in_trio_run():
            await self._refuse_all(_ELSEWHERE, scope, receive, send)
        else:
            from mcptrio.transports.http_server.hypercorn.asyncio_request import AsyncioRequest

            request = AsyncioRequest(self._guest, receive, send, write_timeout=self.config.write_timeout)
            await request.serve(super().__call__, scope)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        started = False
        try:
            async with self.lifespan():
                started = True
                await send({"type": "lifespan.startup.complete"})
                await receive()
        except Exception as error:
            kind = "shutdown" if started else "startup"
            logger.exception("the application failed at %s", kind)
            await send({"type": f"lifespan.{kind}.failed", "message": str(error)})
            return
        await send({"type": "lifespan.shutdown.complete"})

    async def _refuse_all(self, reason: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse every request, because the lifespan does not run, or not here."""
        if not self._explained:
            self._explained = True
            logger.error("%s", reason)
        await self.refuse_unopened(reason, scope, receive, send)


@asynccontextmanager
async def _draining_early(guest: Guest, endpoint: Endpoint) -> AsyncIterator[None]:
    """Under uvicorn, drain as soon as it begins to shut down.

    It ends the lifespan only when the last connection has closed, which an open stream would not do by itself.
    """
    server = _uvicorn_server()
    if server is None:
        yield
        return
    import asyncio

    from mcptrio._bridge.to_trio import TrioCall

    async def drain() -> None:
        while not server.should_exit:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(_LOOK)
        await TrioCall(guest.way, guest.nursery, endpoint.runtime.drain, endpoint.config.drain_timeout).wait()

    task = asyncio.ensure_future(drain())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


def _uvicorn_server() -> Any:
    """Return the `uvicorn.Server` of this process, which is the owner of its signal handlers; None without one."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    is_uvicorn = any(cls.__module__ == "uvicorn.server" for cls in type(server).__mro__)
    return server if is_uvicorn and hasattr(server, "should_exit") else None
