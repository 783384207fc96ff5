"""Subscriptions: which session wants to hear about which resource or list, and who tells it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import trio
from msgspec import field

from mcptrio._actors.runtime import Runtime
from mcptrio._actors.session import Session
from mcptrio._struct import Entity
from mcptrio.errors import INVALID_PARAMS, McpError
from mcptrio.server.context import Context
from mcptrio.server.features.resources import Resources
from mcptrio.server.features.scopes import require

if TYPE_CHECKING:
    from mcptrio.types import (
        SubscribeParams,
    )

MAX_PER_SESSION = 1000
_LISTS = ("tools", "prompts", "resources")


def topic(uri: str) -> str:
    return f"resource {uri}"


class Publisher(Entity):
    """Tells of changes, from any thread, wherever the server is served: that may be in several places at once."""

    runtimes: list[tuple[Runtime, trio.lowlevel.TrioToken]] = field(default_factory=list)

    def publish(self, subject: str, payload: Any) -> None:
        inside = trio.lowlevel.in_trio_run()
        for runtime, token in tuple(self.runtimes):
            if inside and trio.lowlevel.current_trio_token() is token:
                runtime.bus.publish(subject, payload)
            else:
                with suppress(trio.RunFinishedError):
                    token.run_sync_soon(runtime.bus.publish, subject, payload)

    def attach(self, runtime: Runtime) -> Callable[[], None]:
        """Tell a runtime, and the sessions in it, from now on until what is returned is called."""
        entry = (runtime, trio.lowlevel.current_trio_token())
        self.runtimes.append(entry)

        def changed(_subject: str, kind: str) -> None:
            for session in runtime.supervisor:
                # Only where it was declared: a session may have been offered less, or the list was empty when it began.
                offered = (session.peer.offers or {}).get(kind) or {}
                if offered.get("listChanged"):
                    session.notify_nowait(f"notifications/{kind}/list_changed", {})

        handle = runtime.bus.subscribe([f"list {kind}" for kind in _LISTS], changed)

        def detach() -> None:
            handle.close()
            self.runtimes.remove(entry)

        return detach


class Subscriptions(Entity):
    """Serves `resources/subscribe` and `resources/unsubscribe`; the bus carries the changes."""

    resources: Resources

    def subscribe(self, ctx: Context, params: SubscribeParams) -> dict[str, Any]:
        found = self.resources.find(ctx, params.uri)
        if found is None:
            raise self.resources.not_found(ctx, params.uri)
        require(ctx, found[0])
        session = ctx._session
        mine = _subscriptions(session)
        if params.uri not in mine:
            if len(mine) >= MAX_PER_SESSION:
                raise McpError(INVALID_PARAMS, f"a session may have {MAX_PER_SESSION} subscriptions; unsubscribe first")

            def updated(_topic: str, uri: str) -> None:
                session.notify_nowait("notifications/resources/updated", {"uri": uri})

            mine[params.uri] = session.runtime.bus.subscribe([topic(params.uri)], updated)
        return {}

    def unsubscribe(self, ctx: Context, params: SubscribeParams) -> dict[str, Any]:
        handle = _subscriptions(ctx._session).pop(params.uri, None)
        if handle is not None:
            handle.close()
        return {}


def _subscriptions(session: Session) -> dict[str, Any]:
    mine: dict[str, Any] | None = session.data.get("subscriptions")
    if mine is None:
        mine = session.data["subscriptions"] = {}

        def end() -> None:
            for handle in mine.values():
                handle.close()

        session.on_end.append(end)
    return mine
