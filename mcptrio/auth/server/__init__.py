"""Authorization of servers with access tokens, static tokens or client certificates.

    from mcptrio.auth.server import BearerAuth
    server.run("http", auth=BearerAuth(resource="https://example.org/mcp", issuers=["https://login.example.org"]))

Everything here is pure: a check yields what has to be fetched, and `transports/bearer/` fetches it.
"""

from mcptrio.auth.server.certificates import Certificate, ClientCertificates
from mcptrio.auth.server.config import BearerAuth, Introspection
from mcptrio.auth.server.principal import Principal
from mcptrio.auth.server.static_tokens import StaticTokens

__all__ = ["BearerAuth", "Certificate", "ClientCertificates", "Introspection", "Principal", "StaticTokens"]
