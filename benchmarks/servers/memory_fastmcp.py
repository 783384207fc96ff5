"""Print the CPU seconds per call of FastMCP with client and server in one process."""

from __future__ import annotations

import sys
import time

import anyio
from fastmcp import Client
from fastmcp_server import server


async def main(count: int) -> None:
    async with Client(server) as client:
        for _ in range(10):
            await client.call_tool("add", {"a": 1, "b": 2})
        before = time.process_time()
        for _ in range(count):
            await client.call_tool("add", {"a": 1, "b": 2})
        print((time.process_time() - before) / count)


anyio.run(main, int(sys.argv[1]))
