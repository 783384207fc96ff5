"""The queue of events that an ASGI application receives."""

from __future__ import annotations

import trio
from trio.testing import wait_all_tasks_blocked

from mcptrio.transports.http_server.hypercorn.connection import AppEvents


async def test_receive_waits_for_an_event_and_put_waits_for_room(nursery: trio.Nursery) -> None:
    inbox = AppEvents(None)
    got: list[object] = []

    async def receive() -> None:
        got.append((await inbox.receive())["type"])

    nursery.start_soon(receive)
    await wait_all_tasks_blocked()
    assert got == []
    await inbox.put({"type": "http.request", "body": b"", "more_body": True})
    await wait_all_tasks_blocked()
    assert got == ["http.request"]
    await inbox.put({"type": "http.request", "body": b"", "more_body": True})
    with trio.move_on_after(0) as impatient:
        await inbox.put({"type": "http.request", "body": b"", "more_body": True})
    assert impatient.cancelled_caught
    await inbox.put({"type": "http.disconnect"})  # never waits
    await inbox.put({"type": "http.request", "body": b"late", "more_body": True})  # nor does an unread part
    assert [(await inbox.receive())["type"] for _ in range(3)] == ["http.request", "http.disconnect", "http.disconnect"]
