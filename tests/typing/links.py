"""Every link of the package is a `SessionLink` or a `ReplyLink`, as type checkers see it."""

from __future__ import annotations

from mcptrio._actors.outbox import Outbox
from mcptrio._actors.relay import EndedLink, Relay, SilentLink
from mcptrio._peer.link import ReplyLink, RequestHead, SessionLink
from mcptrio.client.connection import Connection
from mcptrio.extensions.tasks.run import TaskRun
from mcptrio.transports.http_server.endpoint.links import HttpLink
from mcptrio.transports.http_server.endpoint.message import HttpRequest
from mcptrio.transports.http_server.endpoint.post import PostStream
from mcptrio.transports.http_server.endpoint.stateless import ExchangeLink
from mcptrio.transports.legacy_sse.server import LegacyLink
from mcptrio.transports.pipe.server import PipeLink


def links_of_sessions(
    pipe: PipeLink, http: HttpLink, sse: LegacyLink, client: Connection, ended: EndedLink
) -> list[SessionLink]:
    return [pipe, http, sse, client, ended]


def links_of_requests(
    post: PostStream, exchange: ExchangeLink, task: TaskRun, relay: Relay, silent: SilentLink
) -> list[ReplyLink]:
    return [post, exchange, task, relay, silent]


def head_of_a_request(head: HttpRequest) -> RequestHead:
    return head


def an_outbox_is_no_link(outbox: Outbox) -> ReplyLink:
    return outbox  # type: ignore[return-value]  # pyright: ignore[reportReturnType]
