"""Known callers without an authorization server."""

from __future__ import annotations

from mcptrio import Context, Server
from mcptrio.auth.server import ClientCertificates, Principal, StaticTokens

server = Server("desk", version="1.0.0")


@server.tool(scopes=["orders:read"])
async def greet(ctx: Context) -> str:
    """Greet the caller."""
    return f"Hello {ctx.principal.subject}"


def serve_with_tokens(ada: str, bob: str) -> None:
    """The tokens come from the environment or a file, never from the code."""
    tokens = {ada: Principal(subject="ada", scopes="orders:read"), bob: Principal(subject="bob")}
    server.run("http", auth=StaticTokens(tokens))


def serve_with_certificates() -> None:
    """By the common name of a certificate that our own authority issued."""
    people = ClientCertificates({"ada": Principal(subject="ada", scopes="orders:read")})
    server.run("http", auth=people, certfile="server.pem", client_ca="our-ca.pem")
