"""The targets of `connect`, and the transport for each kind."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from attrs import evolve, field, frozen

from mcptrio._settings import check_value
from mcptrio.client.host_config import find_entry
from mcptrio.errors import DeclarationError
from mcptrio.transports.client import ClientTransport
from mcptrio.transports.http_status import meaning_of
from mcptrio.transports.link import LinkTransport, Transport
from mcptrio.transports.memory.client import HasMemoryLink, MemoryTransport
from mcptrio.transports.retry import Reconnect

if TYPE_CHECKING:
    import httpx2

    from mcptrio.transports.http_client import HttpAuth, HttpClientConfig

Target: TypeAlias = str | os.PathLike[str] | Sequence[str] | HasMemoryLink | Transport
"""A URL (http, https, ws, wss), the argument list of a program, a host's configuration (`mcp.json`, or with several
servers `mcp.json:NAME`), a server object in this process, or a transport."""


@frozen(kw_only=True)
class TransportOptions:
    """Settings that only some transports have."""

    headers: Mapping[str, str] = field(factory=dict)
    auth: HttpAuth | None = None
    http_client: httpx2.AsyncClient | None = None
    http: HttpClientConfig | None = None
    reconnect: Reconnect = field(factory=Reconnect)
    env: Mapping[str, str | os.PathLike[str]] = field(factory=dict)
    cwd: str | os.PathLike[str] | None = None
    on_stderr: Callable[[str], None] | None = None


def transport_for(target: Any, how: TransportOptions) -> ClientTransport:
    """Return the transport for a target.

    Raises:
        DeclarationError: it is not a valid target.
    """
    if isinstance(target, str | os.PathLike):
        if "://" not in (target := os.fspath(target)) and (entry := find_entry(target)) is not None:
            given = evolve(how, headers={**how.headers, **entry.headers}, env={**how.env, **entry.env})
            given = given if entry.cwd is None else evolve(given, cwd=entry.cwd)
            return transport_for(entry.url or list(entry.argv), given)
        scheme = target.partition("://")[0].lower()
        if scheme in ("http", "https", "ws", "wss"):
            _check_url(target)
        if scheme in ("http", "https"):
            return _http(target, how)
        if scheme in ("ws", "wss"):
            from mcptrio.transports.http_client import HttpClientConfig
            from mcptrio.transports.websocket.client import WebSocketTransport

            check_value("http", how.http, HttpClientConfig | None)
            return WebSocketTransport(
                url=target, headers=how.headers, auth=how.auth, config=how.http or HttpClientConfig()
            )
        raise DeclarationError(
            f"cannot connect to {_public(target)!r:.200}: give a URL (http://, https://, ws:// or wss://), a command "
            'as a list, such as ["mcptrio", "run", "server.py"], a file such as mcp.json, a Server, or a Transport'
        )
    if hasattr(target, "open_memory_link"):
        return MemoryTransport(target)
    if hasattr(target, "open_link"):
        return LinkTransport(target)
    if isinstance(target, Sequence) and all(isinstance(part, str | PurePath) for part in target):
        from mcptrio.transports.stdio.client import StdioTransport

        argv = [os.fspath(part) for part in target]
        return StdioTransport(argv=argv, env=how.env, cwd=how.cwd, on_stderr=how.on_stderr)
    if hasattr(target, "open") and hasattr(target, "name"):
        transport: ClientTransport = target
        return transport
    raise DeclarationError(
        f"cannot connect to {type(target).__name__}: expected a URL, a command as a list, a Server, or a Transport, "
        "which is an object with a method open_link()"
    )


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0:
            raise ValueError("it names no host" if not parts.hostname else "Port out of range 0-65535")
    except ValueError as error:
        why = str(error)
        if "@" in url:  # the error quotes a part of the password: `http://ada:pass#word@host` has the port `pass`
            why = "percent-encode signs such as # / ? @ in its user name and password, or correct its port"
        raise DeclarationError(f"cannot connect to {_public(url)!r:.200}: {why}") from None


def _public(url: str) -> str:
    """Return a URL without its user name and password."""
    return re.sub("/.*@", "//…@", url, flags=re.DOTALL)


def _http(url: str, how: TransportOptions) -> ClientTransport:
    import httpx2

    from mcptrio.transports.http_client import HttpClientConfig, HttpTransport

    check_value("http", how.http, HttpClientConfig | None)
    check_value("http_client", how.http_client, httpx2.AsyncClient | None)
    return HttpTransport(
        url=url,
        headers=how.headers,
        auth=how.auth,
        config=how.http or HttpClientConfig(),
        reconnect=how.reconnect,
        client=how.http_client,
    )


def older(transport: ClientTransport, error: Exception) -> ClientTransport | None:
    """Return the transport to try after a URL turned out not to speak Streamable HTTP; None if there is none."""
    if transport.name != "http":
        return None
    from mcptrio.transports.http_client import HttpMCPError, HttpRefused, HttpTransport
    from mcptrio.transports.legacy_sse.client import LegacySseTransport

    if not isinstance(transport, HttpTransport) or not isinstance(error, HttpRefused | HttpMCPError):
        return None
    if not meaning_of(error.status).maybe_legacy:
        return None
    return LegacySseTransport(
        url=transport.url,
        headers=transport.headers,
        auth=transport.auth,
        config=transport.config,
        reconnect=transport.reconnect,
        client=transport.client,
    )
