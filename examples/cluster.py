"""Two workers and a Redis: a worker is killed in the middle of a call, and the client goes on with session and stream.

    make demo-cluster                                 starts a Valkey and two workers, and runs the client below

By hand, with a Redis on this machine and `pip install "mcptrio[redis]"`:

    mcptrio run examples/cluster.py --transport http --workers 2 --store 'redis://localhost?name=bake'
    python examples/cluster.py http://127.0.0.1:8000/mcp

`idempotent=True` allows the other worker to run the call again. Without it, the stream ends with an error which says
that the call may have been done.
"""

from __future__ import annotations

import os
import signal
import sys

import trio

from mcptrio import Context, Server, connect
from mcptrio.types import ProgressParams

server = Server("bakery")
KILL_AT = 3


@server.tool(idempotent=True)
async def bake(loaves: int, ctx: Context) -> str:
    """Bake loaves, one after the other."""
    for loaf in range(1, loaves + 1):
        await trio.sleep(0.2)
        await ctx.progress(loaf, loaves, f"worker {os.getpid()}")
    return f"{loaves} loaves, the last one by worker {os.getpid()}"


@server.tool(read_only=True)
async def whoami(ctx: Context) -> list[str]:
    """Return the process that serves this session, and the first letters of the session's id."""
    return [str(os.getpid()), ctx.session.id[:8]]


async def main(url: str) -> None:
    seen: list[float] = []
    killed = 0

    def show(progress: ProgressParams) -> None:
        nonlocal killed
        seen.append(progress.progress)
        print(f"loaf {progress.progress:g}, {progress.message}")
        if progress.progress == KILL_AT and not killed:
            killed = int(str(progress.message).split()[-1])
            print(f"kill -9 {killed}")
            os.kill(killed, signal.SIGKILL)

    # The revisions until 2025-11-25 have sessions and streams that can be resumed.
    async with connect(url, protocol="2025-11-25") as client:
        _, session = await client.call_tool("whoami", into=list[str])
        print(await client.call_tool("bake", {"loaves": 8}, on_progress=show, into=str))
        home, same = await client.call_tool("whoami", into=list[str])
    print(f"session {session} continues at worker {home}: {'yes' if same == session != '' else 'NO'}")
    print(f"every step was shown once and in order: {'yes' if seen == [*range(1, 9)] else seen}")
    if same != session or int(home) == killed or seen != [*range(1, 9)]:
        raise SystemExit(1)


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/mcp")
