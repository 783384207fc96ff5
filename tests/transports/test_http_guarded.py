"""A connection's stream, between its peer, its deadlines and whoever reads it."""

from __future__ import annotations

from math import inf

import trio
from trio.testing import MockClock

from mcptrio.transports.http_server.deadlines import Deadlines
from mcptrio.transports.http_server.framing import Head
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


async def test_a_reader_that_is_woken_in_the_moment_it_reads_looks_again(autojump_clock: MockClock) -> None:
    """The rest of a pipelined head comes in pieces, one of them just when the response before it is complete."""
    ours, theirs = trio.socket.socketpair()
    config = ListenerConfig()
    first, second = b"GET /first HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /second HTTP/1.1\r\nHost: x\r\n\r\n"
    async with trio.open_nursery() as nursery:
        deadlines = Deadlines(lambda: nursery)
        guarded = Interrupted(
            trio.SocketStream(ours), RequestGate(config.framing), config, lambda event: None, deadlines
        )
        await theirs.send(first)
        heads: list[Head] = []
        with guarded.reading() as scope:
            heads.append(await _head(guarded, scope))
        await theirs.send(second[:10])
        guarded.done_at = second[10:20]
        nursery.start_soon(_send_in_pieces, theirs, second[10:20], second[20:])
        while len(heads) == 1:
            with guarded.reading() as scope:
                heads.append(await _head(guarded, scope))
            if len(heads) == 1:
                assert await guarded.look_again(), "it was woken, and is not late"
        assert [head.path for head in heads] == [b"/first", b"/second"]
        guarded.kill()
        theirs.close()
        nursery.cancel_scope.cancel()


class Interrupted(GuardedStream):
    """Its response is complete in the moment in which certain bytes were read."""

    done_at = b""

    async def _read_at_once(self) -> bytes:
        data = await super()._read_at_once()
        if data == self.done_at:
            self.next_request()
        return data


async def _send_in_pieces(stream: trio.socket.SocketType, *pieces: bytes) -> None:
    for piece in pieces:
        await trio.sleep(1)
        await stream.send(piece)


async def _head(guarded: GuardedStream, scope: trio.CancelScope) -> Head:
    part = await guarded.receive_part(scope)
    assert isinstance(part, Head), part
    return part
