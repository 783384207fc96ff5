"""Hypercorn's own worker with the guard put in: what a user of `hypercorn -k trio` gets (P1, P2)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any

import hypercorn.trio
import hypercorn.trio.run
import pytest
import trio
from hypercorn.config import Config

from mcptrio.hypercorn import install_guard

from .raw_peer import echo, get, read_all, status


@pytest.fixture
def guard(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.CRITICAL, "mcptrio.http")
    before = hypercorn.trio.run.TCPServer  # type: ignore[attr-defined]
    install_guard()
    yield
    hypercorn.trio.run.TCPServer = before  # type: ignore[attr-defined]


@pytest.mark.usefixtures("guard")
async def test_hypercorns_own_worker_survives_an_app_that_raises_system_exit() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            raise NotImplementedError
        if scope["path"] == "/faulty":
            raise SystemExit(1)
        await echo(scope, receive, send)

    stop = trio.Event()
    config = Config.from_mapping(bind=["127.0.0.1:0"], graceful_timeout=0.2, worker_class="trio")
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            serve = partial(hypercorn.trio.serve, app, config, shutdown_trigger=stop.wait, mode="asgi")
            binds: list[str] = await nursery.start(serve)
            port = int(binds[0].rpartition(":")[2])

            async def ask(request: bytes) -> bytes:
                async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                    await stream.send_all(request)
                    return await read_all(stream)

            assert status(await ask(get("/faulty"))) == 500
            assert status(await ask(get("/", close=True))) == 200
            assert status(await ask(b"post / HTTP/1.1\r\nHost: x\r\n\r\n")) == 405
            stop.set()
