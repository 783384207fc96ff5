"""`mcptrio run --workers N`: the parent that holds the sockets, and each worker's way into serving."""

from __future__ import annotations

import faulthandler
import gc
import os
import secrets
import signal
import socket
import sys
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Final

from mcptrio.cli.exit_codes import Failure
from mcptrio.errors import DeclarationError

if TYPE_CHECKING:
    from mcptrio._workers.control import WorkerControl
    from mcptrio.cli.settings import RunSettings
    from mcptrio.server.server import Server
    from mcptrio.transports.http_server.config import HttpConfig

_WARM: Final = (
    "mcptrio.server.server",
    "mcptrio.server.serve",
    "mcptrio.server.workers",
    "mcptrio.cli.load",
    "mcptrio.stores",
    "mcptrio._actors.watchdog",
    "mcptrio._schema",
    "mcptrio._wire.objects.generated",
    "mcptrio.telemetry.metrics",
    "mcptrio.transports.http_server.endpoint.endpoint",
    "mcptrio.transports.http_server.listener.listener",
    "mcptrio.transports.http_server.hypercorn.connection",
)
"""Modules that every worker needs, imported once in the parent instead of once in each worker."""
_STAYS: Final = (
    "without a shared store (--store redis://HOST), parked calls, tasks and announced changes stay within the worker "
    "that has them"
)


def run_parent(settings: RunSettings, argv: Sequence[str]) -> int:
    """Serve with workers until a signal arrives; return the exit code, also that of a forked worker.

    Raises:
        Failure: the settings cannot be used.
    """
    check_platform("--workers")
    if settings.stuck_after < 0:
        raise Failure(2, f"--stuck-after is a number of seconds, or 0 for never, not {settings.stuck_after:g}")
    from mcptrio._workers.parent import ParentProcess
    from mcptrio._workers.spawn import BecameWorker

    http, has_keys = read_http(settings)
    for name in _WARM:
        import_module(name)
    server = _preload(settings)
    shared = bool(settings.store) and settings.store.startswith("redis")
    with listening(http) as (sockets, url):
        parent = ParentProcess(
            workers=settings.workers,
            sockets=sockets,
            url=url,
            command=lambda control, fds: worker_command(control, fds, argv),
            drain_timeout=settings.drain_timeout,
            stuck_after=settings.stuck_after,
            keys=() if has_keys or shared else (b64encode(secrets.token_bytes(32)).decode(),),
            hint="" if shared else _STAYS,
        )
        gc.collect()
        gc.freeze()  # a collection in a worker would copy the pages of these objects
        try:
            return parent.run()
        except BecameWorker as became:
            control = became.control
        return run_worker(settings, server, control, sockets)


def check_platform(option: str) -> None:
    """Raise `Failure` where no process can be given a socket."""
    if sys.platform == "win32":
        raise Failure(2, f"{option} needs processes that share a socket, which Windows lacks: leave it out")


def read_http(settings: RunSettings) -> tuple[HttpConfig, bool]:
    """Return the HTTP settings, and whether keys of request states are configured.

    Raises:
        Failure: they cannot be used.
    """
    from mcptrio.cli.run import program_settings
    from mcptrio.server.program import http_settings

    try:
        found = program_settings(settings)
        for name in ("store", "protocols", "drain_timeout", "cluster"):
            found.pop(name, None)
        has_keys = found.pop("state_keys", None) is not None
        return http_settings(settings.transport, settings.drain_timeout, found), has_keys
    except DeclarationError as error:
        raise Failure(1, str(error)) from None


def run_worker(
    settings: RunSettings, server: Server | None, control: WorkerControl, sockets: Sequence[socket.socket]
) -> int:
    """Serve in this process, which is a worker; return its exit code. `server` is None if it is not loaded yet."""
    from mcptrio.cli.run import serve_as_worker
    from mcptrio.telemetry.log import name_worker

    for number in (signal.SIGINT, signal.SIGHUP):  # those of a terminal are for the parent
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError, ValueError, RuntimeError):  # stderr is closed
        faulthandler.enable()  # SIGABRT of the parent writes the stacks of a worker that is stuck
    if not control.alone:
        name_worker(control.slot, control.worker_id)
    control.watch()
    try:
        serve_as_worker(settings, server, control, sockets)
    except Failure as failure:
        control.refused(str(failure))
        return failure.code
    return 0


def adopt_sockets(fds: str) -> list[socket.socket]:
    """Return the sockets that a new interpreter was started with."""
    found = [socket.socket(fileno=int(fd)) for fd in fds.split(",")]
    for sock in found:
        sock.set_inheritable(False)
    return found


def worker_command(control: int, fds: Sequence[int], argv: Sequence[str]) -> list[str]:
    """Return the command line of a worker that is a new interpreter."""
    return [sys.executable, "-P", "-m", "mcptrio.cli.worker", str(control), ",".join(map(str, fds)), *argv]


def _preload(settings: RunSettings) -> Server | None:
    if not settings.preload:
        return None
    from mcptrio._workers.spawn import CAN_FORK
    from mcptrio.cli.run import load

    if not CAN_FORK:
        raise Failure(2, "--preload needs workers that are forked, which this system does not support: leave it out")
    return load(settings)


@contextmanager
def listening(http: HttpConfig) -> Iterator[tuple[Sequence[socket.socket], str]]:
    """Open the sockets of the workers, and close them at the end; yields them with the URL of the endpoint.

    Raises:
        Failure: an address cannot be used.
    """
    from mcptrio.cli.socket_activation import inherited_sockets
    from mcptrio.server.program import explain_address
    from mcptrio.transports.http_server.listener.sockets import bound_address, open_sockets_blocking, remove_unix_path

    own, path = os.getpid(), None
    try:
        sockets = inherited_sockets()
        if not sockets:
            sockets, path = open_sockets_blocking(http), http.unix_path
    except DeclarationError as error:
        raise Failure(2, str(error)) from None
    except OSError as error:
        raise Failure(1, explain_address(error, http)) from None
    urls = (bound_address(sock, tls=http.certfile is not None).url for sock in sockets)
    try:
        yield sockets, ", ".join(f"{url}{http.path}" for url in urls)
    finally:
        for sock in sockets:
            sock.close()
        if path is not None and os.getpid() == own:  # not in a fork
            remove_unix_path(path)
