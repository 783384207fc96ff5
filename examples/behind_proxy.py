"""A server behind a reverse proxy that terminates TLS, on a Unix socket that only the proxy can open.

    python examples/behind_proxy.py /run/mcp/mcp.sock orders.example.org

The configuration of nginx; other proxies have the same settings under other names:

    location /mcp {
        proxy_pass http://unix:/run/mcp/mcp.sock;
        proxy_set_header Host $host;            # checked against `allowed_hosts`
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;  # appends the address of the client
        proxy_http_version 1.1;
        proxy_buffering off;                    # responses may be event streams
        proxy_read_timeout 60s;                 # more than `heartbeat`, 15 seconds
        client_max_body_size 4m;                # equal to `max_body`
    }
    location /metrics { deny all; }

SIGTERM drains the server: a supervisor must wait longer than `drain_timeout` before it kills it (systemd:
TimeoutStopSec=30).
"""

from __future__ import annotations

import sys

from mcptrio import Context, Server

server = Server("behind a proxy", version="1.0.0")


@server.tool(read_only=True)
async def who_asks(ctx: Context) -> dict[str, str]:
    """Return the address of the client.

    A client can send an `X-Forwarded-For` header of its own, and each proxy appends the address that it sees. So only
    the last entry, which our own proxy wrote, is trustworthy; with two proxies in a row it is the one before the last.
    """
    headers = ctx.http.headers if ctx.http is not None else {}
    client = headers.get("x-forwarded-for", "").split(",")[-1].strip()
    return {"host": headers.get("host", ""), "client": client or "unknown"}


if __name__ == "__main__":
    socket, name = sys.argv[1:]
    server.run(
        "http",
        unix_path=socket,
        unix_mode=0o660,  # the proxy runs in the group of this process
        allowed_hosts=[name],
        allowed_origins=[f"https://{name}"],
        keep_alive_timeout=90,  # longer than that of the proxy, so that the proxy closes first
        drain_timeout=20,
    )
