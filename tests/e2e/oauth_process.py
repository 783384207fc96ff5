"""A client in a process of its own, for several that share one token storage.

    python -m tests.e2e.oauth_process URL FOLDER NAME

Calls a tool until FOLDER has a file `stop`, and ends with status 1 if a call fails or the user would have to sign in.
"""

from __future__ import annotations

import sys
from pathlib import Path

import trio

from mcptrio import connect
from mcptrio.auth import FileStorage, OAuth


async def no_browser(url: str) -> bool:
    raise RuntimeError("the user would have to sign in again")


async def main(url: str, folder: str, name: str) -> None:
    auth = OAuth(storage=FileStorage(folder), open_browser=no_browser)
    stop = Path(folder, "stop")
    async with connect(url, auth=auth, protocol="2025-11-25") as client:
        while not stop.exists():  # noqa: ASYNC240 - nothing else runs here
            await client.call_tool("together", {"name": name})
            await trio.sleep(0.02)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
