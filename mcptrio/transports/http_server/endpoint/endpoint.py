"""The MCP endpoint: it decides the response, or the stream of events, to each HTTP request.

The engines only move bytes: every check and every status is here or in a module of this folder. An engine calls
`refuse_early` (sender, path, headers) and `authenticate` before it reads the body, then `answer`. `_post` decides by
the protocol revision of a message: `Sessions` serves those with sessions, `Exchanges` those without.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

import trio
from attrs import define, field

from mcptrio._actors.runtime import Runtime
from mcptrio._actors.timers import Timers
from mcptrio._eras.stateless import is_stateless
from mcptrio._peer.era import Era
from mcptrio._wire.jsonrpc import LARGE_MESSAGE, Batch, Frame, Request
from mcptrio.auth.server.errors import CredentialsRefused
from mcptrio.auth.server.principal import EXPIRED, UNIDENTIFIED, has_expired, require_principal
from mcptrio.errors import UNSUPPORTED_PROTOCOL_VERSION, DeclarationError, Overloaded, RemoteProtocolError
from mcptrio.telemetry.metrics import merge_pages
from mcptrio.transports.decoding import decode_large, decode_small, memory_to_decode
from mcptrio.transports.http_server.config import HttpConfig

from .activation import NotHere
from .admission import Admission
from .event_stream import leased
from .guard import Guard
from .message import (
    CLOSE,
    TEXT,
    Authenticator,
    HttpRequest,
    Plain,
    Stream,
    id_of,
    overloaded,
    refuse,
    refuse_browser,
    refuse_frame,
    refuse_overloaded,
    session_needed,
    unknown_session,
)
from .parts import EndpointParts
from .post import Pending, PostStream
from .routing import Routing
from .scopes import Scopes
from .stateful import Sessions
from .stateless import ExchangeLink, Exchanges

if TYPE_CHECKING:
    from mcptrio.transports.bearer.authorizer import Authorizer
    from mcptrio.transports.legacy_sse.server import LegacyEndpoint

    from .discovery import PublicDocument

logger = logging.getLogger("mcptrio.http")

Undecided: TypeAlias = PostStream | ExchangeLink
"""A response that may still become plain JSON or a stream: its `reply` waits until it is known."""

_Served = TypeVar("_Served")
_CHALLENGE: Final = ((b"www-authenticate", b"Bearer"),)
_HEALTH: Final = ("/livez", "/readyz", "/metrics")


@define(eq=False, repr=False)
class Endpoint:
    """The MCP endpoint of one runtime, and the health paths next to it.

    The `authenticator` is called before a body is read; `metrics` returns the text of /metrics. Without an
    authenticator, tools with scopes are open to all callers, or with `open_scopes=False` to none.
    """

    runtime: Runtime
    config: HttpConfig = field(factory=HttpConfig)
    metrics: Callable[[], str] | None = None
    authenticator: Authenticator | None = None
    open_scopes: bool = True
    guard: Guard = field(init=False)
    admission: Admission = field(init=False)
    parts: EndpointParts = field(init=False)
    sessions: Sessions = field(init=False)
    exchanges: Exchanges = field(init=False)
    dates: dict[str, Era] = field(init=False)
    routing: Routing = field(init=False)
    _sessions_served: bool = field(init=False)
    _answers: tuple[str, ...] = field(init=False)
    _legacy: LegacyEndpoint | None = field(init=False, default=None)
    _authorizer: Authorizer | None = field(init=False, default=None)
    """The authenticator, if it is ours."""
    _open_paths: frozenset[str] = field(init=False, default=frozenset())
    """The paths of the metadata for OAuth clients."""
    _documents: dict[str, PublicDocument] = field(init=False, factory=dict)
    """By path, the documents by which clients find this server (`HttpConfig.server_card`)."""

    def __attrs_post_init__(self) -> None:
        config, runtime = self.config, self.runtime
        if hasattr(self.authenticator, "metadata_paths"):
            self._authorizer = cast("Authorizer", self.authenticator)
            self._open_paths = self._authorizer.metadata_paths
            if runtime.store.shared:
                self._authorizer.share(runtime.store)
        self.guard = Guard(config)
        self.admission = Admission(config, runtime.supervisor, runtime.owners, runtime.hub, runtime.call_memory)
        scopes = Scopes(runtime.app.needed_scopes, self._authorizer)
        timers = Timers(lambda: runtime.supervisor.nursery)
        self.parts = EndpointParts(runtime, config, self.admission, scopes, timers)
        self.dates = runtime.app.eras.eras
        self.sessions = Sessions(self.parts, self.dates)
        self.routing = Routing(self.parts, self.sessions)
        self.exchanges = Exchanges(self.parts)
        self._sessions_served = any(era.http.sessions for era in self.dates.values())
        # basic/transports: a client accepts both. Where a stream is never sent, JSON is enough.
        self._answers = ("application/json",) if config.json_only else ("application/json", "text/event-stream")
        if config.server_card is not None:
            from .discovery import discovery_documents

            self._documents = discovery_documents(config.server_card, config.path, runtime.app.info, self.dates)
        if config.legacy_sse:
            from mcptrio.transports.legacy_sse.server import LegacyEndpoint

            self._legacy = LegacyEndpoint(self.parts, self.guard, self.sessions, self.routing)

    @property
    def calls(self) -> int:
        """The number of requests that are being served."""
        return self.admission.places.used

    # -- before the body

    def refuse_early(self, head: HttpRequest) -> Plain | None:
        """Make every check that needs no body; return why the request is refused, or None."""
        path = head.path
        if not self.open_scopes:
            head.scopes = frozenset()
        if path == self.config.path:
            refusal = self._refuse_early(head)
            return refusal if refusal is None or head.method != "GET" else refuse_browser(head, refusal)
        if path in self._open_paths:
            refusal = self.guard.check_sender(head) or self.guard.check_preflight(head, b"GET")
            return refusal or (None if head.method in ("GET", "HEAD") else _not_allowed(b"GET, HEAD"))
        if path in self._documents:
            return self._public(head)
        if self.config.health and path in _HEALTH:
            # Probes come by address, so /livez and /readyz, which reveal nothing, accept any Host.
            refusal = self.guard.check_sender(head) if path == "/metrics" else None
            head.cors = ()  # web pages may not read it
            return refusal or (None if head.method in ("GET", "HEAD") else _not_allowed(b"GET, HEAD"))
        if self._legacy is not None and path in (self.config.sse_path, self.config.messages_path):
            return self._legacy.refuse_early(head)
        return self.guard.check_sender(head) or refuse(
            404, f"nothing is served here; the endpoint is {self.config.path} (HttpConfig.path)"
        )

    def _public(self, head: HttpRequest) -> Plain:
        refusal = self.guard.check_sender(head)
        if refusal is not None and refusal.status != 403:  # pages of every origin may read these
            return refusal
        head.cors = ()
        return self._documents[head.path].answer(head)

    def _refuse_early(self, head: HttpRequest) -> Plain | None:
        if head.method == "POST":
            refusal = self.guard.check_post(head, self._answers)
        else:
            refusal = self.guard.check_sender(head)
            if refusal is None and head.method == "GET":
                refusal = self.guard.check_accept(head, ("text/event-stream",))
            elif refusal is None and head.method != "DELETE":
                methods = b"GET, POST, DELETE" if self._sessions_served else b"POST"
                refusal = self.guard.check_preflight(head, methods) or _not_allowed(methods)
        if refusal is not None:
            return refusal
        value = head.fields.get(b"mcp-protocol-version")
        if value is not None:
            head.date = value.decode("latin-1")
            head.era = self.dates.get(head.date)
        if not self._sessions_served:
            # 2026-07-28 basic/transports/streamable-http, "Earlier Streamable HTTP Revisions": session ids are ignored
            return None if head.method == "POST" else _not_allowed(b"POST")
        if head.date is not None:
            if head.era is None:
                # With a body there is an id to answer to.
                return None if head.method == "POST" else self._unsupported(head.date)
            if not head.era.http.sessions:
                return None if head.method == "POST" else _not_allowed(b"POST")
        session_id = head.fields.get(b"mcp-session-id")
        if session_id is None:
            return None if head.method == "POST" else session_needed()
        if not (session_id and session_id.isascii() and session_id.decode().isprintable() and b" " not in session_id):
            return refuse(400, "Mcp-Session-Id is not one id of visible ASCII characters")
        # With authentication the caller is checked first. A GET may replay the stream of a session that has ended.
        if self.authenticator is not None or head.method == "GET":
            return None
        head.link = self.sessions.find(head)
        if head.link is None and not self.sessions.activation.may_exist(session_id.decode(), head):
            return unknown_session()
        return None

    def _unsupported(self, date: str, request_id: int | str | None = None) -> Plain:
        # basic/transports: an invalid or unsupported version header MUST be answered with 400
        return refuse(
            400,
            f"MCP-Protocol-Version {date!a:.80} is not supported; {', '.join(self.dates)} are",
            code=UNSUPPORTED_PROTOCOL_VERSION,
            data={"supported": list(self.dates), "requested": date[:80]},
            request_id=request_id,
        )

    async def authenticate(self, head: HttpRequest) -> Plain | None:
        """Set the principal of a request, or return the response that refuses it. Engines call it before the body."""
        if not self.open_scopes:
            head.scopes = frozenset()
        if self.authenticator is None or self._for_everybody(head.path):
            return None
        try:
            found = await self.authenticator(head)
        except DeclarationError as error:  # the function gave a Principal an invalid value
            logger.error("%s %s refused: the auth function raised DeclarationError: %s", head.method, head.path, error)
            return refuse(401, UNIDENTIFIED, headers=_CHALLENGE)
        if type(found) is Plain:
            return found
        try:
            principal = require_principal(found)
        except CredentialsRefused as error:
            logger.error("%s %s refused: %s", head.method, head.path, error)
            return refuse(error.status, error.description, headers=_CHALLENGE)
        if self._authorizer is None and has_expired(principal, time.time()):  # ours has checked that itself
            return refuse(401, EXPIRED, headers=_CHALLENGE)
        head.set_principal(principal)
        return None

    def _for_everybody(self, path: str) -> bool:
        if path == "/metrics":
            return self.config.open_metrics
        return path != self.config.path and (path in _HEALTH or path in self._open_paths)

    # -- with the body

    async def answer(self, head: HttpRequest, body: bytes) -> Plain | Stream | Undecided:
        """Serve a request that `refuse_early` did not refuse."""
        if head.path == self.config.path:
            if head.method == "POST":
                size = memory_to_decode(body, self.config.json_limits)
                return await (self._post_large(head, body, size) if size else self._post(head, body))
            serve = self.sessions.listen if head.method == "GET" else self.sessions.delete
            return leased(head, await self._routed(head, body, None, partial(serve, head)))
        if self._legacy is not None and head.path in (self.config.sse_path, self.config.messages_path):
            return await self._legacy.answer(head, body)
        if head.path in self._open_paths and self._authorizer is not None:
            app = self.runtime.app
            return self._authorizer.metadata(app.all_scopes(), app.info.title or app.info.name)
        return await self._health(head.path)

    async def answer_watched(
        self, head: HttpRequest, body: bytes, gone: Callable[[], Awaitable[None]]
    ) -> Plain | Stream | None:
        """Serve a request where no stream is opened that would notice a disconnect; None once `gone` has returned."""
        reply: Plain | Stream | Undecided | None = None

        @trio.lowlevel.enable_ki_protection
        async def watch() -> None:
            await gone()
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            reply = await self.answer(head, body)
            if isinstance(reply, Pending):
                reply = await reply.reply()
            nursery.cancel_scope.cancel()
        return None if isinstance(reply, Pending) else reply

    def timed_out(self) -> Plain:
        """Build the response for a body that did not arrive in time."""
        self.parts.limit("body_timeout")
        return refuse(
            408,
            f"the body took longer than {self.config.body_timeout:g} s (HttpConfig.body_timeout), or arrived with less "
            f"than {self.config.min_body_rate} bytes per second (min_body_rate)",
            headers=(CLOSE,),
        )

    def no_room(self) -> Plain:
        """Build the response for a large body that found no memory in time."""
        self.parts.limit("max_body_memory")
        return overloaded("too many large requests are being served", 1, close=True, limit="max_body_memory")

    def too_large(self) -> Plain:
        """Build the response for a body that is larger than allowed."""
        self.parts.limit("max_body")
        return self.guard.too_large()

    # -- POST: a message of the client

    async def _post_large(self, head: HttpRequest, body: bytes, size: int) -> Plain | Stream | Undecided:
        """Serve a message that takes so much memory when it is decoded that it needs room first."""
        refusal = await self.admission.reserve_message(head, size)
        if refusal is not None:
            return refusal
        try:
            return await self._post(head, body)
        finally:
            self.admission.release_message(head)

    async def _post(self, head: HttpRequest, body: bytes) -> Plain | Stream | Undecided:
        try:
            if len(body) > LARGE_MESSAGE:
                frame = await decode_large(self.runtime, head.owner, body, self.config.json_limits)
            else:
                frame = decode_small(body, self.config.json_limits)
        except RemoteProtocolError as error:
            if error.limit is not None:
                self.parts.limit(error.limit)
            return refuse_frame(error)
        # A request that declares its date is stateless whatever the header says; the two are compared then.
        if (
            (head.era is not None and not head.era.http.sessions)
            or (type(frame) is Request and "_meta" in frame.params and is_stateless(frame.params))
            or not self._sessions_served
        ):
            if self.routing.cluster is not None and type(frame) is Request:
                elsewhere = await self.routing.stateless_elsewhere(head, body, frame)
                if elsewhere is not None:
                    return elsewhere
            return await self.exchanges.post(head, frame)
        if head.date is not None and head.era is None:
            return self._unsupported(head.date, id_of(frame))
        if self.routing.cluster is None:
            return await self.sessions.post(head, frame)
        return await self._routed(head, body, frame, partial(self.sessions.post, head, frame))

    # -- several workers

    async def _routed(
        self, head: HttpRequest, body: bytes, frame: Frame | Batch | None, serve: Callable[[], Awaitable[_Served]]
    ) -> _Served | Plain | Stream:
        """Serve a request where its session is. It is routed again if the session leaves before it has the request."""
        while (elsewhere := await self.routing.elsewhere(head, body, frame)) is None:
            try:
                return await serve()
            except NotHere:
                if head.remote is not None:
                    raise
        return elsewhere

    async def answer_forwarded(
        self, head: HttpRequest, body: bytes, *, stateless: bool, may_claim: bool
    ) -> Plain | Stream | None:
        """Serve a request that another worker has checked and forwarded; None: its session is not here.

        Then nothing was done, also if the session has left after the first look.
        """
        value = head.fields.get(b"mcp-protocol-version")
        if value is not None:
            head.date = value.decode("latin-1")
            head.era = self.dates.get(head.date)
        try:
            refusal = await self.routing.check_forwarded(head, stateless=stateless, may_claim=may_claim)
            reply = refusal or await self.answer(head, body)
        except NotHere:
            return None
        except Overloaded as error:
            return refuse_overloaded(error)
        return await reply.reply() if isinstance(reply, Pending) else reply

    # -- health

    async def _health(self, path: str) -> Plain:
        if path == "/livez":
            return Plain(200, TEXT, b"ok\n")
        if path == "/readyz":
            if self.parts.draining or not self.runtime.ready:
                return Plain(503, TEXT, b"draining\n" if self.parts.draining else b"starting\n")
            if self.runtime.stalled:
                return Plain(503, TEXT, b"the event loop was blocked\n")
            if self.routing.expired and all(era.http.sessions for era in self.dates.values()):
                return Plain(503, TEXT, b"the lease of this worker has expired\n")
            problems = ["the lease of this worker has expired"] if self.routing.expired else []
            if (degraded := self.parts.store.degraded) is not None:
                problems.append(f"the store is degraded: {degraded}")
            return Plain(200, TEXT, f"ok, but {'; '.join(problems)}\n".encode() if problems else b"ok\n")
        if self.metrics is None:
            return refuse(404, "there are no metrics here")
        page, cluster = self.metrics(), self.routing.cluster
        if cluster is not None and (others := await cluster.other_pages()):
            page = merge_pages([page, *others])
        return Plain(200, ((b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),), page.encode())


def _not_allowed(allow: bytes) -> Plain:
    return refuse(405, "this method is not served here", headers=((b"allow", allow),))
