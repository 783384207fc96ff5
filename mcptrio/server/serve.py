"""Serve inside a Trio program: the runtime, the transport, and the order in which they start and stop."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import attrs
import trio
from msgspec import structs

from mcptrio._actors.runtime import Runtime
from mcptrio._settings import check_value
from mcptrio._wire.jsonrpc import DEFAULT_LIMITS, JsonLimits
from mcptrio.errors import DeclarationError
from mcptrio.server.checks import check_cluster, check_http, check_pipe, chosen_store
from mcptrio.server.features.scopes import UNSET

if TYPE_CHECKING:
    from mcptrio.cluster.cluster import WorkerCluster
    from mcptrio.cluster.config import ClusterConfig
    from mcptrio.server.app import App
    from mcptrio.server.options import Auth
    from mcptrio.server.program import Program
    from mcptrio.stores import Store
    from mcptrio.stores.redis import RedisStore
    from mcptrio.telemetry.metrics import Metrics
    from mcptrio.transports.http_server.config import HttpConfig
    from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
    from mcptrio.transports.http_server.endpoint.message import Authenticator
    from mcptrio.transports.http_server.hypercorn.hosted import HostedApp
    from mcptrio.transports.http_server.listener.guarded_stream import Serve
    from mcptrio.transports.http_server.listener.sockets import BoundAddress
    from mcptrio.transports.link import Link

logger = logging.getLogger("mcptrio.serving")

_HANDOVER: Final = 1.0
"""Seconds in which a connection may send one more request to a worker that is being replaced, so that a busy client
learns from its response that the connection ends."""
_NOT_TRIO = (
    "{name}() needs Trio, and no Trio event loop runs here: call it with `trio.run(server.{name})`, or start the "
    "program with `server.run()`; in an asyncio program, serve `server.asgi()` with uvicorn or mount it in FastAPI"
)


async def serve_stdio(
    app: App,
    *,
    store: Store | str | None = None,
    fds: tuple[int, int] | None = None,
    stop: trio.Event | None = None,
    drain_timeout: float = 25.0,
    json_limits: JsonLimits = DEFAULT_LIMITS,
    program: Program | None = None,
) -> int:
    """Serve one client over standard input and output; return the number of handlers that could not be stopped."""
    _require_trio("serve_stdio")
    drain_timeout = check_pipe(stop, drain_timeout, json_limits)
    from mcptrio._actors.watchdog import Watchdog
    from mcptrio.transports.stdio import server as stdio

    made = app.make_runtime(chosen_store(store))
    made.watchdog = Watchdog(made.hub)
    stop = _stop_event(stop, program)
    left = 0
    with _one_exception():
        async with _start(stop) as started, made.open() as runtime:
            started()
            if program is not None:
                program.started()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_stop_pipe, stop, runtime, nursery.cancel_scope, drain_timeout, program)
                stdin_fd, stdout_fd = fds if fds is not None else (None, None)
                limits = structs.replace(stdio.LIMITS, json=json_limits)
                left = await stdio.serve_stdio(runtime, stdin_fd=stdin_fd, stdout_fd=stdout_fd, limits=limits)
                if left and program is not None:
                    program.leave()
                nursery.cancel_scope.cancel()
    return left


async def serve_link(
    app: App,
    link: Link,
    *,
    store: Store | str | None = None,
    stop: trio.Event | None = None,
    drain_timeout: float = 25.0,
    json_limits: JsonLimits = DEFAULT_LIMITS,
) -> None:
    """Serve one client over a link until it disconnects, or until `stop` is set and the server has drained."""
    _require_trio("serve")
    drain_timeout = check_pipe(stop, drain_timeout, json_limits)
    from mcptrio.transports.link import CUSTOM, LinkPipe
    from mcptrio.transports.pipe.server import PipeLimits, serve_pipe

    stop = _stop_event(stop, None)
    with _one_exception():
        async with _start(stop) as started, app.make_runtime(chosen_store(store)).open() as runtime:
            started()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_stop_pipe, stop, runtime, nursery.cancel_scope, drain_timeout, None)
                limits = PipeLimits(linger=0.25, json=json_limits)
                await serve_pipe(runtime, LinkPipe(link), transport=CUSTOM, limits=limits)
                nursery.cancel_scope.cancel()


async def _stop_pipe(
    stop: trio.Event, runtime: Runtime, scope: trio.CancelScope, drain_timeout: float, program: Program | None
) -> None:
    await stop.wait()
    await _drain(runtime, drain_timeout, program)
    scope.cancel()


async def serve_http(
    app: App,
    http: HttpConfig,
    *,
    auth: Auth | None = UNSET,
    store: Store | str | None = None,
    stop: trio.Event | None = None,
    sockets: Sequence[socket.socket] | None = None,
    cluster: ClusterConfig | None = None,
    program: Program | None = None,
    task_status: trio.TaskStatus[list[BoundAddress]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve Streamable HTTP until cancelled, or until `stop` is set and the server has drained."""
    _require_trio("serve_http")
    import mcptrio._wire.objects.generated  # noqa: F401 - import it before serving: the import is slow and would delay responses
    from mcptrio.server.metrics import measure
    from mcptrio.telemetry.metrics import Metrics
    from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
    from mcptrio.transports.http_server.listener.listener import Listener

    check_value("stop", stop, trio.Event | None)
    kept = chosen_store(store)
    check_http(http, app.limits, kept, auth)
    check_cluster(cluster, kept)
    authenticator = _authenticator(app, auth, http)
    make_engine = _engine(http)  # import it before the watchdog runs, which would report the import
    metrics = Metrics(route.method for route in app.router)
    stop = _stop_event(stop, program)
    is_up = False
    with _one_exception():
        async with (
            _start(stop) as started,
            measure(app.make_runtime(kept), metrics).open() as runtime,
            _closing(authenticator),
        ):
            page = metrics.text if program is None else program.metrics_page(metrics)
            endpoint = Endpoint(runtime, http, page, authenticator, open_scopes=auth is None)
            engine, unread = make_engine(endpoint), endpoint.admission.unread
            listener = Listener(engine, http, runtime.hub, sockets=sockets, turns=runtime.turns, unread=unread)
            metrics.look_at(connections_open=lambda: listener.connections)
            async with _joined(endpoint, cluster, program, metrics) as joined, trio.open_nursery() as nursery:
                try:
                    bound = await nursery.start(listener.serve)
                except OSError as error:
                    raise (error if program is None else program.explain(error, http)) from None
                started()
                is_up = True
                task_status.started(bound)
                if program is not None:
                    program.started()
                    program.announce(bound)
                    nursery.start_soon(program.attend, listener.reload_certificates)
                await stop.wait()
                grace = http.drain_timeout
                if program is not None and program.handover:
                    runtime.supervisor.serves_late = True
                    grace -= await listener.hand_over(min(_HANDOVER, grace))

                async def drain(_: float) -> None:
                    if joined is not None:
                        joined.drain()
                    await _drain(runtime, grace, program)

                # After the drain timeout, calls that did not finish have half a second to send their error.
                await listener.shut_down(drain, timeout=grace + 0.5)
                nursery.cancel_scope.cancel()
    if not is_up:
        task_status.started([])  # stopped while it started: nothing was bound


@asynccontextmanager
async def _joined(
    endpoint: Endpoint, config: ClusterConfig | None, program: Program | None, metrics: Metrics
) -> AsyncIterator[WorkerCluster | None]:
    """Join the other workers of the endpoint, if its store is shared."""
    app = cast("App", endpoint.runtime.app)
    store = endpoint.runtime.store
    if not store.shared:
        yield None
        return
    from mcptrio.cluster.cluster import open_cluster
    from mcptrio.cluster.config import ClusterConfig
    from mcptrio.server.app import own_version
    from mcptrio.server.metrics import measure_cluster

    parent = None if program is None else program.parent
    config = config or ClusterConfig()
    if parent is not None:
        config = structs.replace(config, slot=str(parent.slot))
    worker = None if parent is None else parent.worker_id
    info = app.info
    async with open_cluster(
        endpoint,
        config,
        server=info.name,
        version=info.version or own_version(),
        worker=worker,
        parent="" if parent is None else f"{socket.gethostname()} {os.getppid()}",
    ) as joined:
        measure_cluster(metrics, joined, cast("RedisStore", store))
        if program is not None:
            program.on_worker_death = joined.declare_dead
        yield joined


def _stop_event(stop: trio.Event | None, program: Program | None) -> trio.Event:
    if program is not None:
        return program.stop
    return trio.Event() if stop is None else stop


@asynccontextmanager
async def _start(stop: trio.Event) -> AsyncIterator[Callable[[], None]]:
    """Cancel the body if `stop` is set before the body calls the yielded function."""
    watching = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_cancel_start, stop, watching, nursery.cancel_scope)
        yield watching.cancel


async def _cancel_start(stop: trio.Event, watching: trio.CancelScope, start: trio.CancelScope) -> None:
    with watching:
        await stop.wait()
        logger.info("stopped while the server was starting")
        start.cancel()


async def _drain(runtime: Runtime, timeout: float, program: Program | None) -> None:
    """Drain the runtime; a second signal ends the wait for running calls."""
    async with trio.open_nursery() as nursery:
        if program is not None:
            nursery.start_soon(_hurry, program, runtime)
        await runtime.drain(timeout)
        nursery.cancel_scope.cancel()


async def _hurry(program: Program, runtime: Runtime) -> None:
    await program.hurry.wait()
    runtime.supervisor.hurry()


@contextmanager
def _one_exception() -> Iterator[None]:
    """Unwrap a single exception from the groups of the nurseries inside."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        raise error from error.__cause__


def _require_trio(name: str) -> None:
    if not trio.lowlevel.in_trio_task():
        raise DeclarationError(_NOT_TRIO.format(name=name))


def asgi(
    app: App,
    http: HttpConfig,
    *,
    auth: Auth | None = UNSET,
    store: Store | str | None = None,
) -> HostedApp:
    from mcptrio.server.metrics import measure
    from mcptrio.telemetry.metrics import Metrics
    from mcptrio.transports.http_server.hypercorn.hosted import HostedApp

    kept = chosen_store(store)
    check_http(http, app.limits, kept, auth)
    metrics = Metrics(route.method for route in app.router)
    return HostedApp(
        lambda: measure(app.make_runtime(kept), metrics),
        http,
        authenticator=_authenticator(app, auth, None),
        open_scopes=auth is None,
        metrics=metrics.text,
        join=lambda endpoint: _joined(endpoint, None, None, metrics),
    )


def _authenticator(app: App, auth: Auth | None, http: HttpConfig | None) -> Authenticator | None:
    """Return the authenticator of a server.

    Raises:
        DeclarationError: scopes are declared, but `auth=` was not given.
    """
    if auth is UNSET or auth is None:
        scopes = sorted(app.all_scopes())
        if auth is UNSET and scopes:
            raise DeclarationError(
                f"{app.info.name!r} declares scopes ({', '.join(scopes)}), but has no authentication: pass auth=, "
                "for example auth=BearerAuth(...), or auth=None to give all callers all scopes; "
                "on the command line, --token-file FILE"
            )
        return None
    from mcptrio.auth.server import BearerAuth, ClientCertificates, StaticTokens

    if not isinstance(auth, BearerAuth | StaticTokens | ClientCertificates):
        if not callable(auth):
            raise DeclarationError(
                f"auth= takes a BearerAuth, StaticTokens or ClientCertificates, not a {type(auth).__name__}"
            )
        return auth
    if isinstance(auth, ClientCertificates) and http is not None and http.client_ca is None:
        raise DeclarationError("ClientCertificates needs client_ca=, the certificate authorities to trust")
    from mcptrio.transports.bearer.authorizer import Authorizer

    return Authorizer(auth)


@asynccontextmanager
async def _closing(authenticator: Authenticator | None) -> AsyncIterator[None]:
    try:
        yield
    finally:
        close = getattr(authenticator, "close", None)
        if close is not None:
            await close()


def _engine(http: HttpConfig) -> Callable[[Endpoint], Serve]:
    """Return the factory of the configured engine: endpoint -> function that serves one connection."""
    if http.engine == "direct":
        from mcptrio.transports.http_server.direct.engine import DirectEngine

        return lambda endpoint: DirectEngine(endpoint, http).serve
    from mcptrio.transports.http_server.hypercorn.asgi import AsgiApp
    from mcptrio.transports.http_server.hypercorn.connection import HypercornEngine

    return lambda endpoint: HypercornEngine(AsgiApp(endpoint), http).serve


def http_config(config: HttpConfig | None, settings: Mapping[str, Any]) -> HttpConfig:
    """Build the HTTP settings; keywords override the fields of `config`.

    Raises:
        DeclarationError: there is no such setting, or it is invalid.
    """
    from mcptrio.transports.http_server.config import HttpConfig

    check_value("config", config, HttpConfig | None)
    known = {field.name for field in attrs.fields(HttpConfig)}
    unknown = sorted(set(settings) - known)
    if unknown:
        from mcptrio._hints import hint

        found = hint("HTTP setting", unknown[0], known) or "HttpConfig lists them all"
        raise DeclarationError(f"unknown HTTP setting {', '.join(unknown)}; {found}")
    return attrs.evolve(config or HttpConfig(), **settings)
