"""Putting a server on a transport: the runtime, the transport, signals, and the order in which it all ends."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import attrs
import trio

from mcptrio._actors.runtime import Runtime
from mcptrio._eras.choose import Served
from mcptrio._wire.request_state import KeyRing
from mcptrio.errors import DeclarationError
from mcptrio.server.agreeing import check_http
from mcptrio.server.features.scopes import UNSET

if TYPE_CHECKING:
    from mcptrio.auth.server import BearerAuth, ClientCertificates, StaticTokens
    from mcptrio.server.server import Server
    from mcptrio.stores import Store
    from mcptrio.transports.http_server.config import HttpConfig
    from mcptrio.transports.http_server.message import Authenticator
    from mcptrio.transports.http_server.serve import ListenerConfig

    Auth = BearerAuth | StaticTokens | ClientCertificates | Authenticator

logger = logging.getLogger("mcptrio.serving")

_AT_TERMINAL: Final = """\
mcptrio: waiting for a host to talk MCP on standard input; Ctrl-D ends it.
mcptrio: try it instead: mcptrio inspect {file}      serve it: mcptrio run {file} --transport http"""

EXIT_STUCK = 75
"""The exit code when handlers could not be ended and were left behind (EX_TEMPFAIL)."""


# -- inside a Trio program


async def serve_stdio(
    server: Server,
    *,
    store: Store | None = None,
    fds: tuple[int, int] | None = None,
    stop: Stop | None = None,
    drain_timeout: float = 25.0,
) -> int:
    """Serve one client over standard input and output; returns how many handlers were left behind."""
    from mcptrio.transports import stdio

    left = 0
    async with server.make_runtime(store).open() as runtime, trio.open_nursery() as nursery:
        if stop is not None:
            nursery.start_soon(_stop_pipe, stop, runtime, nursery.cancel_scope, drain_timeout)
        stdin_fd, stdout_fd = fds if fds is not None else (None, None)
        left = await stdio.serve_stdio(runtime, stdin_fd=stdin_fd, stdout_fd=stdout_fd)
        if left and stop is not None:
            stop.exit_now(EXIT_STUCK if stop.requested else 0)
        nursery.cancel_scope.cancel()
    return left


async def _stop_pipe(stop: Stop, runtime: Runtime, scope: trio.CancelScope, drain_timeout: float) -> None:
    await stop.wait()
    stop.exit_later(drain_timeout)
    await stop.drain(runtime, drain_timeout)
    scope.cancel()


async def serve_http(
    server: Server,
    config: HttpConfig | None,
    settings: Mapping[str, Any],
    *,
    auth: Auth | None = UNSET,
    store: Store | None = None,
    stop: Stop | None = None,
    on_ready: Callable[[list[Any]], None] | None = None,
    task_status: trio.TaskStatus[Any] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve Streamable HTTP until cancelled or told to stop."""
    import mcptrio._wire.generated  # noqa: F401 - it takes a moment, and not one in which others wait for answers
    from mcptrio.server.measuring import measure
    from mcptrio.telemetry.metrics import Metrics
    from mcptrio.transports.http_server.answer import Endpoint
    from mcptrio.transports.http_server.app import AsgiApp
    from mcptrio.transports.http_server.listener import Listener
    from mcptrio.transports.http_server.report import report_to
    from mcptrio.transports.http_server.serve import shut_down

    http, listening = _configs(config, settings)
    check_http(http, listening, server.session_limits, store, auth)
    authenticator = _authenticator(server, auth, listening)
    metrics = Metrics(route.method for route in server.router)
    async with measure(server.make_runtime(store), metrics).open() as runtime, _closing(authenticator):
        endpoint = Endpoint(runtime, http, metrics.text, authenticator, open_scopes=auth is None)
        listener = Listener(
            AsgiApp(endpoint),
            listening,
            express=endpoint if listening.lane == "express" else None,
            on_event=report_to(runtime.hub),
        )
        metrics.look_at(connections_open=lambda: listener.connections)
        async with trio.open_nursery() as nursery:
            bound = await nursery.start(listener.serve)
            task_status.started(bound)
            if on_ready is not None:
                on_ready(bound)
            if stop is None:
                await trio.sleep_forever()
            else:
                nursery.start_soon(_reload_on_hangup, listener)
                await stop.wait()
                stop.exit_later(listening.drain_timeout)

                async def drain(_: float) -> None:
                    await stop.drain(runtime, listening.drain_timeout)

                # Past the grace there is half a second to tell those who did not finish.
                await shut_down(listener, drain, timeout=listening.drain_timeout + 0.5)
            nursery.cancel_scope.cancel()


async def _reload_on_hangup(listener: Any) -> None:
    if not hasattr(signal, "SIGHUP"):
        return
    with trio.open_signal_receiver(signal.SIGHUP) as signals:
        async for _ in signals:
            try:
                listener.reload_certificates()
                logger.info("certificates read again")
            except DeclarationError as error:
                logger.error("%s; the old certificates stay in use", error)


def asgi(
    server: Server,
    config: HttpConfig | None,
    settings: Mapping[str, Any],
    *,
    auth: Auth | None = UNSET,
    store: Store | None = None,
) -> Callable[..., Awaitable[None]]:
    from mcptrio.server.measuring import measure
    from mcptrio.telemetry.metrics import Metrics
    from mcptrio.transports.http_server.app import asgi_app

    http, listening = _configs(config, settings)
    check_http(http, listening, server.session_limits, store, auth)
    metrics = Metrics(route.method for route in server.router)
    return asgi_app(
        lambda: measure(server.make_runtime(store), metrics),
        http,
        authenticator=_authenticator(server, auth, None),
        open_scopes=auth is None,
        metrics=metrics.text,
    )


def _authenticator(server: Server, auth: Auth | None, listening: ListenerConfig | None) -> Authenticator | None:
    """Who checks the callers.

    Raises:
        DeclarationError: scopes are declared, and nothing says who has them.
    """
    if auth is UNSET or auth is None:
        scopes = sorted(server.all_scopes())
        if auth is UNSET and scopes:
            raise DeclarationError(
                f"{server.info.name!r} declares scopes ({', '.join(scopes)}), but nobody is authenticated: pass auth=, "
                "for example auth=BearerAuth(...), or auth=None to let everybody use everything; "
                "on the command line, --token-file FILE"
            )
        return None
    from mcptrio.auth.server import BearerAuth, ClientCertificates, StaticTokens

    if not isinstance(auth, BearerAuth | StaticTokens | ClientCertificates):
        if not callable(auth):
            raise DeclarationError(f"auth= takes a BearerAuth, StaticTokens or ClientCertificates, not {auth!r:.80}")
        return auth
    if isinstance(auth, ClientCertificates) and listening is not None and listening.client_ca is None:
        raise DeclarationError("ClientCertificates needs client_ca=, the authorities whose certificates are believed")
    from mcptrio.transports.http_server.authorize import Authorizer

    return Authorizer(auth)


@asynccontextmanager
async def _closing(authenticator: Authenticator | None) -> AsyncIterator[None]:
    try:
        yield
    finally:
        close = getattr(authenticator, "close", None)
        if close is not None:
            await close()


def _configs(config: HttpConfig | None, settings: Mapping[str, Any]) -> tuple[HttpConfig, ListenerConfig]:
    """Sort settings into the two places they belong to; some belong to both."""
    from mcptrio.transports.http_server.config import HttpConfig
    from mcptrio.transports.http_server.serve import ListenerConfig

    of_http = {f.name for f in attrs.fields(HttpConfig)}
    of_listener = {f.name for f in attrs.fields(ListenerConfig)}
    unknown = sorted(set(settings) - of_http - of_listener)
    if unknown:
        from difflib import get_close_matches

        near = get_close_matches(unknown[0], of_http | of_listener, n=1)
        hint = f"; did you mean {near[0]}?" if near else "; HttpConfig and ListenerConfig list them all"
        raise DeclarationError(f"unknown HTTP setting {', '.join(unknown)}{hint}")
    if config is None:
        config = HttpConfig(**{key: value for key, value in settings.items() if key in of_http})
    shared = {name: getattr(config, name) for name in of_http & of_listener}
    given = {key: value for key, value in settings.items() if key in of_listener}
    return config, ListenerConfig(**{**shared, **given})


# -- as a program of its own


class Stop:
    """A wish to end, by a signal; a second one shortens the drain to nothing."""

    def __init__(self) -> None:
        self._event = trio.Event()
        self._runtime: Runtime | None = None
        self._timer: threading.Timer | None = None
        self.requested = False

    async def wait(self) -> None:
        await self._event.wait()

    async def listen(self) -> None:
        """Turn SIGTERM and SIGINT into the wish to end."""
        numbers = [signal.SIGINT, signal.SIGTERM] if sys.platform != "win32" else [signal.SIGINT]
        with trio.open_signal_receiver(*numbers) as signals:
            async for _ in signals:
                if not self.requested:
                    self.requested = True
                    self._event.set()
                elif self._runtime is not None:
                    logger.warning("told to stop again: not waiting for running calls any longer")
                    self._runtime.supervisor.hurry()

    async def drain(self, runtime: Runtime, grace: float) -> None:
        """Drain the runtime; a second signal ends the waiting."""
        self._runtime = runtime
        await runtime.drain(grace)

    def exit_later(self, grace: float) -> None:
        """Leave without what cannot be ended: a thread waits, since the event loop itself may be blocked."""
        self._timer = threading.Timer(grace + 0.9, self._give_up)
        self._timer.daemon = True
        self._timer.start()

    def _give_up(self) -> None:
        import faulthandler

        os.write(2, b"mcptrio: handlers ignore their cancellation; leaving without them. Stacks of all threads:\n")
        faulthandler.dump_traceback(file=2)
        os._exit(EXIT_STUCK)

    def exit_now(self, code: int) -> None:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(code)

    def done(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def greet(file: str) -> None:
    """Tell a person at a terminal why nothing happens: hosts come with a pipe."""
    if sys.stdin is not None and sys.stdin.isatty():
        print(_AT_TERMINAL.format(file=file), file=sys.stderr)


def run(
    server: Server,
    transport: str,
    *,
    auth: Auth | None = UNSET,
    store: str | Store | None = None,
    protocols: list[str] | None = None,
    state_keys: Iterable[str] | None = None,
    drain_timeout: float = 25.0,
    fds: tuple[int, int] | None = None,
    **settings: Any,
) -> None:
    """Serve until the client hangs up (stdio) or a signal arrives."""
    if transport not in ("stdio", "http", "sse"):
        raise DeclarationError(f"unknown transport {transport!r}: use stdio, http or sse")
    if trio.lowlevel.in_trio_run():
        raise DeclarationError(
            "server.run() starts Trio, which runs already: write `await nursery.start(server.serve_http)`, "
            "or `await server.serve_stdio()`"
        )
    if transport == "stdio" and fds is None:
        greet(sys.argv[0])
    if protocols is not None:
        server.eras = Served.only(protocols)
    if state_keys is not None:
        server.state_keys = KeyRing.from_texts(state_keys)
    if isinstance(store, str):
        from mcptrio.stores import open_store

        store = open_store(store)

    async def main() -> None:
        stop = Stop()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop.listen)
            if transport == "stdio":
                await serve_stdio(server, store=store, fds=fds, stop=stop, drain_timeout=drain_timeout)
            else:
                given = {**settings, "drain_timeout": drain_timeout}
                if transport == "sse":
                    given["legacy_sse"] = True
                path = given.get("sse_path", "/sse") if transport == "sse" else given.get("path", "/mcp")
                await serve_http(
                    server,
                    None,
                    given,
                    auth=auth,
                    store=store,
                    stop=stop,
                    on_ready=lambda bound: _announce(server, bound, path),
                )
            nursery.cancel_scope.cancel()
        stop.done()

    try:
        trio.run(main)
    except BaseExceptionGroup as group:
        raise _only(group) from None


def _only(error: BaseException) -> BaseException:
    """The one exception in a group of groups: whoever runs a server knows nothing of the nurseries inside."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _announce(server: Server, bound: list[Any], path: str) -> None:
    for address in bound:
        logger.info("%s is served at %s%s", server.info.name, address.url, path)
        if not logger.hasHandlers():  # a plain program, whose author still wants to know
            print(f"{server.info.name} is served at {address.url}{path}", file=sys.stderr)
