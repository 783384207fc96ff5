"""Opening a page in the person's browser: one program, one argument, never a shell."""

from __future__ import annotations

import os
import subprocess
import sys

import trio

from mcptrio.auth.client.code_grant import check_page


def command_for(url: str, platform: str = sys.platform) -> list[str] | None:
    """The program that opens a page, as its list of arguments; None where there is none but a call of the system.

    Raises:
        AuthorizationFailed: it is not a page to open.
    """
    check_page(url)
    if platform == "win32":
        return None
    return ["open", url] if platform == "darwin" else ["xdg-open", url]


async def open_page(url: str) -> bool:
    """Open a page; says whether a browser was found.

    Raises:
        AuthorizationFailed: it is not a page to open.
    """
    command = command_for(url)
    if command is None:
        return await trio.to_thread.run_sync(_start_file, url)
    quiet = subprocess.DEVNULL
    try:
        with trio.move_on_after(5) as patience:  # a browser that stays in the foreground has opened the page too
            done = await trio.run_process(command, stdin=quiet, stdout=quiet, stderr=quiet, check=False)
            return done.returncode == 0
    except OSError:
        return False
    return patience.cancelled_caught


def _start_file(url: str) -> bool:
    try:
        os.startfile(url)  # type: ignore[attr-defined,unused-ignore]  # exists on Windows only
    except OSError:
        return False
    return True
