"""An endpoint whose store is a Redis server: the replies while that server is down."""

from __future__ import annotations

import trio

from mcptrio._actors.session_ids import new_session_id
from mcptrio.stores.redis import RedisStore
from tests.redis_server import running_server

from .app_for_tests import Client, head, open_endpoint, plain
from .app_for_tests import request as request_of


async def test_a_resume_that_needs_the_store_is_refused_while_its_server_is_down() -> None:
    with running_server() as server:
        store = RedisStore.from_url(server.url)
        async with open_endpoint(store=store) as endpoint:
            client = await Client.open(endpoint)
            server.stop()
            with trio.fail_after(30):
                while not store.connection._failures:
                    await trio.lowlevel.checkpoint()
            request = head("GET", mcp_session_id=new_session_id(store.secret), last_event_id="0.1.mac")
            reply = await plain(endpoint, request)
            assert reply.status == 503
            assert dict(reply.headers)[b"retry-after"] == b"1"
            assert str(server.path).encode() not in reply.body
            assert (await client.post(request_of(1, "ping"))).status == 200  # its session lives here
