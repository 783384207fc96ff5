"""Hypercorn's own worker behind the connection guard: `hypercorn -k trio module:app`.

A user who runs `hypercorn -k trio module:app` gets Hypercorn's accept loop and process runner. A module that calls
`install_guard()` puts the connection guard, the framing checks and the write timeout into it. Missing there: the limit
on connections, the back-off when file descriptors run out, certificates that are reloaded while running, the drain
order (the app learns of a shutdown only after every connection has ended), and workers that survive the death of one
of them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import hypercorn.trio.run
import trio
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, LifespanState

from mcptrio import telemetry
from mcptrio._actors.timers import Timers
from mcptrio.telemetry.log import LogListener
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.listener.containment import ConnectionGuard
from mcptrio.transports.http_server.listener.guarded_stream import GuardedStream, SocketOrTLS

from .connection import HypercornConnection


def install_guard(config: HttpConfig | None = None) -> None:
    """Put the connection guard into Hypercorn's own trio worker."""
    # setattr: the worker looks this name up for every listener it opens, but does not export it.
    setattr(hypercorn.trio.run, "TCPServer", guarded_handler(config or HttpConfig()))  # noqa: B010


def guarded_handler(
    config: HttpConfig,
) -> Callable[[AppWrapper, Config, WorkerContext, LifespanState, SocketOrTLS], Awaitable[None]]:
    """Return a replacement for Hypercorn's `TCPServer` in its own worker."""
    hub = telemetry.Hub([LogListener(logging.getLogger("mcptrio.http"))])

    async def handle(
        app: AppWrapper, hyper: Config, context: WorkerContext, state: LifespanState, stream: SocketOrTLS
    ) -> None:
        async with trio.open_nursery() as nursery:
            guarded = GuardedStream(stream, config, hub, Timers(lambda: nursery))
            with ConnectionGuard(hub, guarded.client):
                await HypercornConnection(app, hyper, context, state, guarded).run()
            nursery.cancel_scope.cancel()

    return handle
