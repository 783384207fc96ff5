"""Opens a page in the user's browser: one program, one argument, never a shell."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import trio

from mcptrio.auth.client.code_grant import check_page

_START_TIME: Final = 5.0


def command_for(url: str, platform: str = sys.platform) -> list[str] | None:
    """Return the command that opens a page; None on Windows, where a system call does it.

    Raises:
        AuthorizationFailed: the URL is not a web page.
    """
    check_page(url)
    if platform == "win32":
        return None
    return ["open", url] if platform == "darwin" else ["xdg-open", url]


async def open_page(url: str) -> bool:
    """Open a page; return whether a browser was found.

    Raises:
        AuthorizationFailed: the URL is not a web page.
    """
    command = command_for(url)
    if command is None:
        return await trio.to_thread.run_sync(_start_file, url)
    try:
        process = _start_program(command)
    except OSError:
        return False
    with trio.move_on_after(_START_TIME):
        # The thread stays until the process ends, and collects its exit status.
        return await trio.to_thread.run_sync(process.wait, abandon_on_cancel=True) == 0
    return True  # a browser that stays in the foreground has opened the page too


def _start_program(command: list[str]) -> subprocess.Popen[bytes]:
    # In a session of its own: neither Ctrl-C in this terminal nor the end of this program ends the browser.
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)


def _start_file(url: str) -> bool:
    try:
        os.startfile(url)  # type: ignore[attr-defined,unused-ignore]  # exists on Windows only
    except OSError:
        return False
    return True
