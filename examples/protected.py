"""A server for known callers: they bring access tokens of an authorization server, and tools ask for scopes.

    python examples/protected.py ISSUER [PORT]
    mcptrio run examples/protected.py --transport http --token-file tokens      without one; see mcptrio run --help

ISSUER names the authorization server, as in https://login.example.org; clients learn of it with their first 401.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from mcptrio import Context, Server, ToolError
from mcptrio.auth.server import BearerAuth, Principal


@dataclass
class Order:
    number: int
    total: float
    refunded_by: str | None = None


@dataclass
class Decision:
    refund: bool


ORDERS = {7: Order(7, 120.0), 8: Order(8, 19.9)}
server = Server("protected", version="1.0.0", instructions="Look up and refund orders.")


@server.tool(read_only=True)
async def whoami(ctx: Context) -> dict[str, str]:
    """Say who is calling. Every caller may."""
    who = ctx.principal or Principal(subject="anyone")  # served without auth=
    return {"subject": who.subject or "", "client": who.client_id or "", "scopes": " ".join(sorted(who.scopes))}


@server.tool(read_only=True, scopes=["orders:read"])
async def order(number: int) -> Order:
    """Look up an order."""
    if number not in ORDERS:
        raise ToolError(f"There is no order {number}.")
    return ORDERS[number]


@server.tool(destructive=True, scopes=["orders:read", "orders:write"], rate=2)
async def refund(number: int, ctx: Context) -> str:
    """Refund an order after asking the user."""
    answer = await ctx.elicit(f"Refund order {number}?", Decision)
    if answer.value is None or not answer.value.refund:
        raise ToolError("The user declined.")
    ORDERS[number].refunded_by = ctx.principal.subject if ctx.principal else None
    return f"Order {number} is refunded."


@server.resource("orders://{number}", mime_type="application/json", scopes=["orders:read"])
async def order_resource(number: int) -> Order:
    """An order."""
    return ORDERS[number]


def protection(issuer: str, port: int) -> BearerAuth:
    """Accept tokens that this issuer made for this server. The write scope implies the read scope."""
    return BearerAuth(
        resource=f"http://127.0.0.1:{port}/mcp",  # in production: the public https address
        issuers=[issuer],
        implies={"orders:write": ["orders:read"]},
        dpop=True,
    )


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python examples/protected.py ISSUER [PORT]")
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 8000
    server.run("http", port=port, auth=protection(sys.argv[1], port))
