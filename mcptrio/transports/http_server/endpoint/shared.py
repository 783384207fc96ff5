"""The state that the parts of one endpoint share: the runtime, the settings, admission, scopes and timers."""

from __future__ import annotations

from mcptrio import telemetry
from mcptrio._actors.runtime import Runtime
from mcptrio._actors.session import Session
from mcptrio._actors.timers import Timers
from mcptrio._struct import Entity
from mcptrio.stores.base import Store
from mcptrio.transports.http_server.config import HttpConfig

from .admission import Admission
from .scopes import Scopes


class Shared(Entity):
    """The parts of one endpoint that its sessions, exchanges and links use."""

    runtime: Runtime
    config: HttpConfig
    admission: Admission
    scopes: Scopes
    timers: Timers
    """For calls that become streams when they take long, and for the heartbeats of streams."""

    @property
    def store(self) -> Store:
        store: Store = self.runtime.store
        return store

    @property
    def hub(self) -> telemetry.Hub:
        return self.runtime.hub

    @property
    def draining(self) -> bool:
        return self.runtime.supervisor.draining

    @property
    def busy_timeout(self) -> float:
        """Seconds that a request waits for room."""
        return self.runtime.supervisor.limits.busy_timeout

    def limit(self, name: str, session: Session | None = None) -> None:
        """Emit that a limit was reached."""
        if self.hub:
            self.hub.emit(telemetry.LimitHit(name=name, session=None if session is None else session.id))
