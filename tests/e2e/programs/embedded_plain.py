"""A Trio program that serves inside itself and leaves Ctrl-C to Trio."""

from __future__ import annotations

import signal
import sys

import trio

from mcptrio import Server

server = Server("embedded")


@server.tool
async def spin() -> str:
    """Is nearly always the task that runs."""
    with trio.move_on_after(20):
        while True:
            await trio.lowlevel.checkpoint()
    return "span"


async def main() -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: server.serve_http(port=int(sys.argv[1]), task_status=task_status))
        await trio.sleep_forever()


signal.signal(signal.SIGINT, signal.default_int_handler)  # the parent process may have set it to be ignored
trio.run(main)
