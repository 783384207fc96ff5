"""A TCP port for a server that a test starts as another process."""

from __future__ import annotations

import secrets
import socket
import sys

RANGE = range(10_000, 32_000)
"""Below the ports that Linux, macOS and Windows give to outgoing connections.

A port from there could be given to a connection of another test before the server binds it.
"""
_given: set[int] = set()


def free_port() -> int:
    """Return a port that nothing listens on, a different one each time."""
    while True:
        port = secrets.choice(RANGE)
        if port not in _given and _can_bind(port):
            _given.add(port)
            return port


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        if sys.platform != "win32":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one in TIME_WAIT is free to a listener
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
