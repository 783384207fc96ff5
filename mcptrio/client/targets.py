"""What `connect` can be given, and which transport that means."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from attrs import field, frozen

from mcptrio.errors import DeclarationError
from mcptrio.transports.carrier import Carrier
from mcptrio.transports.memory_client import HasMemoryLink, MemoryCarrier

Target: TypeAlias = str | Sequence[str] | HasMemoryLink
"""A URL (http, https, ws, wss), the argument list of a program, or a server object in this process."""


@frozen(kw_only=True)
class HowToReach:
    """The settings that only some transports have."""

    headers: Mapping[str, str] = field(factory=dict)
    auth: Any = None
    http_client: Any = None
    http: Any = None
    """An `HttpClientConfig`."""
    env: Mapping[str, str] = field(factory=dict)
    cwd: str | os.PathLike[str] | None = None
    on_stderr: Callable[[str], None] | None = None


def carrier_for(target: Any, how: HowToReach) -> Carrier:
    """The transport for a target.

    Raises:
        DeclarationError: it is nothing that can be connected to.
    """
    if isinstance(target, str):
        scheme = target.partition("://")[0].lower()
        if scheme in ("http", "https", "ws", "wss"):
            _check_url(target)
        if scheme in ("http", "https"):
            return _http(target, how)
        if scheme in ("ws", "wss"):
            from mcptrio.transports.http_client import HttpClientConfig
            from mcptrio.transports.websocket_client import WebSocketCarrier

            return WebSocketCarrier(
                url=target, headers=how.headers, auth=how.auth, config=how.http or HttpClientConfig()
            )
        raise DeclarationError(
            f"cannot connect to {target!r:.200}: give a URL (http://, https://, ws:// or wss://), a command as a "
            'list, such as ["mcptrio", "run", "server.py"], or a Server'
        )
    if hasattr(target, "open_memory_link"):
        return MemoryCarrier(target)
    if isinstance(target, Sequence) and all(isinstance(part, str | PurePath) for part in target):
        from mcptrio.transports.subprocess import SubprocessCarrier

        argv = [os.fspath(part) for part in target]
        return SubprocessCarrier(argv=argv, env=how.env, cwd=how.cwd, on_stderr=how.on_stderr)
    if hasattr(target, "open") and hasattr(target, "name"):
        carrier: Carrier = target
        return carrier
    raise DeclarationError(f"cannot connect to {type(target).__name__}")


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0:
            raise ValueError("it names no host" if not parts.hostname else "Port out of range 0-65535")
    except ValueError as error:
        raise DeclarationError(f"cannot connect to {url!r:.200}: {error}") from None


def _http(url: str, how: HowToReach) -> Carrier:
    from mcptrio.transports.http_client import HttpCarrier, HttpClientConfig

    return HttpCarrier(
        url=url,
        headers=how.headers,
        auth=how.auth,
        config=how.http or HttpClientConfig(),
        client=how.http_client,
    )


def older(carrier: Carrier, error: Exception) -> Carrier | None:
    """The transport to try when a URL turned out not to speak Streamable HTTP; None if there is none."""
    if carrier.name != "http":
        return None
    from mcptrio.transports.http_client import HttpCarrier, HttpMcpError, HttpRefused, LegacySseCarrier

    # basic/transports, Backwards Compatibility: 400, 404 or 405 to a POST may mean HTTP+SSE
    if not isinstance(carrier, HttpCarrier) or not isinstance(error, HttpRefused | HttpMcpError):
        return None
    if error.status not in (400, 404, 405):
        return None
    return LegacySseCarrier(
        url=carrier.url, headers=carrier.headers, auth=carrier.auth, config=carrier.config, client=carrier.client
    )
