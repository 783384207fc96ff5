"""Print the CPU seconds per call of mcptrio with client and server in one process."""

from __future__ import annotations

import sys
import time

import trio
from mcptrio_server import server

from mcptrio import connect


async def main(count: int) -> None:
    async with connect(server) as client:
        for _ in range(10):
            await client.call_tool("add", {"a": 1, "b": 2})
        before = time.process_time()
        for _ in range(count):
            await client.call_tool("add", {"a": 1, "b": 2})
        print((time.process_time() - before) / count)


trio.run(main, int(sys.argv[1]))
