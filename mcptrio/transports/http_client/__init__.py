"""Streamable HTTP and HTTP+SSE, client side. Imported only when a URL is connected to: httpx2 is slow to import."""

from __future__ import annotations

from mcptrio.transports.http_client.auth import AuthRequest, AuthResponse, HttpAuth
from mcptrio.transports.http_client.http import HttpClientConfig, HttpMcpError, HttpRefused
from mcptrio.transports.http_client.legacy import LegacySseCarrier
from mcptrio.transports.http_client.streamable import HttpCarrier

__all__ = [
    "AuthRequest",
    "AuthResponse",
    "HttpAuth",
    "HttpCarrier",
    "HttpClientConfig",
    "HttpMcpError",
    "HttpRefused",
    "LegacySseCarrier",
]
