"""The link of one POST of a stateful session: an answer, or a stream that ends with it and outlives its connection."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from mcptrio import telemetry
from mcptrio._peer.messages import LinkLost, Received
from mcptrio._wire.jsonrpc import ErrorResponse, Request, decode
from mcptrio.errors import INTERNAL_ERROR, Overloaded

from .pending import Pending, Phase
from .stream import Connection, StreamLog, is_notification

if TYPE_CHECKING:
    from .links import HttpLink


class PostStream(Pending, kw_only=True):
    """The link of one POST: an answer, or a stream that ends with the answer."""

    http: HttpLink
    name: str
    patience: float
    """How long it may stay undecided."""
    json_only: bool
    on_answer: Callable[[], None] | None = None
    log: StreamLog | None = None
    _grace: trio.CancelScope | None = None
    _close_wanted: bool = False

    # -- the session's side: nothing here waits

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        if self.phase is Phase.PENDING:
            # An error that HTTP has a status for is said with that status, whatever the setting.
            if final and (status != 200 or not self.http.endpoint.config.sse_only):
                self.answer, self.status = data, status
                self._settle(Phase.ANSWERED)
            elif self.json_only or not self._open():
                self._post_elsewhere(data, final, status)
            else:
                self._append(data, final)
                if final:
                    self.answer = data
                self._wake()
        elif self.phase is Phase.STREAMING:
            self._append(data, final)
        if final:
            self._finished()

    def end(self) -> None:
        """The call ended without an answer."""
        if self.phase is Phase.PENDING:
            self._settle(Phase.OVER)
        elif self.log is not None:
            self.log.end()
        self._finished()

    async def room(self) -> None:
        if self.log is not None:
            await self.log.room()

    def close_connection(self) -> None:
        """End the connection and not the call: the client polls for the rest (SEP-1699).

        Nothing happens where a client could not come back: before 2025-11-25 it may hold no event id yet.
        """
        era = self.http.session.peer.era
        if era is None or not era.http.primes or self.json_only:
            return
        if self.phase is Phase.PENDING and self._open():
            self._close_wanted = True
            self._wake()
        elif self.log is not None and self.log.connection is not None:
            self.log.connection.say_retry()
            self.log.connection.close()

    def _append(self, data: bytes, final: bool) -> None:
        assert self.log is not None
        self.log.append(data, last=final)

    def _open(self) -> bool:
        """Turn into a stream; False if the store has no room for another one."""
        log = self.http.new_log(self.name)
        try:
            log.store.begin(log.key)
        except Overloaded:
            self.http.count(telemetry.LimitHit(name="streams", session=self.http.session.id))
            self.json_only = True
            return False
        self.log = log
        log.expected = True
        self.phase = Phase.STREAMING
        return True

    def _post_elsewhere(self, data: bytes, final: bool, status: int) -> None:
        """There is no stream to put this on."""
        if final:
            self.answer, self.status = data, status
            self._settle(Phase.ANSWERED)
        elif is_notification(data):
            self.http.count(telemetry.Dropped(kind="json_only", session=self.http.session.id))
        elif self.http.listening:
            self.http.post(data)
        else:
            # Nobody would ever answer it: say so now, as if the client had.
            frame = decode(data)
            assert isinstance(frame, Request)
            text = "the client listens to no stream that this could be asked on (json_only)"
            refusal = ErrorResponse(frame.id, INTERNAL_ERROR, text)
            self.http.session.post_nowait(Received(refusal, self))

    def _finished(self) -> None:
        self.http.forget_post(self)
        if self._grace is not None:
            self._grace.cancel()
        callback, self.on_answer = self.on_answer, None
        if callback is not None:
            callback()

    # -- the exchange's side

    def overdue(self) -> None:
        """It took too long for a plain answer."""
        if not self.json_only and self._open():
            self._wake()

    async def decided(self) -> None:
        """Wait until it is known how to answer. After it the phase is another than PENDING."""
        if not self.undecided:
            return
        if self.patience != math.inf:
            self.http.endpoint.alarm.set(self)
        try:
            await self._wait()
        except BaseException:
            # Only the shell can cancel this. Nobody holds an id to come back with; the call goes on all the same.
            if self.phase is Phase.PENDING:
                self.phase = Phase.OVER
            else:
                self.detached()
            raise

    def whole(self) -> bytes | None:
        """The whole stream, if its answer came first and can be given away at once."""
        # From a durable store it is given only when it is stored.
        if not self.answer or self._close_wanted or self.http.endpoint.store.durable:
            return None
        return self.http.whole(self.answer, self.log)

    def connect(self) -> Connection:
        """The first connection of a stream."""
        connection = self.http.follow(self.name, 0, self.log, prime=True)
        if self._close_wanted:
            connection.say_retry()
            connection.close()
        return connection

    # -- lost connections

    def detached(self) -> None:
        """No connection follows this stream any more; the call goes on for a while."""
        session = self.http.session
        if self.log is None or self.log.ended or session.ended is not None:
            return
        self.log.lost(None)
        session.start_background(self._give_up_later)

    def attached(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None

    async def _give_up_later(self) -> None:
        session = self.http.session
        era = session.peer.era
        cancels = era is not None and era.http.disconnect_cancels
        if self._grace is not None or self.log is None or self.log.ended or self.log.connection is not None:
            return  # the client was faster
        with trio.CancelScope() as self._grace:
            await trio.sleep(0 if cancels else self.http.endpoint.config.resume_grace)
            while not session.post_nowait(LinkLost(self)):  # noqa: ASYNC110 - a full inbox empties at once
                await trio.sleep(0.05)
