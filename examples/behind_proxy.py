"""A server behind a reverse proxy that speaks TLS for it, on a Unix socket that only the proxy can open.

    python examples/behind_proxy.py /run/mcp/mcp.sock orders.example.org

What the proxy needs to know, for nginx; others have the same settings under other names:

    location /mcp {
        proxy_pass http://unix:/run/mcp/mcp.sock;
        proxy_set_header Host $host;            # checked here against the names that are allowed
        proxy_http_version 1.1;
        proxy_buffering off;                    # answers may be event streams
        proxy_read_timeout 60s;                 # more than `heartbeat`, 15 seconds
        client_max_body_size 4m;                # as `max_body`
    }
    location /metrics { deny all; }

Stop it with SIGTERM: it drains, so give it more than `drain_timeout` before it is killed (systemd: TimeoutStopSec=30).
"""

from __future__ import annotations

import sys

from mcptrio import Context, Server

server = Server("behind a proxy", version="1.0.0")


@server.tool(read_only=True)
async def who_asks(ctx: Context) -> dict[str, str]:
    """Say where the request comes from.

    Whoever connected is the proxy. What it adds about the client is believed only because nobody else can connect.
    """
    assert ctx.http is not None
    headers = ctx.http.headers
    return {"host": headers.get("host", ""), "client": headers.get("x-forwarded-for", "unknown").split(",")[0].strip()}


if __name__ == "__main__":
    socket, name = sys.argv[1:]
    server.run(
        "http",
        unix_path=socket,
        unix_mode=0o660,  # the proxy is in the group of this process
        allowed_hosts=[name],
        allowed_origins=[f"https://{name}"],
        keep_alive_timeout=90,  # longer than the proxy keeps a connection: it closes first
        drain_timeout=20,
    )
