"""`mcptrio run FILE[:NAME]`: serve a file over stdio, Streamable HTTP or the deprecated HTTP+SSE."""

from __future__ import annotations

import gc
import logging
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mcptrio.cli.auth import auth_settings, read_secret
from mcptrio.cli.exit_codes import Failure
from mcptrio.cli.settings import RunSettings, read_settings
from mcptrio.errors import DeclarationError, MCPTrioError

if TYPE_CHECKING:
    import socket

    from mcptrio._workers.control import WorkerControl
    from mcptrio.cluster.config import ClusterConfig
    from mcptrio.server.server import Server
    from mcptrio.stores import Store

_CLUSTER_OPTIONS: Final = ("lease", "on_store_loss", "forward_address", "forward_ca", "forward_cert", "forward_key")
_HTTP_OPTIONS: Final = (
    "passivate_after",
    *("host", "port", "unix_socket", "path", "allow_host", "allow_origin"),
    *("certfile", "keyfile", "engine", "json_only", "access_log", "workers", "preload", "stuck_after"),
    *_CLUSTER_OPTIONS,
)


def main(argv: Sequence[str]) -> int:
    """Run `mcptrio run` with the arguments after `run`, and return the exit code."""
    level = "info"
    try:
        settings = prepare(argv)
        level = settings.log_level
        if settings.reload:
            from mcptrio.cli.reload import run_reloading

            return run_reloading(settings, argv)
        if settings.workers is not None and settings.transport != "stdio":
            from mcptrio.cli.workers import run_parent

            return run_parent(settings, argv)
        return _run_alone(settings)
    except Failure as failure:
        print(f"mcptrio: {failure}", file=sys.stderr)
        if level == "debug" and failure.__cause__ is not None:
            import traceback

            traceback.print_exception(failure.__cause__)
        return failure.code
    except KeyboardInterrupt:
        return 130


def prepare(argv: Sequence[str]) -> RunSettings:
    """Read the settings, set up logging, and give the server's code its own arguments.

    Raises:
        Failure: the settings contradict each other.
    """
    settings = read_settings(argv)
    given = [name for name in _HTTP_OPTIONS if name in settings.given]
    if settings.transport == "stdio" and settings.reload and "reload" in settings.given:
        raise Failure(
            2, "--reload needs --transport http: over stdio the host holds the pipes of the one process that it started"
        )
    if settings.transport == "stdio" and given:
        raise Failure(2, f"--{given[0].replace('_', '-')} is an HTTP option: add --transport http")
    if "unix_socket" in given and ("host" in given or "port" in given):
        raise Failure(2, "--unix-socket cannot be combined with --host or --port")
    if "host" in given or "port" in given:
        settings.unix_socket = None  # of a variable or the table
    if settings.transport == "stdio":
        settings.reload, settings.workers = False, None
    from mcptrio.telemetry.log import set_up_logging

    gc.disable()  # while the file is loaded: it makes thousands of objects, and nearly all of them stay
    set_up_logging(settings.log_level, settings.log_format)
    sys.argv = [settings.target or settings.module, *settings.rest]
    return settings


def _run_alone(settings: RunSettings) -> int:
    """Serve in this process."""
    if settings.transport != "stdio":
        from mcptrio.cli.socket_activation import inherited_sockets

        server = load(settings)
        try:
            sockets = inherited_sockets() or None
        except DeclarationError as error:
            raise Failure(2, str(error)) from None
        serve(settings, server, sockets=sockets)
        return 0
    from mcptrio.server.program import greet
    from mcptrio.transports.stdio.server import private_stdio

    greet(settings.target or f"-m {settings.module}")
    # Output that the file prints while it is loaded must not reach the wire either.
    with private_stdio() as fds:
        serve(settings, load(settings), fds=fds)
    return 0


def load(settings: RunSettings) -> Server:
    """Load the user's server.

    Raises:
        Failure: it cannot be loaded.
    """
    from mcptrio.cli.load import LoadError, load_module, load_server

    try:
        return load_server(settings.target) if settings.module is None else load_module(settings.module)
    except LoadError as error:
        raise Failure(2, str(error)) from error.__cause__
    finally:
        gc.freeze()  # objects that exist now stay: exclude them from later collections
        gc.enable()


def serve(settings: RunSettings, server: Server, *, warn: bool = True, **more: Any) -> None:
    """Serve until the client disconnects or a signal arrives; `more` are further arguments of `program.run`.

    Raises:
        Failure: the server cannot be served.
    """
    from mcptrio.server.program import run

    try:
        auth = auth_settings(settings, server, warn=warn)
        if settings.otel:
            from mcptrio.telemetry.otel import OpenTelemetry

            server.on_event(OpenTelemetry())
        app = server._app
        settings.sections.apply(app)
        if settings.passivate_after is not None:
            app.limits = msgspec.structs.replace(app.limits, passivate_after=settings.passivate_after)
    except DeclarationError as error:
        raise Failure(2, str(error)) from None
    try:
        run(server._app, settings.transport, **more, **auth, **program_settings(settings))
    except MCPTrioError as error:
        raise Failure(1, str(error)) from None
    except OSError as error:  # of the store, or of the server's own lifespan
        logging.getLogger("mcptrio.serving").debug("the server failed to start", exc_info=error)
        text = error.strerror or str(error)
        raise Failure(1, f"{error.filename}: {text}" if error.filename else text) from None


def serve_as_worker(
    settings: RunSettings, server: Server | None, control: WorkerControl, sockets: Sequence[socket.socket]
) -> None:
    """Serve in a worker process; `server` was loaded by the parent, or is None.

    Raises:
        Failure: the server cannot be served.
    """
    if server is None:
        gc.disable()
        server = load(settings)
    # The same files for all workers: one of them reports those that others can read.
    serve(settings, server, warn=control.slot == 0 and not control.restarts, parent=control, sockets=sockets)


def _state_keys(settings: RunSettings) -> list[str]:
    file = settings.state_key_file
    keys = os.environ.get("MCPTRIO_STATE_KEYS", "").replace(",", "\n").split()
    if keys and (not file or "state_key_file" in settings.from_table):
        return keys
    if not file:
        return []
    return read_secret(file, "--state-key-file").splitlines()


def store_password() -> str | None:
    """Return the password from the file that the environment names, if it names one.

    Raises:
        DeclarationError: the file cannot be read, or is empty.
    """
    file = os.environ.get("MCPTRIO_STORE_PASSWORD_FILE")
    if not file:
        return None
    password = read_secret(file, "MCPTRIO_STORE_PASSWORD_FILE").strip()
    if not password:
        raise DeclarationError(f"MCPTRIO_STORE_PASSWORD_FILE {file} is empty: write the password into it")
    return password


def _store(url: str) -> str | Store:
    """Return the store that a URL names, with the password from the file that the environment names."""
    password = store_password()
    if password is None:
        return url
    from mcptrio.stores import open_store

    return open_store(url, password=password)


def _cluster(arguments: RunSettings) -> ClusterConfig | None:
    """Return the settings of a cluster, if there are some.

    Raises:
        DeclarationError: one of them cannot be used.
    """
    given = {name: value for name in _CLUSTER_OPTIONS if (value := getattr(arguments, name)) is not None}
    if not given:
        return None
    from mcptrio.cluster.config import ClusterConfig

    try:
        config = ClusterConfig(**given)
    except ValueError as error:
        text = str(error).replace("ClusterConfig.", "")
        for name in _CLUSTER_OPTIONS:  # the names of the command line
            text = re.sub(rf"\b{name}\b", f"--{name.replace('_', '-')}", text)
        raise DeclarationError(text) from None
    if arguments.workers is not None and not (config.forward_address or ":0").endswith(":0"):
        raise DeclarationError(
            "--forward-address needs port 0 with --workers: each worker listens on a port of its own"
        )
    if not (arguments.store or "").startswith("redis"):
        raise DeclarationError(
            f"--{next(iter(given)).replace('_', '-')} is for workers that share a store: add --store redis://HOST"
        )
    return config


def program_settings(arguments: RunSettings) -> dict[str, Any]:
    """Return the arguments of `program.run` that the options stand for.

    Raises:
        DeclarationError: a file with secrets cannot be read.
    """
    settings: dict[str, Any] = {"drain_timeout": arguments.drain_timeout}
    if arguments.store:
        settings["store"] = _store(arguments.store)
    if arguments.protocol:
        settings["protocols"] = [date.strip() for date in arguments.protocol.split(",")]
    if keys := _state_keys(arguments):
        settings["state_keys"] = keys
    if arguments.transport == "stdio":
        return settings
    if (cluster := _cluster(arguments)) is not None:
        settings["cluster"] = cluster
    if arguments.unix_socket is not None:
        settings["unix_path"] = arguments.unix_socket
    settings.update(
        arguments.sections.http_settings(),
        host=arguments.host,
        port=arguments.port,
        path=arguments.path,
        json_only=arguments.json_only,
        access_log=arguments.access_log,
        engine=arguments.engine,
        certfile=arguments.certfile,
        keyfile=arguments.keyfile,
    )
    from mcptrio.transports.http_server.config import HttpConfig

    # Added to the default hosts, not in place of them.
    if arguments.allow_host:
        settings["allowed_hosts"] = (*HttpConfig(host=arguments.host).hosts, *arguments.allow_host)
    if arguments.allow_origin:
        settings["allowed_origins"] = tuple(arguments.allow_origin)
    return settings
