"""A server for a deployment: every setting is a keyword of `run` and `serve_http`."""

from __future__ import annotations

from mcptrio import Server

server = Server("orders", version="1.4.0")


@server.tool(read_only=True)
async def status(order_id: str) -> str:
    """Say how far an order is."""
    return f"Order {order_id} is on its way."


if __name__ == "__main__":
    server.run(
        "http",
        host="0.0.0.0",  # behind a reverse proxy, in a container
        port=8000,
        allowed_hosts=["orders.example.org"],  # what clients may put into Host
        allowed_origins=["https://app.example.org"],  # web pages that may talk to it
        store="sqlite:///orders-streams.db",  # streams survive a restart
        drain_timeout=25.0,
    )
