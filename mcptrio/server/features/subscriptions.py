"""Change notifications: of lists to all sessions with `listChanged`, of resources to subscribers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from msgspec import field

from mcptrio import telemetry
from mcptrio._actors.record import changed_topics
from mcptrio._actors.runtime import Runtime
from mcptrio._actors.service import Actor
from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import encode_value
from mcptrio.errors import INVALID_PARAMS, MCPError, Overloaded
from mcptrio.server.context import Context
from mcptrio.server.features.broadcasts import broadcast_topic
from mcptrio.server.features.resources import Resources
from mcptrio.server.features.scopes import holds_scopes
from mcptrio.server.session_handle import check_kept, resource_topic, send_list_changed, updated_params

if TYPE_CHECKING:
    from mcptrio._actors.record import SessionRecord
    from mcptrio.stores.base import Subscription
    from mcptrio.types import SubscribeParams

MAX_PER_SESSION = 1000
_CHARACTERS = 250  # of a URI that count as one more subscription
_LISTS = ("tools", "prompts", "resources")


def by_topic(uris: Iterable[str]) -> dict[str, list[str]]:
    """Return the URIs of each topic: a client may have written one in two ways."""
    found: dict[str, list[str]] = {}
    for uri in dict.fromkeys(uris):
        found.setdefault(resource_topic(uri), []).append(uri)
    return found


def list_topic(kind: str) -> str:
    return f"list {kind}"


class Publisher(Entity):
    """The publisher of changes to every runtime that serves the server. Its methods can be called from any thread."""

    runtimes: list[Runtime] = field(default_factory=list)

    @property
    def in_cluster(self) -> bool:
        """Whether other workers serve the same endpoint."""
        return any(runtime.worker for runtime in self.runtimes)

    def list_changed(self, kind: str, *, everywhere: bool) -> None:
        """Announce that a list (`tools`, `prompts` or `resources`) has changed, in all processes or here."""
        self._publish(list_topic(kind), kind, everywhere)

    def resource_updated(self, uri: str, meta: Mapping[str, Any] | None = None) -> None:
        """Announce that a resource has changed.

        Raises:
            TypeError, ValueError: `meta` has no JSON form.
        """
        params = updated_params(uri, meta)
        encode_value(params)  # raise the error in the caller, not later in the session
        self._publish(resource_topic(uri), params, everywhere=True)

    def broadcast(self, topic: str, value: Any) -> None:
        """Send a value to the `on_broadcast` functions of all processes.

        Raises:
            TypeError, ValueError: it has no JSON form.
        """
        encode_value(value)
        self._publish(broadcast_topic(topic), value, everywhere=True)

    def _publish(self, subject: str, payload: Any, everywhere: bool) -> None:
        for runtime in tuple(self.runtimes):
            runtime.call_soon(partial(runtime.bus.publish, subject, payload, everywhere=everywhere))

    def attach(self, runtime: Runtime) -> Callable[[], None]:
        """Announce changes to the sessions of a runtime until the returned function is called."""
        self.runtimes.append(runtime)

        def changed(_subject: str, kind: str) -> None:
            for session in runtime.supervisor:
                send_list_changed(session, kind)

        handle = runtime.bus.subscribe(map(list_topic, _LISTS), changed)

        def detach() -> None:
            handle.close()
            self.runtimes.remove(runtime)

        return detach


def take_places(session: Actor, uris: Collection[str]) -> Callable[[], None]:
    """Count subscriptions of a client; return the function that counts them no more.

    Raises:
        Overloaded: there are too many subscriptions.
    """
    places, owner = session.runtime.subscriptions, session.owner
    amount = len(uris) + sum(len(uri) // _CHARACTERS for uri in uris)
    if not places.take(owner, amount):
        if hub := session.service.telemetry:
            hub.emit(telemetry.LimitHit(name="max_subscriptions", session=session.id))
        raise Overloaded("there are too many subscriptions", retry_after=5, limit="max_subscriptions")
    return partial(places.give_back, owner, amount)


class Followed(Entity):
    """A resource that a session is subscribed to.

    It ends at the first change after the client can no longer read the resource: it was removed, or `visible=` hides
    it.
    """

    resources: Resources
    session: Actor
    uri: str
    topic: str = ""
    """Set when it begins."""
    _subscription: Subscription | None = None
    _give_back: Callable[[], None] = lambda: None

    def begin(self) -> None:
        """Follow the resource.

        Raises:
            Overloaded: there are too many subscriptions.
        """
        give_back = take_places(self.session, [self.uri])
        self.topic = resource_topic(self.uri)
        try:
            self._subscription = self.session.runtime.bus.subscribe([self.topic], self._changed)
        except Overloaded:
            give_back()
            raise
        self._give_back = give_back

    def _changed(self, _topic: str, about: dict[str, Any]) -> None:
        if may_read(self.resources, self.session.data["subscriber"], self.uri):
            about = {**about, "uri": self.uri}  # as the client wrote it
            self.session.asks.notify_nowait("notifications/resources/updated", about)
        else:
            _forget(self.session, self.uri)

    def close(self) -> None:
        """Stop; closing twice is allowed."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None
            self._give_back()


def may_read(resources: Resources, ctx: Context, uri: str) -> bool:
    """Return whether this caller sees the resource at `uri` and holds its scopes."""
    found = resources.find(ctx, uri)
    return found is not None and holds_scopes(ctx, found[0].scopes)


class Subscriptions(Entity):
    """The handlers of `resources/subscribe` and `resources/unsubscribe`; the bus carries the changes."""

    resources: Resources

    async def subscribe(self, ctx: Context, params: SubscribeParams) -> dict[str, Any]:
        check_kept({name: value for name, value in ctx._call.start.params.items() if name != "uri"})
        await self.resources.find_readable(ctx, params.uri)
        session = ctx._session
        mine = _subscriptions(session)
        if params.uri not in mine:
            if len(mine) >= MAX_PER_SESSION:
                raise MCPError(INVALID_PARAMS, f"a session may have {MAX_PER_SESSION} subscriptions; unsubscribe first")
            self._follow(ctx, params.uri)
            bus = session.runtime.bus
            await bus.settled()
            if session.runtime.homes is not None:
                versions = await bus.versions([resource_topic(params.uri)])
                if params.uri in mine:  # it may have been ended meanwhile
                    session.data.setdefault("versions", {}).update(versions)
            session.changed()
        return {}

    def _follow(self, ctx: Context, uri: str) -> None:
        session = ctx._session
        # A context keeps its request in memory, so the newest one serves all subscriptions of the session.
        session.data["subscriber"] = ctx
        followed = Followed(self.resources, session, uri)
        followed.begin()
        _subscriptions(session)[uri] = followed

    def unsubscribe(self, ctx: Context, params: SubscribeParams) -> dict[str, Any]:
        _forget(ctx._session, params.uri)
        return {}

    # -- durable sessions

    def topics(self, session: Actor) -> list[str]:
        """Return the topics that concern a session: lists of which it hears changes, and resources it subscribed to."""
        offers = session.peer.offers or {}
        lists = [list_topic(kind) for kind in _LISTS if (offers.get(kind) or {}).get("listChanged")]
        return lists + [followed.topic for followed in session.data.get("subscriptions", {}).values()]

    async def restore(
        self, session: Actor, record: SessionRecord, context: Callable[[str, dict[str, Any]], Context]
    ) -> None:
        """Subscribe again for a stored session, and announce what has changed meanwhile.

        `context` makes the context of a request of its client.
        """
        mine = _subscriptions(session) if record.subscriptions else {}
        for uri in record.subscriptions:
            ctx = context("resources/subscribe", {"uri": uri})
            if may_read(self.resources, ctx, uri):
                self._follow(ctx, uri)
            await trio.lowlevel.checkpoint()  # matching takes time
        spellings: dict[str, list[str]] = {}
        for uri, followed in mine.items():
            spellings.setdefault(followed.topic, []).append(uri)
        bus = session.runtime.bus
        now = await bus.versions(self.topics(session))
        for changed in changed_topics(record.versions, now):
            kind = changed.removeprefix(list_topic(""))
            if kind in _LISTS:
                send_list_changed(session, kind)
            for uri in spellings.get(changed, ()):
                session.asks.notify_nowait("notifications/resources/updated", {"uri": uri})
        session.data["versions"] = now


def _forget(session: Actor, uri: str) -> None:
    """End a subscription, if there is one."""
    mine = _subscriptions(session)
    followed = mine.pop(uri, None)
    if followed is None:
        return
    followed.close()
    if all(other.topic != followed.topic for other in mine.values()):  # none under another spelling of the URI
        session.data.get("versions", {}).pop(followed.topic, None)
    session.changed()


def _subscriptions(session: Actor) -> dict[str, Followed]:
    mine: dict[str, Followed] | None = session.data.get("subscriptions")
    if mine is None:
        mine = session.data["subscriptions"] = {}

        def end() -> None:
            for handle in mine.values():
                handle.close()

        session.on_end.append(end)
    return mine
