"""An MCP endpoint inside a Trio application, next to its other tasks: one nursery, one shutdown, shared memory.

    python examples/embedded.py [PORT]

The application measures something every second. The endpoint lets a model look at what it has measured and pause it.
"""

from __future__ import annotations

import signal
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial

import trio

from mcptrio import Server

server = Server("embedded", version="1.0.0")


@dataclass
class Meter:
    """The application's own state; the tools below read and change it without a lock, since Trio has one thread."""

    values: deque[float] = field(default_factory=lambda: deque(maxlen=60))
    paused: bool = False

    async def run(self) -> None:
        while True:
            if not self.paused:
                self.values.append(time.process_time())
                server.notify_resource_updated("meter://latest")
            await trio.sleep(1)


meter = Meter()


@server.resource("meter://latest", mime_type="text/plain")
async def latest() -> str:
    """The last value; subscribers are notified of each new one."""
    return f"{meter.values[-1]:.3f}" if meter.values else "nothing yet"


@server.tool(read_only=True)
async def summary() -> dict[str, float]:
    """Summarise the values of the last minute."""
    return {"count": len(meter.values), "cpu_seconds": max(meter.values, default=0.0)}


@server.tool(idempotent=True)
async def pause(paused: bool = True) -> str:
    """Stop measuring, or go on."""
    meter.paused = paused
    return "paused" if paused else "running"


async def main(port: int) -> None:
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(meter.run)
        async with trio.open_nursery() as serving:
            bound = await serving.start(partial(server.serve_http, port=port, stop=stop))
            for address in bound:
                print(f"serving at {address.url}/mcp; stop with Ctrl-C", flush=True)
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                await anext(signals)
            stop.set()  # running calls finish, then `serve_http` returns
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
