"""The collaborators of one endpoint, in one object: the runtime, the settings, admission, scopes and timers."""

from __future__ import annotations

from mcptrio import telemetry
from mcptrio._actors.reports import LONGEST_NAME
from mcptrio._actors.runtime import Runtime
from mcptrio._actors.session import Session
from mcptrio._actors.timers import Timers
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import Batch, Frame, Request
from mcptrio.stores.base import Store
from mcptrio.transports.http_server.config import HttpConfig

from .admission import Admission
from .message import HttpRequest, Plain
from .scopes import Scopes


class EndpointParts(Entity):
    """The parts of one endpoint that its sessions, exchanges, routing and links use."""

    runtime: Runtime
    config: HttpConfig
    admission: Admission
    scopes: Scopes
    timers: Timers
    """For calls that become streams when they take long, and for the heartbeats of streams."""

    @property
    def store(self) -> Store:
        return self.runtime.store

    @property
    def hub(self) -> telemetry.Hub:
        return self.runtime.hub

    @property
    def draining(self) -> bool:
        return self.runtime.supervisor.draining

    @property
    def refuses(self) -> bool:
        """Whether requests are refused because the process drains."""
        return self.runtime.supervisor.refuses

    @property
    def busy_timeout(self) -> float:
        """Seconds that a request waits for room."""
        return self.runtime.supervisor.limits.busy_timeout

    def call_refused(
        self, head: HttpRequest, frame: Frame | Batch, refusal: Plain, session: Session | None = None
    ) -> None:
        """Emit the end of calls that were not admitted because the server is busy, or the client sends too much."""
        if refusal.status not in (429, 503) or not self.hub:
            return
        routes = self.runtime.app.router.routes
        for request in frame if type(frame) is tuple else (frame,):
            if type(request) is Request and request.method in routes:
                route = routes[request.method]
                name = None if route.named_by is None else request.params.get(route.named_by)
                known = route.entries is not None and type(name) is str and name in route.entries
                self.hub.emit(
                    telemetry.CallEnded(
                        session="-" if session is None else session.id,
                        call=0,
                        request_id=request.id,
                        method=request.method,
                        outcome="overloaded",
                        seconds=head.queued,
                        queued=head.queued,
                        name=name[:LONGEST_NAME] if type(name) is str else None,
                        entry=name if known else None,
                        principal=head.identity if self.hub.principals and head.identity else None,
                    )
                )

    def limit(self, name: str, session: Session | None = None) -> None:
        """Emit that a limit was reached."""
        if self.hub:
            self.hub.emit(telemetry.LimitHit(name=name, session=None if session is None else session.id))
