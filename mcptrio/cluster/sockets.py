"""The sockets between workers: a unix socket in a private directory, or TCP, with TLS on a network."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import stat
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final, cast

import trio

from mcptrio.cluster.config import ClusterConfig, split_address

BACKLOG: Final = 64
FOLDER: Final = "mcptrio-link-"
"""Begins the names of the directories with unix sockets."""
FRESH: Final = 60.0
"""Seconds in which a directory that is not locked is left alone: its process may be about to lock it."""
_TCP: Final = "tcp:"
_SILENCE: Final = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 10_000}
"""Options that end a connection about ten seconds after the last sign of its peer."""


@asynccontextmanager
async def open_link_listener(config: ClusterConfig) -> AsyncIterator[tuple[trio.abc.Listener[trio.abc.Stream], str]]:
    """Open the socket for other workers; yields the listener, and the address that others dial.

    Raises:
        OSError: the address or the certificate cannot be used.
    """
    if config.forward_address is None:
        with _private_folder(os.fspath(config.socket_directory or tempfile.gettempdir())) as folder:
            path = os.path.join(folder, "link")
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listening.bind(path)
            listening.listen(BACKLOG)
            async with trio.SocketListener(trio.socket.from_stdlib_socket(listening)) as listener:
                yield listener, path
        return
    if config.tls:
        _check_certificate(config)
    host, port = split_address(config.forward_address)
    try:
        (tcp, *others) = await trio.open_tcp_listeners(port, host=host, backlog=BACKLOG)
    except OSError as error:
        text = f"cannot listen on {config.forward_address} (--forward-address): {error.strerror or error}"
        raise OSError(error.errno, text) from error
    for other in others:  # a name with several addresses
        await other.aclose()
    _notice_silence(tcp.socket)
    bound: int = tcp.socket.getsockname()[1]
    async with tcp:
        secured = trio.SSLListener(tcp, _context(config, ssl.Purpose.CLIENT_AUTH)) if config.tls else tcp
        yield cast("trio.abc.Listener[trio.abc.Stream]", secured), f"{_TCP}{host}:{bound}"


@contextmanager
def _private_folder(parent: str) -> Iterator[str]:
    """Make a directory that only this user can enter. It is locked as long as this process lives.

    Directories of processes that were killed are removed first: the system has released their locks.
    """
    with suppress(OSError):
        for entry in os.scandir(parent):
            if entry.name.startswith(FOLDER):
                _remove_stale(entry)
    folder = tempfile.mkdtemp(prefix=FOLDER, dir=parent)
    try:
        with _locked(folder):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_stale(entry: os.DirEntry[str]) -> None:
    with suppress(OSError):
        found = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and time.time() - found.st_mtime > FRESH:
            with _locked(entry.path):
                shutil.rmtree(entry.path, ignore_errors=True)


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Lock a directory. This also keeps programs that tidy temporary files from removing it.

    Raises:
        BlockingIOError: another process has locked it.
    """
    import fcntl  # missing on Windows, where there are no workers

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


async def dial(address: str, config: ClusterConfig) -> trio.abc.Stream:
    """Connect to the socket of another worker.

    Raises:
        OSError, trio.BrokenResourceError: it cannot be reached.
    """
    if not address.startswith(_TCP):
        return await trio.open_unix_socket(address)
    host, port = split_address(address.removeprefix(_TCP))
    stream = await trio.open_tcp_stream(host, port)
    _notice_silence(stream.socket)
    return trio.SSLStream(stream, _context(config, ssl.Purpose.SERVER_AUTH)) if config.tls else stream


def _notice_silence(sock: trio.socket.SocketType) -> None:
    """Have the system end a connection whose peer is silent. Connections that are accepted get this from their socket.

    A request has no deadline of its own, and a worker behind a network that drops packets still renews its lease.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _SILENCE.items():
        if hasattr(socket, name):  # of Linux; others use their own times
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _context(config: ClusterConfig, purpose: ssl.Purpose) -> ssl.SSLContext:
    """Both sides show a certificate of the cluster's own authority, so that names need not be checked."""
    files = f"--forward-ca {config.forward_ca}"
    try:
        context = ssl.create_default_context(purpose, cafile=config.forward_ca)
        files = f"--forward-cert {config.forward_cert} and --forward-key {config.forward_key}"
        context.load_cert_chain(str(config.forward_cert), config.forward_key)
    except OSError as error:  # also those of ssl
        raise OSError(error.errno, f"{files} cannot be used: {error.strerror or error}") from error
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _check_certificate(config: ClusterConfig) -> None:
    """Shake hands with itself: otherwise a certificate that no worker accepts is noticed with the first request.

    Raises:
        OSError: the authority does not accept the certificate.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = _context(config, ssl.Purpose.CLIENT_AUTH).wrap_bio(to_server, to_client, server_side=True)
    client = _context(config, ssl.Purpose.SERVER_AUTH).wrap_bio(to_client, to_server)
    try:
        for end in (client, server, client, server):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", None) or error.reason or str(error)
        text = f"--forward-ca {config.forward_ca} does not accept --forward-cert {config.forward_cert}: {reason}"
        raise OSError(error.errno, text) from error
