"""Where events come from: the accept loop's, as telemetry, and a session whose inbox is full."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import trio

from mcptrio import telemetry
from mcptrio._actors.call import Limits
from mcptrio._wire.jsonrpc import Request
from mcptrio.transports.http_server import guarded
from mcptrio.transports.http_server.report import as_telemetry, limit_of, report_to
from tests.actors.kit import App, ListLink, open_runtime

ERROR = ValueError("defect")
TOLD: list[tuple[Any, telemetry.Event]] = [
    (guarded.ConnectionOpened(client="c"), telemetry.ConnectionEvent(kind="opened", detail="c")),
    (guarded.ConnectionEnded(client="c", requests=2), telemetry.ConnectionEvent(kind="ended", detail="c")),
    (guarded.ConnectionRefused(client="c"), telemetry.ConnectionEvent(kind="refused", detail="c")),
    (
        guarded.RequestRefused(client="c", status=400, reason="bad head"),
        telemetry.ConnectionEvent(kind="request_refused", detail="c 400 bad head"),
    ),
    (guarded.HandshakeFailed(client="c"), telemetry.ConnectionEvent(kind="handshake_failed", detail="c")),
    (guarded.WriteTimedOut(client="c"), telemetry.ConnectionEvent(kind="write_timeout", detail="c")),
    (guarded.MessageTooLarge(client="c"), telemetry.ConnectionEvent(kind="message_too_large", detail="c")),
    (guarded.AppFailed(client="c", error=ERROR), telemetry.GuardCaught(layer="connection", error=ERROR)),
    (guarded.GuardCaught(client="c", error=ERROR), telemetry.GuardCaught(layer="connection", error=ERROR)),
    (
        guarded.AcceptFailed(error=OSError("no files")),
        telemetry.ConnectionEvent(kind="accept_failed", detail="no files"),
    ),
]


@pytest.mark.parametrize(("event", "told"), TOLD, ids=[type(event).__name__ for event, _ in TOLD])
def test_what_the_accept_loop_tells_becomes_telemetry(event: Any, told: telemetry.Event) -> None:
    assert as_telemetry(event) == told
    heard: list[telemetry.Event] = []
    report_to(telemetry.Hub([heard.append]))(event)
    limit = limit_of(event)
    assert heard == [told] + ([] if limit is None else [telemetry.LimitHit(name=limit)])


def test_every_event_of_the_accept_loop_is_in_the_table() -> None:
    assert {type(event) for event, _ in TOLD} == set(get_args(guarded.ListenerEvent))


async def test_a_full_inbox_is_told_and_nothing_is_lost(autojump_clock: trio.testing.MockClock) -> None:
    app = App(limits=Limits(inbox=1))
    async with open_runtime(app) as runtime:
        link = ListLink()
        # Its loop has not begun: nothing is taken yet.
        session = runtime.new_session(link, transport="memory", carrier=trio.sleep_forever)
        for number in range(5):
            await session.deliver(Request(number, "ping", {}), link)
        await session.wait_until_quiet()
        assert telemetry.LimitHit(name="inbox", session=session.id) in app.events
        assert [answer["id"] for answer in link.sent] == [0, 1, 2, 3, 4]
