"""The connection guard for servers that run under Hypercorn itself: `hypercorn -k trio module:app`."""

from mcptrio.transports.http_server.hypercorn.install import install_guard

__all__ = ["install_guard"]
