"""`subscriptions/listen`: one request that stays open and says what changed, at dates that have no sessions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import trio
from msgspec import field

from mcptrio import telemetry, types
from mcptrio._actors.call import Call
from mcptrio._actors.extension import Extensions
from mcptrio._actors.session import Session
from mcptrio._eras.stateless import SUBSCRIPTION
from mcptrio._struct import Entity
from mcptrio._wire.converter import unstructure
from mcptrio.errors import INVALID_PARAMS, McpError, Overloaded
from mcptrio.server.context import Context
from mcptrio.server.features.resources import Resources
from mcptrio.server.features.scopes import shown_to
from mcptrio.server.features.subscriptions import topic

if TYPE_CHECKING:
    from mcptrio.types import (
        SubscriptionFilter,
        SubscriptionsListenParams,
    )

MAX_LISTENING: Final = 1000
"""So many of these requests may be open in one session, where several share a connection."""
MAX_URIS: Final = 1000
MAX_NEWS: Final = MAX_URIS + 100
_LISTS: Final[Mapping[str, str]] = {
    "tools_list_changed": "tools",
    "prompts_list_changed": "prompts",
    "resources_list_changed": "resources",
}


class News(Entity):
    """What has changed and was not told yet, in order; the same change waits once, however slowly a client reads."""

    _waiting: dict[Any, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    _came: trio.Event = field(default_factory=trio.Event)
    _count: int = 0

    def add(self, method: str, params: dict[str, Any], about: str | None = None) -> None:
        """`about` names what has changed; news without it are told one by one, the oldest lost if there are many."""
        self._count += 1
        self._waiting.setdefault((method, self._count if about is None else about), (method, params))
        if len(self._waiting) > MAX_NEWS:
            del self._waiting[next(iter(self._waiting))]
        self._came.set()

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        waiting = list(self._waiting.values())
        self._waiting.clear()
        self._came = trio.Event()
        return waiting

    async def wait(self) -> list[tuple[str, dict[str, Any]]]:
        await self._came.wait()
        return self.take()


async def _deliver(session: Session, call: Call, news: News) -> None:
    while True:
        for method, params in await news.wait():
            await session.notify(method, params, call=call)


class Listening(Entity):
    """Serves `subscriptions/listen`; the bus carries the changes."""

    resources: Resources
    extensions: Extensions

    async def listen(self, ctx: Context, params: SubscriptionsListenParams) -> dict[str, Any]:
        """Open until the client hangs up, or the server shuts down: then the client is told that it ended well."""
        session, call = ctx._session, ctx._call
        if session.peer.listening > MAX_LISTENING:
            if hub := session.service.telemetry:
                hub.emit(telemetry.LimitHit(name="listeners", session=session.id))
            raise Overloaded("too many subscriptions are open", retry_after=5, limit="listeners")
        call.limit(math.inf)
        honoured = self._honour(ctx, params.notifications)
        wanted = call.start.params["notifications"]
        heard = [h for extension in self.extensions if (h := await extension.listen(ctx, wanted)) is not None]
        meta = {SUBSCRIPTION: ctx.request_id}
        news = News()

        def list_changed(_topic: str, kind: str) -> None:
            news.add(f"notifications/{kind}/list_changed", {"_meta": meta}, kind)

        def updated(_topic: str, uri: str) -> None:
            news.add("notifications/resources/updated", {"_meta": meta, "uri": uri}, uri)

        def tell(method: str, about: dict[str, Any]) -> None:
            news.add(method, {**about, "_meta": {**about.get("_meta", {}), **meta}})

        # Heard from now on, sent after the acknowledgement: nothing falls between the two.
        bus = session.runtime.bus
        lists = [f"list {kind}" for field, kind in _LISTS.items() if getattr(honoured, field)]
        uris = [topic(uri) for uri in honoured.resource_subscriptions or ()]
        closers = [bus.subscribe(lists, list_changed).close, bus.subscribe(uris, updated).close]
        # basic/patterns/subscriptions: the acknowledgement MUST be the first message
        acknowledged = {"_meta": meta, "notifications": unstructure(honoured)}
        for each in heard:
            acknowledged["notifications"].update(each.honoured)
        try:
            await session.notify("notifications/subscriptions/acknowledged", acknowledged, call=call)
            closers += [each.begin(tell) for each in heard]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_deliver, session, call, news)
                await session.runtime.supervisor.wait_for_drain()
                nursery.cancel_scope.cancel()
            for method, about in news.take():
                await session.notify(method, about, call=call)
        finally:
            for close in closers:
                close()
        return {"_meta": dict(meta)}

    def _may_read(self, ctx: Context, uri: str, shown: Callable[[Any], bool]) -> bool:
        found = self.resources.find(ctx, uri)
        return found is not None and shown(found[0])

    def _honour(self, ctx: Context, wanted: SubscriptionFilter) -> SubscriptionFilter:
        """The part of a filter that this server serves, to this caller: a resource it could not read is left out."""
        uris = wanted.resource_subscriptions
        if uris is not None and len(uris) > MAX_URIS:
            raise McpError(INVALID_PARAMS, f"a subscription may name {MAX_URIS} resources")
        offers = ctx._session.service.offers_now()
        shown = shown_to(ctx)
        readable = None if uris is None else [uri for uri in uris if self._may_read(ctx, uri, shown)]
        asked = {field: (getattr(wanted, field) and kind in offers) or None for field, kind in _LISTS.items()}
        return types.SubscriptionFilter(resource_subscriptions=readable if "resources" in offers else None, **asked)
