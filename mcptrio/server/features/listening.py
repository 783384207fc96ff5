"""`subscriptions/listen`: one request that stays open and says what changed, at dates that have no sessions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import trio
from attrs import define

from mcptrio._eras.stateless import SUBSCRIPTION
from mcptrio._wire.converter import unstructure
from mcptrio.errors import INVALID_PARAMS, McpError
from mcptrio.server.context import Context
from mcptrio.server.features.resources import Resources
from mcptrio.server.features.subscriptions import topic
from mcptrio.types import SubscriptionFilter, SubscriptionsListenParams

MAX_URIS: Final = 1000
_LISTS: Final[Mapping[str, str]] = {
    "tools_list_changed": "tools",
    "prompts_list_changed": "prompts",
    "resources_list_changed": "resources",
}


@define(eq=False)
class Listening:
    """Serves `subscriptions/listen`; the bus carries the changes."""

    resources: Resources

    async def listen(self, ctx: Context, params: SubscriptionsListenParams) -> dict[str, Any]:
        """Open until the client hangs up, or the server shuts down: then the client is told that it ended well."""
        ctx._call.limit(math.inf)
        session, call = ctx._session, ctx._call
        honoured = self._honour(ctx, params.notifications)
        meta = {SUBSCRIPTION: ctx.request_id}
        # basic/patterns/subscriptions: the acknowledgement MUST be the first message
        acknowledged = {"_meta": meta, "notifications": unstructure(honoured)}
        await session.notify("notifications/subscriptions/acknowledged", acknowledged, call=call)

        def list_changed(_topic: str, kind: str) -> None:
            session.notify_nowait(f"notifications/{kind}/list_changed", {"_meta": meta}, call=call)

        def updated(_topic: str, uri: str) -> None:
            session.notify_nowait("notifications/resources/updated", {"_meta": meta, "uri": uri}, call=call)

        bus = session.runtime.bus
        lists = [f"list {kind}" for field, kind in _LISTS.items() if getattr(honoured, field)]
        handles = [
            bus.subscribe(lists, list_changed),
            bus.subscribe([topic(uri) for uri in honoured.resource_subscriptions or ()], updated),
        ]
        try:
            await session.runtime.supervisor.wait_for_drain()
        finally:
            for handle in handles:
                handle.close()
        await trio.lowlevel.checkpoint()
        return {"_meta": dict(meta)}

    def _honour(self, ctx: Context, wanted: SubscriptionFilter) -> SubscriptionFilter:
        """The part of a filter that this server serves, to this caller: a resource it could not read is left out."""
        uris = wanted.resource_subscriptions
        if uris is not None and len(uris) > MAX_URIS:
            raise McpError(INVALID_PARAMS, f"a subscription may name {MAX_URIS} resources")
        offers = ctx._session.service.offers_now()
        readable = None if uris is None else [uri for uri in uris if self.resources.find(ctx, uri) is not None]
        asked = {field: (getattr(wanted, field) and kind in offers) or None for field, kind in _LISTS.items()}
        return SubscriptionFilter(resource_subscriptions=readable if "resources" in offers else None, **asked)
