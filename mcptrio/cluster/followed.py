"""Clients of this worker that follow streams of a session which lives in another one."""

from __future__ import annotations

from msgspec import field

from mcptrio._struct import Entity
from mcptrio.cluster.frames import ForwardedStream
from mcptrio.stores.base import Follower
from mcptrio.transports.http_server.endpoint.calls import CallRecord, died
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.endpoint.event_stream import EventIds, StreamResponse
from mcptrio.transports.http_server.endpoint.links import STANDALONE


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
            if self.stateless and response.request_id is not None:
                response.say_last(died(CallRecord((response.request_id,))))
                response.close()
            elif calls or stream == STANDALONE:
                response.say_retry()
                response.close()
