"""`subscriptions/listen`: a request that stays open and reports changes, at revisions without sessions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import trio
from msgspec import Raw, field

from mcptrio import telemetry, types
from mcptrio._actors.call import Call
from mcptrio._actors.extension import Extensions
from mcptrio._actors.future import Waiter
from mcptrio._actors.service import Actor
from mcptrio._eras.stateless import SUBSCRIPTION
from mcptrio._peer.link import ReplyLink
from mcptrio._peer.messages import Notified
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import encode_value
from mcptrio._wire.objects.converter import unstructure
from mcptrio.errors import INVALID_PARAMS, MCPError, Overloaded
from mcptrio.server.context import Context
from mcptrio.server.features.resources import Resources
from mcptrio.server.features.subscriptions import by_topic, list_topic, may_read, take_places
from mcptrio.server.session_handle import check_kept

if TYPE_CHECKING:
    from mcptrio.types import (
        SubscriptionFilter,
        SubscriptionsListenParams,
    )

MAX_LISTENING: Final = 1000
"""Maximum number of open listen requests in one session, where several share a connection."""
MAX_URIS: Final = 1000
MAX_URI_CHARACTERS: Final = 64 * 1024
"""Maximum length of all URIs of one request together."""
MAX_NEWS: Final = MAX_URIS + 100
_LISTS: Final[Mapping[str, str]] = {
    "tools_list_changed": "tools",
    "prompts_list_changed": "prompts",
    "resources_list_changed": "resources",
}


class News(Entity):
    """The changes for one listener: sent at once, or queued in order while its link is full.

    Equal changes in the queue are merged, so a slow client causes no growth. A change often has a thousand listeners,
    so the task that `deliver` runs in is resumed only for what was queued.
    """

    session: Actor
    call: Call
    _begun: bool = False
    _waiting: dict[Any, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    _queued: Waiter = field(default_factory=Waiter)
    _count: int = 0

    def add(self, method: str, params: dict[str, Any], about: str | None = None) -> None:
        """Send a notification, whose parameters have a JSON form, or queue it.

        In the queue, the newest of those with the same `about` wins. At the bound the oldest is dropped.
        """
        at_once = self._begun and not self._waiting and not self._link.full
        if at_once and self.session.inbox.post_nowait(
            Notified(self.call.start.call, method, Raw(encode_value(params)))
        ):
            return
        self._count += 1
        self._waiting[method, self._count if about is None else about] = (method, params)
        if len(self._waiting) > MAX_NEWS:
            del self._waiting[next(iter(self._waiting))]
        self._queued.wake()

    async def deliver(self) -> None:
        """Send what is queued when the link has room, and from now on everything else at once."""
        self._begun = True
        while True:
            await self.flush()
            await self._queued.park()

    async def flush(self) -> None:
        """Send what is queued."""
        while self._waiting:
            await self._link.room()  # before it leaves the queue: a later change must not overtake it
            method, params = self._waiting.pop(next(iter(self._waiting)))
            await self.session.asks.notify(method, params, call=self.call)

    @property
    def _link(self) -> ReplyLink:
        return self.call.start.link or self.session.link


def _with_meta(params: dict[str, Any], meta: dict[str, Any]) -> dict[str, Any]:
    return {**params, "_meta": {**params.get("_meta", {}), **meta}}


class ListenRequests(Entity):
    """The handler of `subscriptions/listen`; the bus carries the changes."""

    resources: Resources
    extensions: Extensions

    async def listen(self, ctx: Context, params: SubscriptionsListenParams) -> dict[str, Any]:
        """Report changes until the client closes the request; return a result when the server shuts down."""
        session, call = ctx._session, ctx._call
        given = call.start.params["notifications"]  # its URIs have a bound of their own
        rest = {name: value for name, value in given.items() if name != "resourceSubscriptions"}
        check_kept({**call.start.params, "notifications": rest})
        if session.peer.listening > MAX_LISTENING:
            if hub := session.service.telemetry:
                hub.emit(telemetry.LimitHit(name="listeners", session=session.id))
            raise Overloaded("too many subscriptions are open", retry_after=5, limit="listeners")
        call.limit(math.inf)
        with ExitStack() as ends:
            honoured = await self._honour(ctx, params.notifications, ends)
            return await self._report(ctx, honoured, ends)

    async def _report(self, ctx: Context, honoured: SubscriptionFilter, ends: ExitStack) -> dict[str, Any]:
        session, call = ctx._session, ctx._call
        wanted = call.start.params["notifications"]
        heard = [h for extension in self.extensions if (h := await extension.listen(ctx, wanted)) is not None]
        followed = by_topic(honoured.resource_subscriptions or ())
        meta = {SUBSCRIPTION: ctx.request_id}
        news = News(session, call)

        def list_changed(_topic: str, kind: str) -> None:
            news.add(f"notifications/{kind}/list_changed", {"_meta": meta}, kind)

        def changed(subject: str, about: dict[str, Any]) -> None:
            for uri in tuple(followed[subject]):
                if may_read(self.resources, ctx, uri):
                    news.add("notifications/resources/updated", _with_meta({**about, "uri": uri}, meta), uri)
                else:
                    followed[subject].remove(uri)  # it was removed, or `visible=` hides it: the subscription ends

        def notify(method: str, about: dict[str, Any]) -> None:
            encode_value(about)  # raise the error in the extension, not later in the session
            news.add(method, _with_meta(about, meta))

        acknowledged = {"_meta": meta, "notifications": unstructure(honoured)}
        for each in heard:
            acknowledged["notifications"].update(each.honoured)
        # Subscribed before the acknowledgement and sent after it, so that no change is lost between the two.
        lists = [list_topic(kind) for field, kind in _LISTS.items() if getattr(honoured, field)]
        ends.callback(session.runtime.bus.subscribe(lists, list_changed).close)
        ends.callback(session.runtime.bus.subscribe(tuple(followed), changed).close)
        await session.runtime.bus.settled()
        # basic/patterns/subscriptions: the acknowledgement MUST be the first message
        await session.asks.notify("notifications/subscriptions/acknowledged", acknowledged, call=call)
        for each in heard:
            ends.callback(each.begin(notify))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(news.deliver)
            await session.runtime.supervisor.wait_for_drain()
            nursery.cancel_scope.cancel()
        await news.flush()
        return {"_meta": dict(meta)}

    async def _honour(self, ctx: Context, wanted: SubscriptionFilter, ends: ExitStack) -> SubscriptionFilter:
        """Return the part of a filter that this server serves to this caller, without resources it cannot read."""
        uris = wanted.resource_subscriptions
        readable: list[str] | None = None
        if uris is not None:
            if len(uris) > MAX_URIS:
                raise MCPError(INVALID_PARAMS, f"a subscription may name {MAX_URIS} resources")
            if sum(map(len, uris)) > MAX_URI_CHARACTERS:
                raise MCPError(
                    INVALID_PARAMS, f"the URIs of a subscription may have {MAX_URI_CHARACTERS} characters together"
                )
            readable = []
            session = ctx._session
            ends.callback(take_places(session, uris))
            # Matching takes time: it lets other tasks run in between, and one request of an owner does it at a time.
            async with session.runtime.one_at_a_time("listen request", session.owner):
                for uri in dict.fromkeys(uris):
                    if may_read(self.resources, ctx, uri):
                        readable.append(uri)
                    await trio.lowlevel.checkpoint()
        offers = ctx._session.service.offers_now()
        asked = {field: (getattr(wanted, field) and kind in offers) or None for field, kind in _LISTS.items()}
        return types.SubscriptionFilter(resource_subscriptions=readable if "resources" in offers else None, **asked)
