"""A connection's stream, between its peer, its deadlines and its reader."""

from __future__ import annotations

from math import inf

import trio
from trio.testing import MockClock

from mcptrio import telemetry
from mcptrio._actors.timers import Timers
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.listener.guarded_stream import GuardedStream


async def test_a_reader_that_is_woken_and_late_looks_once_more_and_ends(autojump_clock: MockClock) -> None:
    """A loop that stood still between the last response and the reader's turn would keep it awake for ever."""
    ours, theirs = trio.socket.socketpair()
    config = HttpConfig()
    async with trio.open_nursery() as nursery:
        deadlines = Timers(lambda: nursery)
        guarded = GuardedStream(trio.SocketStream(ours), config, telemetry.Hub(), deadlines)
        await guarded.finish()
        guarded.timer.look(inf)  # the time to linger passed in the same moment
        with trio.fail_after(1):
            assert await guarded.receive_some() == b""
        guarded.kill()
        theirs.close()
        nursery.cancel_scope.cancel()


async def test_a_reader_that_is_woken_in_the_moment_it_reads_looks_again(autojump_clock: MockClock) -> None:
    """The rest of a pipelined head comes in pieces, one of them just when the response before it is complete."""
    ours, theirs = trio.socket.socketpair()
    config = HttpConfig()
    first, second = b"GET /first HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /second HTTP/1.1\r\nHost: x\r\n\r\n"
    async with trio.open_nursery() as nursery:
        deadlines = Timers(lambda: nursery)
        guarded = Interrupted(trio.SocketStream(ours), config, telemetry.Hub(), deadlines)
        await theirs.send(first)
        assert (await guarded.receive_some()).startswith(b"GET /first ")
        await theirs.send(second[:10])
        guarded.done_at = second[10:20]
        nursery.start_soon(_send_in_pieces, theirs, second[10:20], second[20:])
        assert (await guarded.receive_some()).startswith(b"GET /second ")
        guarded.kill()
        theirs.close()
        nursery.cancel_scope.cancel()


class Interrupted(GuardedStream):
    """Its response is complete in the moment in which certain bytes were read."""

    done_at = b""

    async def _read_at_once(self) -> bytes:
        data = await super()._read_at_once()
        if data == self.done_at:
            self.response_done()
        return data


async def _send_in_pieces(stream: trio.socket.SocketType, *pieces: bytes) -> None:
    for piece in pieces:
        await trio.sleep(1)
        await stream.send(piece)
