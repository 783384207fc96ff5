"""Our tuned Hypercorn with an app that reads the body and always says the same: what any answer costs there."""

from __future__ import annotations

from typing import Any

import trio
from filler import arguments

from mcptrio.transports.http_server.listener import Listener, ListenerConfig

BODY = b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"3"}]}}'
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]


async def app(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY, "more_body": False})


if __name__ == "__main__":
    trio.run(Listener(app, ListenerConfig(port=arguments().port)).serve)
