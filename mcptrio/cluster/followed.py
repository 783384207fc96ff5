"""Clients of this worker that follow streams of a session which lives in another one."""

from __future__ import annotations

from typing import Final

import trio
from msgspec import field

from mcptrio._struct import Entity
from mcptrio.cluster.frames import ForwardedStream
from mcptrio.errors import Overloaded
from mcptrio.stores.base import EventStore, Follower, StreamKey, UnknownCursor
from mcptrio.transports.http_server.endpoint.calls import CallRecord, died
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.endpoint.event_stream import EventIds, StreamResponse
from mcptrio.transports.http_server.endpoint.links import STANDALONE

FOLLOW_WITHIN: Final = 10.0
"""Seconds in which the store must be available again for a stream that cannot be resumed."""
RETRY_FOLLOW: Final = 0.1


async def follow_answer(store: EventStore, answer: ForwardedStream) -> Follower:
    """Follow the stream that answers a request. The call runs: its client must not lose it to a slow moment.

    A stream that can be resumed has a prologue, with which its client comes back; the others get some time.

    Raises:
        UnknownCursor, Overloaded: the store is not available.
    """
    key = StreamKey(answer.session, answer.stream)
    until = trio.current_time() + (0.0 if answer.prologue else FOLLOW_WITHIN)
    while True:
        try:
            await store.prepare_follow(key)
            return store.follow(key, answer.after)
        except (UnknownCursor, Overloaded):
            if trio.current_time() >= until:
                raise
        await trio.sleep(RETRY_FOLLOW)


def make_response(answer: ForwardedStream, follower: Follower, endpoint: Endpoint) -> StreamResponse:
    """Build the response of a client here that follows a stream of another worker."""
    return StreamResponse(
        session=answer.session,
        ids=EventIds(endpoint.runtime.store.secret, answer.session, answer.stream) if answer.resumable else None,
        follower=follower,
        config=endpoint.config,
        hub=endpoint.runtime.hub,
        prologue=answer.prologue,
        request_id=answer.request_id,
    )


class FollowedSession(Entity):
    """A session of another worker whose streams have clients here."""

    home: str
    stateless: bool = False
    """Whether it is one stateless request, which cannot be resumed."""
    responses: dict[StreamResponse, str] = field(default_factory=dict)
    """The responses, and the names of their streams."""

    def send_back(self, *, calls: bool) -> None:
        """Have clients connect again, so that the home of the session knows them: also those of calls, or not."""
        for response, stream in list(self.responses.items()):
            if calls or stream == STANDALONE:
                self.send_one_back(response)

    def send_one_back(self, response: StreamResponse) -> None:
        """Have a client connect again. A stateless call cannot be resumed: its client gets an error."""
        if self.stateless and response.request_id is not None:
            response.say_last(died(CallRecord((response.request_id,))))
        else:
            response.say_retry()
        response.close()
