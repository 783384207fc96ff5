"""A server as a program of its own: logging, signals, the exit timer, and the error line for an unusable address."""

from __future__ import annotations

import _thread
import errno
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from socket import gaierror, socket
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import trio

from mcptrio._eras.choose import Served
from mcptrio.auth.request_state import KeyRing
from mcptrio.errors import DeclarationError
from mcptrio.server.features.scopes import UNSET

if TYPE_CHECKING:
    from mcptrio.server.app import App
    from mcptrio.server.options import Auth
    from mcptrio.stores import Store
    from mcptrio.transports.http_server.config import HttpConfig
    from mcptrio.transports.http_server.listener.sockets import BoundAddress

logger = logging.getLogger("mcptrio.serving")

_AT_TERMINAL: Final = """\
mcptrio: waiting for a host to talk MCP on standard input; Ctrl-D ends it.
mcptrio: try it instead: mcptrio inspect {file}      serve it: mcptrio run {file} --transport http"""

EXIT_STUCK: Final = 75
"""The exit code when the server could not be stopped in time (EX_TEMPFAIL)."""
_EXIT_AFTER: Final = 0.9  # seconds after the drain timeout; the process ends within one second of it


def run(
    app: App,
    transport: str,
    *,
    auth: Auth | None = UNSET,
    store: str | Store | None = None,
    protocols: Iterable[str] | None = None,
    state_keys: Iterable[str] | None = None,
    drain_timeout: float = 25.0,
    fds: tuple[int, int] | None = None,
    sockets: Sequence[socket] | None = None,
    **settings: Any,
) -> None:
    """Serve until the client closes standard input (stdio) or a signal arrives.

    Raises:
        DeclarationError: the arguments or settings cannot be used.
        SystemExit: the address cannot be used; one line on stderr says why.
    """
    check_transport(transport)
    if trio.lowlevel.in_trio_run():
        raise DeclarationError(
            "server.run() starts Trio, which runs already: write `await nursery.start(server.serve_http)`, "
            "or `await server.serve_stdio()`"
        )
    http = None if transport == "stdio" else _http_config(transport, drain_timeout, settings)
    if http is None and (settings or auth is not UNSET):
        option = next(iter(settings), "auth")
        raise DeclarationError(f'{option}= is a setting of HTTP: write server.run("http", {option}=...)')
    if transport == "stdio" and fds is None:
        greet(sys.argv[0])
    if protocols is not None:
        app.eras = Served.only(protocols)
    if state_keys is not None:
        app.state_keys = KeyRing.from_texts(state_keys)
    if isinstance(store, str):
        from mcptrio.stores import open_store

        store = open_store(store)
    _log(app)
    try:
        if http is None:
            trio.run(_serve_stdio, app, store, fds, drain_timeout)
        else:
            path = http.sse_path if transport == "sse" else http.path
            trio.run(_serve_http, app, http, auth, store, sockets, path)
    except _CannotListen as error:
        print(f"mcptrio: {error}", file=sys.stderr)
        raise SystemExit(1) from None


def check_transport(transport: str) -> None:
    """Raise `DeclarationError` for a transport that does not exist."""
    if transport not in ("stdio", "http", "sse"):
        from mcptrio._hints import unknown_transport

        raise DeclarationError(unknown_transport(transport))


def _http_config(transport: str, drain_timeout: float, settings: dict[str, Any]) -> HttpConfig:
    from mcptrio.server.serve import http_config

    legacy_sse = transport == "sse" or settings.get("legacy_sse", False)
    return http_config(None, {**settings, "drain_timeout": drain_timeout, "legacy_sse": legacy_sse})


async def _serve_stdio(app: App, store: Store | None, fds: tuple[int, int] | None, drain_timeout: float) -> None:
    from mcptrio.server.serve import serve_stdio

    program = Program(app.info.name, drain_timeout)
    with program.handling_signals():
        await serve_stdio(app, store=store, fds=fds, drain_timeout=drain_timeout, program=program)


async def _serve_http(
    app: App,
    http: HttpConfig,
    auth: Auth | None,
    store: Store | None,
    sockets: Sequence[socket] | None,
    path: str,
) -> None:
    from mcptrio.server.serve import serve_http

    program = Program(app.info.name, http.drain_timeout, path)
    with program.handling_signals():
        await serve_http(app, http, auth=auth, store=store, sockets=sockets, program=program)


def _log(app: App) -> None:
    """Log to stderr, unless the program has configured logging; log events, unless the program does it."""
    from mcptrio.telemetry.log import LogListener, set_up_logging

    set_up_logging("info", "text")
    if not any(isinstance(listener, LogListener) for listener in app.telemetry.listeners):
        app.telemetry.add(LogListener())


def greet(file: str) -> None:
    """Explain to a user at a terminal why nothing happens: hosts connect through a pipe."""
    if sys.stdin is not None and sys.stdin.isatty():
        print(_AT_TERMINAL.format(file=file), file=sys.stderr)


class _CannotListen(Exception):
    """The address cannot be used; the text is one line that says what to change."""


class Program:
    """The process of a server that was started with `run()`: its signals and its end.

    The first SIGTERM or SIGINT sets `stop` and starts the exit timer, in every phase: while the server starts, serves
    or ends. The second one sets `hurry`. Both work while the event loop is blocked, as long as Python code runs.
    """

    def __init__(self, name: str, drain_timeout: float, path: str = "") -> None:
        self.name = name
        self.path = path
        self.stop = trio.Event()
        """Set when the server has to stop."""
        self.hurry = trio.Event()
        """Set when it must no longer wait for running calls."""
        self._exit_after = drain_timeout + _EXIT_AFTER
        self._signals = 0
        self._ended = False

    @contextmanager
    def handling_signals(self) -> Iterator[None]:
        """Handle SIGTERM and SIGINT; only the main thread of a process can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        token = trio.lowlevel.current_trio_token()

        def on_signal(number: int, frame: FrameType | None) -> None:
            self._signals += 1
            if self._signals == 1:
                # Not `threading.Timer`: its start takes a lock that the interrupted code may hold.
                _thread.start_new_thread(self._exit_in_time, ())
                token.run_sync_soon(self.stop.set)
            elif self._signals == 2:
                token.run_sync_soon(self._hurry)

        # On Windows a process cannot handle SIGTERM.
        numbers = [signal.SIGINT] if sys.platform == "win32" else [signal.SIGINT, signal.SIGTERM]
        before = {number: signal.signal(number, on_signal) for number in numbers}
        try:
            yield
        finally:
            self._ended = True
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hurry(self) -> None:
        logger.warning("second signal: running calls are cancelled now")
        self.hurry.set()

    def _exit_in_time(self) -> None:
        time.sleep(self._exit_after)
        if self._ended:
            return
        import faulthandler

        os.write(2, b"mcptrio: the server did not stop in time; exiting. Stacks of all threads:\n")
        faulthandler.dump_traceback(file=2)
        os._exit(EXIT_STUCK)

    def leave(self) -> None:
        """End the process now, because a handler that cannot be stopped would block its exit."""
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(EXIT_STUCK if self._signals else 0)

    def announce(self, bound: Sequence[BoundAddress]) -> None:
        for address in bound:
            logger.info("%s is served at %s%s", self.name, address.url, self.path)

    def explain(self, error: OSError, where: HttpConfig) -> Exception:
        """Return the exception for an address that cannot be used; its text says what to change."""
        text = error.strerror or str(error)
        if where.unix_path is not None:
            return _CannotListen(f"cannot listen on {where.unix_path}: {text}")
        if error.errno == errno.EADDRINUSE:
            return _CannotListen(f"{text}; choose another port (--port, port=), or any free one with 0")
        if error.errno == errno.EADDRNOTAVAIL or isinstance(error, gaierror):
            return _CannotListen(
                f"cannot listen on {where.host}: {text}; --host (host=) must be an address of this machine"
            )
        return _CannotListen(text)
