"""The exchange: what a request means. A head and a body go in, a response or a stream of events comes out.

Pure of any server: shells (`app` for ASGI, the express lane of the listener) only move bytes, so that every check and
every status is here. The order of the checks is the order of this file: who is asked and from where, which thing is
asked for, in which form; then, with the body read, what it says.

A request of a date without sessions is told from the others in `post`, before a session is looked for: `Exchanges`
serves it then, and not `Sessions`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Final, cast

from attrs import define, field

from mcptrio import telemetry
from mcptrio._actors.runtime import Runtime
from mcptrio._actors.session import Session
from mcptrio._eras.choose import Served
from mcptrio._eras.stateless import is_stateless
from mcptrio._peer.era import Era
from mcptrio._wire.headers import is_visible_ascii
from mcptrio._wire.jsonrpc import Batch, Frame, Request, decode
from mcptrio.errors import UNSUPPORTED_PROTOCOL_VERSION, RemoteProtocolError
from mcptrio.stores.base import Store

from .admission import Admission, retry_after
from .alarm import Alarm
from .bodies import Bodies
from .config import HttpConfig
from .deadlines import Deadlines
from .exchange import Exchanges
from .guard import Guard
from .lease import leased
from .message import TEXT, Authenticator, Head, Headers, Loan, Plain, Stream, overloaded, refuse, refuse_frame
from .sessions import Sessions, session_needed, unknown_session

if TYPE_CHECKING:
    from .authorize import Authorizer

_HEALTH: Final = ("/livez", "/readyz", "/metrics")


@define(eq=False, repr=False)
class Endpoint:
    """The MCP endpoint of one runtime, and what is served beside it.

    `authenticator` is asked before a body is read; `metrics` gives the text of /metrics. Without an authenticator, what
    asks for scopes is open to everybody, or with `open_scopes=False` to nobody.
    """

    runtime: Runtime
    config: HttpConfig = field(factory=HttpConfig)
    metrics: Callable[[], str] | None = None
    authenticator: Authenticator | None = None
    open_scopes: bool = True
    guard: Guard = field(init=False)
    alarm: Alarm = field(init=False)
    """Rings when a call has lasted so long that it becomes a stream."""
    deadlines: Deadlines = field(init=False)
    """Of streams that must not be silent for too long."""
    admission: Admission = field(init=False)
    bodies: Bodies = field(init=False)
    sessions: Sessions = field(init=False)
    exchanges: Exchanges = field(init=False)
    listeners: int = 0
    """Requests that stay open to hear of changes; they are not counted among the others."""
    dates: dict[str, Era] = field(init=False)
    _sessions_served: bool = field(init=False)
    _answers: tuple[str, ...] = field(init=False)
    _needed_scopes: Callable[..., tuple[str, ...]] = field(init=False)
    _legacy: Any = None
    _authorizer: Authorizer | None = field(init=False, default=None)
    """The authenticator, if it is ours and can say more."""
    _open_paths: frozenset[str] = field(init=False, default=frozenset())
    """Where OAuth clients find out what to do."""

    def __attrs_post_init__(self) -> None:
        self.guard = Guard(self.config)
        self.alarm = Alarm(self.config.stream_after, lambda: self.runtime.supervisor.nursery)
        self.deadlines = Deadlines(lambda: self.runtime.supervisor.nursery)
        self.admission = Admission(self)
        self.bodies = Bodies(self.config.max_body_memory, self.config.max_body, self.config.body_timeout)
        if hasattr(self.authenticator, "metadata_paths"):
            self._authorizer = cast("Authorizer", self.authenticator)
            self._open_paths = self._authorizer.metadata_paths
        self.sessions = Sessions(self)
        self.exchanges = Exchanges(self)
        self.dates = cast(Served, self.runtime.app.eras).eras
        self._needed_scopes = getattr(self.runtime.app, "needed_scopes", lambda *_: ())
        self._sessions_served = any(era.http.sessions for era in self.dates.values())
        # basic/transports: a client lists both. Where a stream is never sent the other one will do.
        self._answers = ("application/json",) if self.config.json_only else ("application/json", "text/event-stream")
        if self.config.legacy_sse:
            from mcptrio.transports.legacy_sse import LegacyEndpoint

            self._legacy = LegacyEndpoint(self)

    @property
    def store(self) -> Store:
        store: Store = self.runtime.store
        return store

    @property
    def hub(self) -> telemetry.Hub:
        return self.runtime.hub

    @property
    def calls(self) -> int:
        """Requests being served."""
        return self.admission.calls

    @property
    def draining(self) -> bool:
        return self.runtime.supervisor.draining

    # -- before the body

    def refuse_early(self, head: Head) -> Plain | None:
        """Every check that needs no body."""
        if head.passed:
            return self._refuse_stranger(head)
        path = head.path
        if not self.open_scopes:
            head.scopes = frozenset()
        if path == self.config.path:
            return self._refuse_early(head) or self._refuse_stranger(head)
        if path in self._open_paths:
            refusal = self.guard.check_sender(head)
            return refusal or (None if head.method in ("GET", "HEAD") else _not_allowed(b"GET, HEAD"))
        if self.config.health and path in _HEALTH:
            # Probes come by address, so /livez and /readyz, which tell nothing, take any Host.
            refusal = self.guard.check_sender(head) if path == "/metrics" else None
            return refusal or (None if head.method in ("GET", "HEAD") else _not_allowed(b"GET, HEAD"))
        if self._legacy is not None and path in (self.config.sse_path, self.config.messages_path):
            early: Plain | None = self._legacy.refuse_early(head)
            return early
        return self.guard.check_sender(head) or refuse(
            404, f"nothing is served here; the endpoint is {self.config.path}"
        )

    def _refuse_early(self, head: Head) -> Plain | None:
        if head.method == "POST":
            refusal = self.guard.check_post(head, self._answers)
        else:
            refusal = self.guard.check_sender(head)
            if refusal is None and head.method == "GET":
                refusal = self.guard.check_accept(head, ("text/event-stream",))
            elif refusal is None and head.method != "DELETE":
                refusal = _not_allowed()
        if refusal is not None:
            return refusal
        head.passed = head.method == "POST"
        head.date = date = head.text(b"mcp-protocol-version")
        head.era = era = None if date is None else self.dates.get(date)
        if not self._sessions_served:
            # 2026-07-28 basic/transports/streamable-http, "Earlier Streamable HTTP Revisions": session ids are ignored
            return None if head.method == "POST" else _not_allowed(b"POST")
        if date is not None:
            if era is None:
                # With a body there is an id to answer to.
                return None if head.method == "POST" else self._unsupported(date)
            if not era.http.sessions:
                return None if head.method == "POST" else _not_allowed(b"POST")
        session_id = head.fields.get(b"mcp-session-id")
        if session_id is None:
            return None if head.method == "POST" else session_needed()
        head.session_id = session_id.decode("latin-1")
        if not is_visible_ascii(head.session_id):
            head.passed = False
            return refuse(400, "Mcp-Session-Id is not one id of visible ASCII characters")
        return None

    def _refuse_stranger(self, head: Head) -> Plain | None:
        # With authentication the order is: who are you, then what do you want.
        if head.session_id is None or self.authenticator is not None or head.method == "GET":
            return None
        head.session = self.sessions.find(head)
        return unknown_session() if head.session is None else None

    def _unsupported(self, date: str, request_id: int | str | None = None) -> Plain:
        # basic/transports: an invalid or unsupported version header MUST be answered with 400
        return refuse(
            400,
            f"MCP-Protocol-Version {date!a:.80} is not supported; {', '.join(self.dates)} are",
            code=UNSUPPORTED_PROTOCOL_VERSION,
            data={"supported": list(self.dates), "requested": date[:80]},
            request_id=request_id,
        )

    async def authenticate(self, head: Head) -> Plain | None:
        """Find out who sent a request; shells call it when there is an `authenticator`, before they read the body."""
        if not self.open_scopes:
            head.scopes = frozenset()
        if self.authenticator is None or self._for_everybody(head.path):
            return None
        found = await self.authenticator(head)
        if type(found) is Plain:
            if self.hub:
                self.hub.emit(telemetry.ConnectionEvent(kind="unauthorized", detail=str(found.status)))
            return found
        head.principal = found
        head.scopes = frozenset(getattr(found, "scopes", None) or ())
        return None

    def _for_everybody(self, path: str) -> bool:
        if path == "/metrics":
            return self.config.open_metrics
        return path != self.config.path and (path in _HEALTH or path in self._open_paths)

    # -- what the sender may do

    def check_scopes(self, head: Head, frame: Frame | Batch) -> Plain | None:
        """Refuse a request whose sender lacks scopes, before anything of it is begun."""
        if head.scopes is None:
            return None
        needed = self._needed(frame)
        if not needed or head.scopes.issuperset(needed):
            return None
        request_id = frame.id if type(frame) is Request else None
        if self._authorizer is not None:
            return self._authorizer.forbidden(needed, request_id)
        text = f"more is needed to do this: {' '.join(sorted(set(needed)))}"
        return refuse(403, text, headers=self._challenge(needed), request_id=request_id)

    def headers_for(self, status: int, frame: Frame | Batch, answer: bytes) -> Headers:
        """What goes with the status that a handler chose, and with its answer."""
        if status == 403:
            return self._challenge(self._needed(frame, all_of_them=True))
        return ((b"retry-after", b"%d" % retry_after(answer)),) if status in (429, 503) else ()

    def _needed(self, frame: Frame | Batch, *, all_of_them: bool = False) -> Collection[str]:
        needed = self._needed_scopes
        if type(frame) is Request:
            return needed(frame.method, frame.params, all_of_them)
        requests = frame if type(frame) is tuple else (frame,)
        found: set[str] = set()
        for each in requests:
            if type(each) is Request:
                found.update(needed(each.method, each.params, all_of_them))
        return found

    def _challenge(self, scopes: Iterable[str]) -> Headers:
        if self._authorizer is not None:
            return self._authorizer.forbidden_headers(scopes)
        text = f'Bearer error="insufficient_scope", scope="{" ".join(sorted(set(scopes)))}"'
        return ((b"www-authenticate", text.encode("latin-1")),)

    # -- with the body

    async def answer(self, head: Head, body: bytes, loan: Loan | None = None) -> Plain | Stream:
        """Serve any request that `refuse_early` let pass, as `post` does."""
        if head.path == self.config.path:
            if head.method == "POST":
                return await self.post(head, body, loan)
            if head.method == "GET":
                return leased(head, await self.sessions.listen(head))
            return self.sessions.delete(head)
        if self._legacy is not None and head.path in (self.config.sse_path, self.config.messages_path):
            reply: Plain | Stream = await self._legacy.answer(head, body)
            return reply
        if head.path in self._open_paths and self._authorizer is not None:
            app: Any = self.runtime.app
            return self._authorizer.metadata(app.all_scopes(), app.info.title or app.info.name)
        return self._health(head.path)

    def timed_out(self) -> Plain:
        """The body did not come in time."""
        self.limit("body_timeout")
        return refuse(
            408, f"the body took longer than {self.config.body_timeout:g} s", headers=((b"connection", b"close"),)
        )

    def no_room(self) -> Plain:
        """Too many large bodies are in memory, and were for longer than one waits."""
        self.limit("max_body_memory")
        return overloaded("too many large requests are being served", 1, close=True, limit="max_body_memory")

    def too_large(self) -> Plain:
        """More bytes came than were declared, or than are allowed."""
        self.limit("max_body")
        return self.guard.too_large()

    # -- POST: a message of the client

    async def post(self, head: Head, body: bytes, loan: Loan | None = None) -> Plain | Stream:
        """Serve a POST for the endpoint that `refuse_early` let pass; with a loan the answer may be `ELSEWHERE`."""
        try:
            frame = decode(body, self.config.json_limits)
        except RemoteProtocolError as error:
            if error.limit is not None:
                self.limit(error.limit)
            return refuse_frame(error)
        if not head.passed:
            head.date = head.text(b"mcp-protocol-version")
            head.era = None if head.date is None else self.dates.get(head.date)
        date, era = head.date, head.era
        # A request that declares its date is stateless whatever the header says; the two are compared then.
        if (
            (era is not None and not era.http.sessions)
            or (type(frame) is Request and "_meta" in frame.params and is_stateless(frame.params))
            or not self._sessions_served
        ):
            return await self.exchanges.post(head, frame, len(body), loan)
        if date is not None and era is None:
            return self._unsupported(date, frame.id if type(frame) is Request else None)
        return await self.sessions.post(head, frame, loan)

    # -- what is served beside it

    def _health(self, path: str) -> Plain:
        if path == "/livez":
            return Plain(200, TEXT, b"ok\n")
        if path == "/readyz":
            if self.draining or not self.runtime.ready:
                return Plain(503, TEXT, b"draining\n" if self.draining else b"starting\n")
            if self.runtime.stalled:
                return Plain(503, TEXT, b"the event loop was blocked\n")
            degraded = self.store.degraded
            return Plain(
                200, TEXT, b"ok\n" if degraded is None else f"ok, but the store is degraded: {degraded}\n".encode()
            )
        if self.metrics is None:
            return refuse(404, "there are no metrics here")
        return Plain(200, ((b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),), self.metrics().encode())

    def limit(self, name: str, session: Session | None = None) -> None:
        if self.hub:
            self.hub.emit(telemetry.LimitHit(name=name, session=None if session is None else session.id))


def _not_allowed(allow: bytes = b"GET, POST, DELETE") -> Plain:
    return refuse(405, "this method is not served here", headers=((b"allow", allow),))
