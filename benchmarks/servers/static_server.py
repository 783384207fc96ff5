"""Hypercorn behind the connection guard, with an application that always sends the same response.

Its cost is the share of a call on the Hypercorn engine that is not MCP.
"""

from __future__ import annotations

from typing import Any

import trio
from filler import arguments
from hypercorn.config import Config
from hypercorn.trio import serve

from mcptrio.hypercorn import install_guard

BODY = b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"3"}]}}'
HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", b"%d" % len(BODY)),
    (b"mcp-session-id", b"the-session-of-all-requests"),
]


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        raise NotImplementedError  # ASGI: this application does not handle lifespan events
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY, "more_body": False})


if __name__ == "__main__":
    install_guard()
    config = Config()
    config.bind = [f"127.0.0.1:{arguments().port}"]
    config.keep_alive_max_requests = 2**31  # Hypercorn closes a connection after 1,000 requests by default
    trio.run(serve, app, config)
