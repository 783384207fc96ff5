"""Streamable HTTP, client side. Imported only when a URL is connected to, because httpx2 is slow to import."""

from __future__ import annotations

from mcptrio.transports.http_client.auth import AuthRequest, AuthResponse, HttpAuth
from mcptrio.transports.http_client.http import HttpClientConfig, HttpMCPError, HttpRefused
from mcptrio.transports.http_client.streamable import HttpTransport

__all__ = [
    "AuthRequest",
    "AuthResponse",
    "HttpAuth",
    "HttpClientConfig",
    "HttpMCPError",
    "HttpRefused",
    "HttpTransport",
]
