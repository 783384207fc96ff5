"""The keys of an issuer that is only reachable through a proxy."""

from __future__ import annotations

import json
from functools import partial

import pytest
import trio

from mcptrio.errors import DeclarationError
from mcptrio.transports.bearer.issuers import IssuerClient
from tests.auth.server.kit import jwks, settings

ISSUER = "http://127.0.0.1:9"


async def test_requests_to_the_issuer_go_through_the_proxy_of_the_settings() -> None:
    asked: list[bytes] = []

    async def proxy(stream: trio.SocketStream) -> None:
        async with stream:
            request = b""
            while not request.endswith(b"\r\n\r\n"):
                request += await stream.receive_some()
            asked.append(request.partition(b"\r\n")[0])
            body = json.dumps(jwks()).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            await stream.send_all(head.encode() + body)

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            (listener,) = await nursery.start(partial(trio.serve_tcp, host="127.0.0.1"), proxy, 0)
            port = listener.socket.getsockname()[1]
            auth = settings(issuers=[ISSUER], jwks=None, jwks_uri=f"{ISSUER}/keys", proxy=f"http://127.0.0.1:{port}")
            issuers = IssuerClient(auth)
            assert len(await issuers.keys(ISSUER, None)) == 2
            await issuers.close()
            nursery.cancel_scope.cancel()
    assert asked == [b"GET http://127.0.0.1:9/keys HTTP/1.1"]


@pytest.mark.parametrize("proxy", ["", "proxy:3128", "ftp://proxy.example.org", "http://", "http://a b"])
def test_a_proxy_that_is_no_url_is_refused(proxy: str) -> None:
    with pytest.raises(DeclarationError, match=r"BearerAuth\.proxy"):
        settings(proxy=proxy)


def test_the_proxy_is_not_shown_because_it_may_hold_a_password() -> None:
    assert "secret" not in repr(settings(proxy="http://me:secret@proxy.example.org:3128"))
