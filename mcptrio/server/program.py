"""A server as a program of its own: logging, signals, the exit timer, and the error line for an unusable address."""

from __future__ import annotations

import _thread
import errno
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from socket import gaierror, socket
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from mcptrio._eras.choose import Served
from mcptrio._wire.jsonrpc import DEFAULT_LIMITS, JsonLimits
from mcptrio.auth.request_state import KeyRing
from mcptrio.errors import DeclarationError
from mcptrio.server.checks import check_pipe, chosen_store
from mcptrio.server.features.scopes import UNSET

if TYPE_CHECKING:
    from mcptrio.cluster.config import ClusterConfig
    from mcptrio.server.app import App
    from mcptrio.server.options import Auth
    from mcptrio.stores import Store
    from mcptrio.telemetry.metrics import Metrics
    from mcptrio.transports.http_server.config import HttpConfig
    from mcptrio.transports.http_server.listener.sockets import BoundAddress

logger = logging.getLogger("mcptrio.serving")

_AT_TERMINAL: Final = """\
mcptrio: waiting for a host to talk MCP on standard input; Ctrl-D ends it.
mcptrio: try it instead: mcptrio inspect {file}      serve it: mcptrio run {file} --transport http"""

EXIT_STUCK: Final = 75
"""The exit code when the server could not be stopped in time (EX_TEMPFAIL)."""
_DEFAULT_FULL: Final = 10
_RARE_FULL: Final = 100
"""Collections of the middle generation for each full one; Python's own default is 10."""
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
    cluster: ClusterConfig | None = None,
    parent: ParentLink | None = None,
    **settings: Any,
) -> None:
    """Serve until the client closes standard input (stdio) or a signal arrives.

    `parent` connects a worker to its parent process.

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
    http = None if transport == "stdio" else http_settings(transport, drain_timeout, settings)
    json_limits = settings.pop("json_limits", DEFAULT_LIMITS)
    if http is None and (settings or auth is not UNSET):
        option = next(iter(settings), "auth")
        raise DeclarationError(f'{option}= is a setting of HTTP: write server.run("http", {option}=...)')
    if http is None:
        drain_timeout = check_pipe(None, drain_timeout, json_limits)
    if transport == "stdio" and fds is None:
        greet(sys.argv[0])
    if protocols is not None:
        app.eras = Served.only(protocols)
    if state_keys is not None:
        app.state_keys = KeyRing.from_texts(state_keys)
    store = chosen_store(store)
    if http is not None and parent is not None and not parent.alone:
        from mcptrio.server.workers import join_workers

        http = join_workers(app, http, store, parent)
    _log(app)
    try:
        if http is None:
            trio.run(_serve_stdio, app, store, fds, drain_timeout, json_limits)
        else:
            path = http.sse_path if transport == "sse" else http.path
            trio.run(_serve_http, app, http, auth, store, sockets, path, cluster, parent)
    except _CannotListen as error:
        print(f"mcptrio: {error}", file=sys.stderr)
        raise SystemExit(1) from None


def check_transport(transport: str) -> None:
    """Raise `DeclarationError` for a transport that does not exist."""
    if transport not in ("stdio", "http", "sse"):
        from mcptrio._hints import unknown_transport

        raise DeclarationError(unknown_transport(transport))


def http_settings(transport: str, drain_timeout: float, settings: dict[str, Any]) -> HttpConfig:
    """Return the HTTP settings of a transport.

    Raises:
        DeclarationError: one of them does not exist or is invalid.
    """
    from mcptrio.server.serve import http_config

    legacy_sse = transport == "sse" or settings.get("legacy_sse", False)
    return http_config(None, {**settings, "drain_timeout": drain_timeout, "legacy_sse": legacy_sse})


async def _serve_stdio(
    app: App, store: Store | None, fds: tuple[int, int] | None, drain_timeout: float, json_limits: JsonLimits
) -> None:
    from mcptrio.server.serve import serve_stdio

    program = Program(app.info.name, drain_timeout)
    with program.handling_signals():
        await serve_stdio(
            app, store=store, fds=fds, drain_timeout=drain_timeout, json_limits=json_limits, program=program
        )


async def _serve_http(
    app: App,
    http: HttpConfig,
    auth: Auth | None,
    store: Store | None,
    sockets: Sequence[socket] | None,
    path: str,
    cluster: ClusterConfig | None,
    parent: ParentLink | None,
) -> None:
    from mcptrio.server.serve import serve_http

    program = Program(app.info.name, http.drain_timeout, path, parent)
    with program.handling_signals():
        await serve_http(app, http, auth=auth, store=store, sockets=sockets, cluster=cluster, program=program)


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


class ParentLink(Protocol):
    """The connection of a worker to its parent process; `mcptrio._workers.control.WorkerControl` is one."""

    @property
    def slot(self) -> int: ...
    @property
    def workers(self) -> int: ...
    @property
    def worker_id(self) -> str: ...
    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of request states that all workers share, unless some are configured."""
        ...

    @property
    def alone(self) -> bool:
        """Whether no other worker serves at the same time."""
        ...

    @property
    def restarts(self) -> int:
        """Workers that the parent has restarted."""
        ...

    @property
    def beat_every(self) -> float: ...

    def attach(self, program: Program) -> None: ...
    def ready(self, name: str) -> None: ...
    def beat(self) -> None: ...


class Program:
    """The process of a server that was started with `run()`: its signals and its end.

    The first SIGTERM or SIGINT sets `stop` and starts the exit timer, in every phase: while the server starts, serves
    or ends. The second one sets `hurry`. Both work while the event loop is blocked, as long as Python code runs.
    The parent of a worker has the same two steps; see `drain`.
    """

    def __init__(self, name: str, drain_timeout: float, path: str = "", parent: ParentLink | None = None) -> None:
        self.name = name
        self.path = path
        self.parent = parent
        self.stop = trio.Event()
        """Set when the server has to stop."""
        self.hurry = trio.Event()
        """Set when it must no longer wait for running calls."""
        self.handover = False
        """Whether other workers serve while this one drains."""
        self._exit_after = drain_timeout + _EXIT_AFTER
        self._stopping = False
        self._ended = False
        self._token: trio.lowlevel.TrioToken | None = None
        self._reload: Callable[[], bool] | None = None
        self.on_worker_death: Callable[[str], None] | None = None
        """Called in the event loop with the id of another worker that died."""

    @contextmanager
    def handling_signals(self) -> Iterator[None]:
        """Handle SIGTERM and SIGINT; only the main thread of a process can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._token = trio.lowlevel.current_trio_token()
        signals = 0

        def on_signal(number: int, frame: FrameType | None) -> None:
            nonlocal signals
            signals += 1
            self._request_stop(hurry=signals > 1)

        numbers = [signal.SIGINT, signal.SIGTERM]
        if sys.platform == "win32":
            numbers.remove(signal.SIGTERM)  # a process there cannot handle it
        if self.parent is not None:
            numbers.remove(signal.SIGINT)  # Ctrl-C reaches all processes of a terminal: the parent handles it
            self.parent.attach(self)
        before = {number: signal.signal(number, on_signal) for number in numbers}
        try:
            yield
        finally:
            self._ended = True
            for number, handler in before.items():
                signal.signal(number, handler)

    def drain(self, *, handover: bool, hurry: bool) -> None:
        """Stop, because the parent says so or is gone; called in the thread of the control connection."""
        self.handover = handover
        self._request_stop(hurry=hurry)

    def reload(self) -> None:
        """Read the certificates again; called in the thread of the control connection."""
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._read_certificates)

    def worker_died(self, worker: str) -> None:
        """Handle the death of another worker; called in the thread of the control connection."""
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._on_worker_death, worker)

    def _on_worker_death(self, worker: str) -> None:
        if self.on_worker_death is not None:
            self.on_worker_death(worker)

    def _request_stop(self, *, hurry: bool) -> None:
        """Set `stop`, or `hurry`; in a signal handler or in another thread."""
        if self._token is None:
            return
        if not self._stopping:
            self._stopping = True
            # Not `threading.Timer`: its start takes a lock that the interrupted code may hold.
            _thread.start_new_thread(self._exit_in_time, ())
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self.stop.set)
            if hurry:
                self._token.run_sync_soon(self._hurry)

    def _hurry(self) -> None:
        if not self.hurry.is_set():
            logger.warning("running calls are cancelled now")
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
        os._exit(EXIT_STUCK if self._stopping else 0)

    def started(self) -> None:
        """Keep full garbage collections short and rare: each one stops the event loop, for up to 150 ms.

        They find next to nothing, because requests leave no reference cycles, but a client that leaves a thousand
        questions open causes one every second. Modules and declarations, which stay anyway, are excluded.
        """
        gc.freeze()
        young, middle, old = gc.get_threshold()
        if old == _DEFAULT_FULL:  # the program has not chosen otherwise
            gc.set_threshold(young, middle, _RARE_FULL)

    def announce(self, bound: Sequence[BoundAddress]) -> None:
        if self.parent is not None:
            self.parent.ready(self.name)
            return
        for address in bound:
            logger.info("%s is served at %s%s", self.name, address.url, self.path)

    def metrics_page(self, metrics: Metrics) -> Callable[[], str]:
        """Return the page of metrics; that of a worker names it in every sample."""
        if self.parent is None or self.parent.alone:
            return metrics.text
        from mcptrio.server.workers import label_samples

        parent = self.parent
        metrics.look_at(worker_restarts_total=lambda: parent.restarts)
        return label_samples(metrics.text, parent.slot)

    async def attend(self, reload: Callable[[], bool]) -> None:
        """While serving: send beats to the parent, or without one handle SIGHUP. `reload` reads the certificates."""
        self._reload = reload
        if self.parent is not None:
            while True:
                self.parent.beat()
                await trio.sleep(self.parent.beat_every)
        if not hasattr(signal, "SIGHUP"):
            return
        with trio.open_signal_receiver(signal.SIGHUP) as hangups:
            async for _ in hangups:
                self._read_certificates()

    def _read_certificates(self) -> None:
        if self._reload is None:
            return
        try:
            found = self._reload()
            logger.info("certificates read again" if found else "there are no certificates to read again")
        except DeclarationError as error:
            logger.error("%s; the old certificates stay in use", error)

    def explain(self, error: OSError, where: HttpConfig) -> Exception:
        """Return the exception for an address that cannot be used; its text says what to change."""
        return _CannotListen(explain_address(error, where))


def explain_address(error: OSError, where: HttpConfig) -> str:
    """Return one line that says why an address cannot be used, and what to change."""
    text = error.strerror or str(error)
    if where.unix_path is not None:
        return f"cannot listen on {where.unix_path}: {text}"
    if error.errno == errno.EADDRINUSE:
        return f"{text}; choose another port (--port, port=), or any free one with 0"
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, gaierror):
        return f"cannot listen on {where.host}: {text}; --host (host=) must be an address of this machine"
    return text
