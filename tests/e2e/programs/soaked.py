"""The canary's server with short memories, so that ten minutes show what an hour would; and it can be looked into."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import tracemalloc
from typing import Any

import msgspec
import trio
from canary import server

from mcptrio.stores import MemoryStore, StoreLimits
from mcptrio.transports.http_server.config import HttpConfig

server._app.limits = msgspec.structs.replace(server._app.limits, parked_ttl=10, idle_timeout=20)
trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda keep=0: 0)

TRACED = "MCPTRIO_TRACE" in os.environ
before: list[tracemalloc.Snapshot] = []


@server.tool
async def figures() -> dict[str, int]:
    """Return the process's figures after a garbage collection; the allocator returns the memory that it keeps."""
    gc.collect()
    trim(0)
    return {
        "tasks": trio.lowlevel.current_statistics().tasks_living,
        "threads": threading.active_count(),
        "objects": len(gc.get_objects()),
    }


@server.tool
async def growth() -> list[str]:
    """Return where memory was allocated since the last call."""
    gc.collect()
    now = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, tracemalloc.__file__)])
    found: list[Any] = now.compare_to(before.pop(), "traceback") if before else []
    before.append(now)
    return [
        f"{item.size_diff:+,} B {item.count_diff:+} {' < '.join(reversed(item.traceback.format()))}"
        for item in found[:25]
    ]


if __name__ == "__main__":
    if TRACED:
        tracemalloc.start(3)
    config = HttpConfig(resume_grace=5)
    store = MemoryStore(StoreLimits(stream_age=10))
    port, engine = sys.argv[1:]
    trio.run(lambda: server.serve_http(config, store=store, port=int(port), engine=engine))
