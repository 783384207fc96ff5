"""A handler that leaves a cancel scope open, which Trio cannot allow, harms its own connection at most."""

from __future__ import annotations

import pytest
import trio

from mcptrio import Server
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.hypercorn.asgi import AsgiApp
from tests import engines
from tests.engines import both_engines
from tests.stateless.kit import DATE, meta
from tests.transports.app_for_tests import request

from .http_peer import HttpClient
from .raw_peer import Served, get, read_all, serving

pytestmark = both_engines


def leaky() -> Server:
    server = Server("leaky")

    @server.tool
    async def leak(seconds: float) -> str:
        trio.move_on_after(seconds).__enter__()  # as a generator does that is left in the middle
        return "leaked"

    @server.tool
    async def echo(text: str) -> str:
        await trio.lowlevel.checkpoint()
        return text

    return server


async def call(server: Served, tool: str, **arguments: object) -> bytes:
    body = request(1, "tools/call", name=tool, arguments=arguments, _meta=meta())
    headers = {"mcp_protocol_version": DATE, "mcp_method": "tools/call", "mcp_name": tool}
    return await (await HttpClient(server).send("POST", body, **headers)).body()


@pytest.mark.defect("C22")
@pytest.mark.parametrize("seconds", [0.05, 1000], ids=["and its time comes", "for long"])
async def test_a_scope_that_a_handler_leaves_open_disturbs_no_other_connection(seconds: float) -> None:
    """Only that handler fails, also where it ran in the task of its connection."""
    server = leaky()
    async with server._app.make_runtime().open() as runtime:
        endpoint = Endpoint(runtime, HttpConfig())
        direct = endpoint if engines.current() == "direct" else None
        async with serving(AsgiApp(endpoint), direct=direct) as served, await served.connect() as other:
            for _ in range(3):
                assert b"internal error" in await call(served, "leak", seconds=seconds)
            await trio.sleep(0.2)
            assert not served.caught()
            assert b"fine" in await call(served, "echo", text="fine")
            await other.send_all(get("/livez", close=True))
            assert b"200" in await read_all(other), "a connection that was there all the time"
        assert not runtime.supervisor.exchanges
