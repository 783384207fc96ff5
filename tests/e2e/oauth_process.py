"""A client in a process of its own, for several that share one token storage.

    python -m tests.e2e.oauth_process URL FOLDER SECONDS

Calls a tool until the time is over, and ends with status 1 if a call fails or the user would have to sign in.
"""

from __future__ import annotations

import sys

import trio

from mcptrio import connect
from mcptrio.auth import FileStorage, OAuth


async def no_browser(url: str) -> bool:
    raise RuntimeError("the user would have to sign in again")


async def main(url: str, folder: str, seconds: float) -> None:
    auth = OAuth(storage=FileStorage(folder), open_browser=no_browser)
    end = trio.current_time() + seconds
    async with connect(url, auth=auth, protocol="2025-11-25") as client:
        print("ready", flush=True)
        while trio.current_time() < end:
            await client.call_tool("together", {})
            await trio.sleep(0.02)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], sys.argv[2], float(sys.argv[3]))
