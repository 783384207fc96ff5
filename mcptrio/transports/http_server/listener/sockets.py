"""Open the sockets of a listener."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import trio
from attrs import frozen

from mcptrio.transports.http_server.config import HttpConfig

_FOR_LISTENING: Final[dict[str, Any]] = {"type": socket.SOCK_STREAM, "flags": socket.AI_PASSIVE}
_NOT_HERE: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)  # a name may resolve to a family this machine lacks


@frozen(kw_only=True)
class BoundAddress:
    """The address of a listener: host and port, or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str | None = None
    tls: bool = False

    @property
    def url(self) -> str:
        """The origin a client would use; for a Unix socket, its path."""
        if self.path is not None:
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


async def open_sockets(config: HttpConfig) -> list[socket.socket]:
    """Bind and listen on every address the settings name.

    Raises:
        OSError: an address is taken, or cannot be bound.
    """
    if config.unix_path is not None:
        return [_open_unix(config.unix_path, config)]
    return _open_found(await trio.socket.getaddrinfo(config.host, config.port, **_FOR_LISTENING), config)


def open_sockets_blocking(config: HttpConfig) -> list[socket.socket]:
    """Bind and listen like `open_sockets`, in a process without an event loop.

    Raises:
        OSError: an address is taken, or cannot be bound.
    """
    if config.unix_path is not None:
        return [_open_unix(config.unix_path, config)]
    return _open_found(socket.getaddrinfo(config.host, config.port, **_FOR_LISTENING), config)


def _open_found(found: Iterable[tuple[Any, ...]], config: HttpConfig) -> list[socket.socket]:
    opened: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, kind, protocol, _, address in found:
            try:
                opened.append(_open_tcp(family, kind, protocol, address, config))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    where = ":".join(str(part) for part in address[:2])
                    raise OSError(error.errno, f"cannot listen on {where}: {error.strerror}") from error
                missing = error
        if not opened and missing is not None:
            raise missing
    except BaseException:
        for sock in opened:
            sock.close()
        raise
    return opened


def bound_address(sock: socket.socket, *, tls: bool) -> BoundAddress:
    """Return the address of a listening socket."""
    name = sock.getsockname()
    if isinstance(name, tuple):
        return BoundAddress(host=name[0], port=name[1], tls=tls)
    return BoundAddress(path=os.fsdecode(name), tls=tls)


def remove_unix_path(path: str) -> None:
    """Remove the file of a Unix socket that is no longer served."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def _open_tcp(family: int, kind: int, protocol: int, address: object, config: HttpConfig) -> socket.socket:
    sock = socket.socket(family, kind, protocol)
    try:
        if os.name != "nt":  # there it would let another program take the port over
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if config.reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)  # type: ignore[arg-type]  # as getaddrinfo gave it
        sock.listen(config.backlog)
    except BaseException:
        sock.close()
        raise
    return sock


def _open_unix(path: str, config: HttpConfig) -> socket.socket:
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        before = os.umask(0o177)  # no other user may connect before the mode is set
        try:
            sock.bind(path)
        finally:
            os.umask(before)
        os.chmod(path, config.unix_mode)
        sock.listen(config.backlog)
    except BaseException:
        sock.close()
        raise
    return sock


def _remove_stale(path: str) -> None:
    """Remove the socket file of a process that is gone; leave anything else alone."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise OSError(errno.EEXIST, f"{path} exists and is not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, f"another process serves {path}")
