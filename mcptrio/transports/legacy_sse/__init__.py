"""The deprecated HTTP+SSE pair of endpoints (2024-11-05): a GET that carries everything to the client, POSTs back."""

from __future__ import annotations

from mcptrio.transports.legacy_sse.server import LegacyEndpoint, LegacyLink

__all__ = ["LegacyEndpoint", "LegacyLink"]
