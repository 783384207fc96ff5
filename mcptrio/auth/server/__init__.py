"""Authorization of a server: who may call it, proven by tokens or certificates.

    from mcptrio.auth.server import BearerAuth
    server.run("http", auth=BearerAuth(resource="https://example.org/mcp", issuers=["https://login.example.org"]))

Everything here is pure: a check says what has to be fetched, and the transport fetches it.
"""

from mcptrio.auth.server.config import BearerAuth, Introspection
from mcptrio.auth.server.principal import Principal
from mcptrio.auth.server.small import Certificate, ClientCertificates, StaticTokens

__all__ = ["BearerAuth", "Certificate", "ClientCertificates", "Introspection", "Principal", "StaticTokens"]
