"""A connection's stream, between its peer, its deadlines and whoever reads it."""

from __future__ import annotations

from math import inf

import trio
from trio.testing import MockClock

from mcptrio.transports.http_server.deadlines import Deadlines
from mcptrio.transports.http_server.gate import RequestGate
from mcptrio.transports.http_server.guarded import GuardedStream
from mcptrio.transports.http_server.serve import ListenerConfig


async def test_a_reader_that_is_woken_and_late_looks_once_more_and_ends(autojump_clock: MockClock) -> None:
    """A loop that stood still between the last response and the reader's turn would keep it awake for ever."""
    ours, theirs = trio.socket.socketpair()
    config = ListenerConfig()
    async with trio.open_nursery() as nursery:
        deadlines = Deadlines(lambda: nursery)
        gate = RequestGate(config.framing)
        guarded = GuardedStream(trio.SocketStream(ours), gate, config, lambda event: None, deadlines)
        await guarded.finish()
        guarded.look(inf)  # the time to linger passed in the same moment
        turns = 0
        while True:
            with guarded.reading():
                assert guarded.interrupted
            turns += 1
            if not await guarded.look_again():
                break
            assert turns < 3
        guarded.kill()
        theirs.close()
        nursery.cancel_scope.cancel()
