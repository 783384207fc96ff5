"""Where events come from: a session whose inbox is full."""

from __future__ import annotations

import trio

from mcptrio import telemetry
from mcptrio._actors.limits import Limits
from mcptrio._wire.jsonrpc import Request
from tests.actors.kit import App, ListLink, open_runtime


async def test_a_full_inbox_is_told_and_nothing_is_lost(autojump_clock: trio.testing.MockClock) -> None:
    app = App(limits=Limits(inbox=1))
    async with open_runtime(app) as runtime:
        link = ListLink()
        # Its loop has not begun: nothing is taken yet.
        session = runtime.new_session(link, transport="memory", reader=trio.sleep_forever)
        for number in range(5):
            await session.deliver(Request(number, "ping", {}), link)
        await session.wait_until_quiet()
        assert telemetry.LimitHit(name="inbox", session=session.id) in app.events
        assert [answer["id"] for answer in link.sent] == [0, 1, 2, 3, 4]
