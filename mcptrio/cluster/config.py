"""The settings of a worker in a cluster."""

from __future__ import annotations

import os
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from mcptrio._settings import as_path, check_fields
from mcptrio.errors import DeclarationError

_MAX_SOCKET_PATH: Final = 80
"""Bytes of the directory of a unix socket; the whole path has at most 104 on some systems."""
_EVERY_ADDRESS: Final = (ip_address("0.0.0.0"), ip_address("::"))
_TLS: Final = ("forward_ca", "forward_cert", "forward_key")


class ClusterConfig(Struct, frozen=True, kw_only=True):
    """How a worker takes part in a cluster: the workers of one endpoint, which share one store."""

    lease: float = 2.0
    """Seconds that a worker may serve its sessions without hearing from the store, and after which the others take them
    over. A handler that blocks the event loop for longer loses the sessions of its worker."""
    socket_directory: str | os.PathLike[str] | None = None
    """Where the unix socket for requests of the other workers is made, in a directory of its own that only this user
    can enter; by default among the temporary files."""
    forward_address: str | None = None
    """`HOST:PORT` for requests of workers on other machines, instead of a unix socket; port 0 is any free one. The
    others connect to this host, so it is not 0.0.0.0. An address that is not of the loopback needs TLS."""
    forward_ca: str | os.PathLike[str] | None = None
    """The file of the certificate authority that has signed the certificates of all workers."""
    forward_cert: str | os.PathLike[str] | None = None
    """The file of this worker's certificate, for both directions."""
    forward_key: str | os.PathLike[str] | None = None
    """The file of its key."""
    on_store_loss: Literal["refuse", "serve"] = "refuse"
    """The treatment of requests of sessions that live here, once the store was not available for the length of a
    lease: `refuse` answers 503; `serve` goes on, although another worker may have taken a session over if only this one
    cannot reach the store. What it has answered meanwhile is lost then."""
    slot: str = "0"
    """Names the worker in logs, together with its process id."""

    def __post_init__(self) -> None:
        for name in ("socket_directory", *_TLS):
            force_setattr(self, name, as_path(getattr(self, name)))
        check_fields(self)
        if not 0.1 <= self.lease <= 3600:
            raise DeclarationError(f"ClusterConfig.lease must be 0.1 to 3600 seconds, got {self.lease!r}")
        if self.socket_directory is not None:
            if not os.path.isabs(self.socket_directory):
                raise DeclarationError(
                    f"ClusterConfig.socket_directory must be an absolute path, got {self.socket_directory!r}"
                )
            if len(os.fsencode(self.socket_directory)) > _MAX_SOCKET_PATH:
                raise DeclarationError(
                    "ClusterConfig.socket_directory is too long for a unix socket: choose a shorter path"
                )
        if not (self.slot.isascii() and self.slot.isalnum() and len(self.slot) <= 16):
            raise DeclarationError(f"ClusterConfig.slot must be 1 to 16 letters and digits, got {self.slot!r}")
        self._check_address()

    def _check_address(self) -> None:
        given = [name for name in _TLS if getattr(self, name) is not None]
        if given and len(given) < len(_TLS):
            raise DeclarationError(f"ClusterConfig.{given[0]} needs the others: {', '.join(_TLS)}")
        if self.forward_address is None:
            if given:
                raise DeclarationError(f"ClusterConfig.{given[0]} needs forward_address: a unix socket has no TLS")
            return
        host, _ = split_address(self.forward_address)
        if _as_ip(host) in _EVERY_ADDRESS:
            raise DeclarationError(
                f"ClusterConfig.forward_address {self.forward_address!r} is no address that other workers can connect "
                "to: name the one by which they reach this machine"
            )
        # The greeting of a link proves who dials, but only TLS protects what follows on a network.
        if not given and not _is_loopback(host):
            raise DeclarationError(
                f"ClusterConfig.forward_address {self.forward_address!r} is reached over a network and needs TLS: set "
                f"{', '.join(_TLS)}"
            )

    @property
    def tls(self) -> bool:
        return self.forward_cert is not None


def split_address(text: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`.

    Raises:
        DeclarationError: it is something else.
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise DeclarationError(f"ClusterConfig.forward_address must be HOST:PORT, got {text!r}")
    return host, int(port)


def _as_ip(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    address = _as_ip(host)
    return host == "localhost" if address is None else address.is_loopback
