"""Listening sockets that a service manager opened: systemd socket activation (sd_listen_fds(3))."""

from __future__ import annotations

import os
import socket
from typing import Final

from mcptrio.errors import DeclarationError

_FIRST: Final = 3  # SD_LISTEN_FDS_START
_VARIABLES: Final = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


def inherited_sockets() -> list[socket.socket]:
    """Return the sockets that were passed to this process, and remove the variables that announce them.

    Raises:
        DeclarationError: what was passed is not a listening stream socket.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []  # none, or they were meant for another process
    count = os.environ.get("LISTEN_FDS", "")
    for name in _VARIABLES:
        os.environ.pop(name, None)  # not for child processes
    if not count.isdecimal():
        raise DeclarationError(f"LISTEN_FDS must be a number of sockets, got {count!r}")
    return [_listening(fd) for fd in range(_FIRST, _FIRST + int(count))]


def _listening(fd: int) -> socket.socket:
    try:
        os.set_inheritable(fd, False)
        found = socket.socket(fileno=fd)
        fits = found.type == socket.SOCK_STREAM and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise DeclarationError(f"LISTEN_FDS: descriptor {fd} cannot be used: {error.strerror}") from None
    if not fits:
        raise DeclarationError(f"LISTEN_FDS: descriptor {fd} is not a listening stream socket (Accept=no in systemd)")
    return found
