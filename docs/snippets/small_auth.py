"""Known callers without an authorization server."""

from __future__ import annotations

from functools import partial

import trio

from mcptrio import Context, Server, connect
from mcptrio.auth.server import ClientCertificates, Principal, StaticTokens
from mcptrio.http import HttpRequest, Plain

server = Server("desk", version="1.0.0")


@server.tool(scopes=["orders:read"])
async def greet(ctx: Context) -> str:
    """Greet the caller."""
    return f"Hello {ctx.principal.subject if ctx.principal else 'stranger'}"


def serve_with_tokens(ada: str, bob: str) -> None:
    """The tokens come from the environment or a file, never from the code."""
    tokens = {ada: Principal(subject="ada", scopes="orders:read"), bob: Principal(subject="bob")}
    server.run("http", auth=StaticTokens(tokens))


def serve_with_certificates() -> None:
    """By the common name of a certificate that our own authority issued."""
    people = ClientCertificates({"ada": Principal(subject="ada", scopes="orders:read")})
    server.run("http", auth=people, certfile="server.pem", client_ca="our-ca.pem")


async def call_with_token(url: str, token: str) -> str:
    """A caller without the scope gets an `MCPError` that names it."""
    async with connect(url, headers={"Authorization": f"Bearer {token}"}) as client:
        return (await client.call_tool("greet", {})).text


async def serve_for_a_test(token: str) -> str:
    """Scopes are checked over HTTP only, so a test of them needs a port; 0 is a free one."""
    people = StaticTokens({token: Principal(subject="ada", scopes="orders:read")})
    async with trio.open_nursery() as nursery:
        addresses = await nursery.start(partial(server.serve_http, port=0, auth=people))
        greeting = await call_with_token(f"{addresses[0].url}/mcp", token)
        nursery.cancel_scope.cancel()
    return greeting


async def verify(head: HttpRequest) -> Principal | Plain:
    """The names and values of headers are bytes, the names in lower case."""
    scheme, _, token = dict(head.headers).get(b"authorization", b"").decode("latin-1").partition(" ")
    caller = await look_up(token) if scheme.lower() == "bearer" else None
    return caller or Plain(401, ((b"www-authenticate", b"Bearer"),))


async def look_up(token: str) -> Principal | None:
    """Ask your database here."""
    return Principal(subject="ada", scopes="orders:read") if token == "a" * 32 else None
