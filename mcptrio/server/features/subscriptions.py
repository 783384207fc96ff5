"""Change notifications: of lists to all sessions with `listChanged`, of resources to subscribers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import field

from mcptrio._actors.runtime import Runtime
from mcptrio._actors.service import Actor
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import encode_value
from mcptrio.errors import INVALID_PARAMS, MCPError
from mcptrio.server.context import Context
from mcptrio.server.features.resources import Resources
from mcptrio.server.features.scopes import shown_to
from mcptrio.server.session_handle import tell_list_changed, updated_params

if TYPE_CHECKING:
    from mcptrio.stores.base import Subscription
    from mcptrio.types import SubscribeParams

MAX_PER_SESSION = 1000
_LISTS = ("tools", "prompts", "resources")


def topic(uri: str) -> str:
    return f"resource {uri}"


class Publisher(Entity):
    """The publisher of changes to every runtime that serves the server. Its methods can be called from any thread."""

    runtimes: list[Runtime] = field(default_factory=list)

    def list_changed(self, kind: str, *, everywhere: bool) -> None:
        """Announce that a list (`tools`, `prompts` or `resources`) has changed, here or in all processes."""
        self._publish(f"list {kind}", kind, everywhere)

    def resource_updated(self, uri: str, meta: Mapping[str, Any] | None = None) -> None:
        """Announce that a resource has changed.

        Raises:
            TypeError, ValueError: `meta` has no JSON form.
        """
        params = updated_params(uri, meta)
        encode_value(params)  # raise the error in the caller, not later in the session
        self._publish(topic(uri), params, everywhere=True)

    def _publish(self, subject: str, payload: Any, everywhere: bool) -> None:
        for runtime in tuple(self.runtimes):
            runtime.call_soon(partial(runtime.bus.publish, subject, payload, everywhere=everywhere))

    def attach(self, runtime: Runtime) -> Callable[[], None]:
        """Announce changes to the sessions of a runtime until the returned function is called."""
        self.runtimes.append(runtime)

        def changed(_subject: str, kind: str) -> None:
            for session in runtime.supervisor:
                tell_list_changed(session, kind)

        handle = runtime.bus.subscribe([f"list {kind}" for kind in _LISTS], changed)

        def detach() -> None:
            handle.close()
            self.runtimes.remove(runtime)

        return detach


def follow(
    resources: Resources,
    ctx: Context,
    uri: str,
    updated: Callable[[dict[str, Any]], None],
    ended: Callable[[], None] = lambda: None,
) -> Subscription:
    """Call `updated` with the parameters of the notification for each change of a resource.

    The subscription ends at the first change after the caller can no longer read the resource: it was removed, or
    `visible=` hides it. `ended` is called then.
    """

    def changed(_topic: str, about: dict[str, Any]) -> None:
        if may_read(resources, ctx, uri):
            updated(about)
        else:
            handle.close()
            ended()

    handle: Subscription = ctx._session.runtime.bus.subscribe([topic(uri)], changed)
    return handle


def may_read(resources: Resources, ctx: Context, uri: str) -> bool:
    """Return whether this caller sees the resource at `uri` and holds its scopes."""
    found = resources.find(ctx, uri)
    return found is not None and shown_to(ctx)(found[0])


class Subscriptions(Entity):
    """The handlers of `resources/subscribe` and `resources/unsubscribe`; the bus carries the changes."""

    resources: Resources

    async def subscribe(self, ctx: Context, params: SubscribeParams) -> dict[str, Any]:
        await self.resources.find_readable(ctx, params.uri)
        session = ctx._session
        mine = _subscriptions(session)
        if params.uri not in mine:
            if len(mine) >= MAX_PER_SESSION:
                raise MCPError(INVALID_PARAMS, f"a session may have {MAX_PER_SESSION} subscriptions; unsubscribe first")

            def updated(about: dict[str, Any]) -> None:
                session.asks.notify_nowait("notifications/resources/updated", about)

            def ended() -> None:
                mine.pop(params.uri, None)

            mine[params.uri] = follow(self.resources, ctx, params.uri, updated, ended)
            await session.runtime.bus.settled()
        return {}

    def unsubscribe(self, ctx: Context, params: SubscribeParams) -> dict[str, Any]:
        handle = _subscriptions(ctx._session).pop(params.uri, None)
        if handle is not None:
            handle.close()
        return {}


def _subscriptions(session: Actor) -> dict[str, Subscription]:
    mine: dict[str, Subscription] | None = session.data.get("subscriptions")
    if mine is None:
        mine = session.data["subscriptions"] = {}

        def end() -> None:
            for handle in mine.values():
                handle.close()

        session.on_end.append(end)
    return mine
