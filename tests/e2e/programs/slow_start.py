"""A server whose lifespan never starts; with BLOCKING set it blocks the event loop as well."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from mcptrio import Server


@asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[None]:
    print("starting", file=sys.stderr, flush=True)
    try:
        if os.environ.get("BLOCKING"):
            time.sleep(60)  # noqa: ASYNC251
        await trio.sleep_forever()
    finally:
        print("start cancelled", file=sys.stderr, flush=True)
    yield


server = Server("slow", "1", lifespan=lifespan)
