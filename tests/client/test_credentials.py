"""Where credentials go: to no proxy of the environment if the server is on this machine, and into no error text."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from mcptrio import DeclarationError, Server, connect


@pytest.mark.defect("S17")
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY"])
@pytest.mark.parametrize("url", ["http://127.0.0.1:{}/mcp", "http://localhost:{}/mcp", "ws://127.0.0.1:{}/mcp"])
async def test_a_server_on_this_machine_is_reached_without_a_proxy(
    url: str, variable: str, monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery
) -> None:
    proxied: list[bytes] = []

    async def proxy(stream: trio.SocketStream) -> None:
        proxied.append(bytes(await stream.receive_some()))
        await stream.aclose()

    (listener,) = await nursery.start(partial(trio.serve_tcp, proxy, 0, host="127.0.0.1"))
    monkeypatch.setenv(variable, f"http://127.0.0.1:{listener.socket.getsockname()[1]}")
    (address,) = await nursery.start(partial(Server("here").serve_http, port=0))
    port = address.url.rpartition(":")[2]
    async with connect(url.format(port), headers={"Authorization": "Bearer secret"}) as client:
        await client.ping()
    assert proxied == []
    nursery.cancel_scope.cancel()


@pytest.mark.defect("S17")
@pytest.mark.parametrize(
    "url",
    [
        *("http://ada:secret@127.0.0.1:bad/mcp", "http://ada:secret@:80/mcp", "ws://a:secret@h:0"),
        *("http://ada:secret#1@h/mcp", "http://ada:secret/1@h/mcp", "http://ada:secret\n@h:bad/mcp"),
        "htp://ada:secret@h/mcp",
    ],
)
async def test_an_error_about_a_url_shows_no_password(url: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        async with connect(url):
            pass
    assert "secret" not in str(caught.value)
