"""Subscriptions to changes, for stateful and stateless dates.

Stateless: one `subscriptions/listen` request stays open. Stateful: the session reports changes of lists by itself, and
those of resources after `resources/subscribe`. A listener sees the same either way: changes, each at most once until it
is taken. After a reconnection everything that is listened to counts as changed, because changes may have been missed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import trio
from attrs import define, field, frozen

from mcptrio._eras.stateless import SUBSCRIPTION
from mcptrio.client.timeouts import TimedReply
from mcptrio.transports.client import same_id

Kind = Literal["tools", "prompts", "resources", "resource"]
_KINDS: Final[Mapping[str, Kind]] = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
    "notifications/resources/updated": "resource",
}
_FIELDS: Final = {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_MAX_WAITING: Final = 1024


@frozen(kw_only=True)
class Change:
    """A change of one of the server's lists, or of the resource with this URI."""

    kind: Kind
    uri: str | None = None


@define(eq=False, repr=False)
class Changes:
    """An open subscription: iterate over it.

    `honoured` holds the kinds and resources that the server agreed to report.
    """

    kinds: frozenset[Kind]
    uris: frozenset[str]
    honoured: tuple[frozenset[Kind], frozenset[str]] = (frozenset(), frozenset())
    acknowledged: trio.Event = field(factory=trio.Event)
    answered: bool = False
    """Whether the server acknowledged the subscription on the current connection."""
    interrupted: bool = False
    """Whether the current connection replaces an earlier one, and the server has not acknowledged it yet."""
    subscription: int | str | None = None
    """The id of the listen request, where there is one."""
    waits: TimedReply | None = None
    """The listen request, where there is one: its timeout is for the acknowledgement."""
    _waiting: dict[Change, None] = field(factory=dict)
    _error: Exception | None = None
    _refused: Exception | None = None
    _over: bool = False
    _news: trio.lowlevel.ParkingLot = field(factory=trio.lowlevel.ParkingLot)

    def __aiter__(self) -> Changes:
        return self

    async def __anext__(self) -> Change:
        await trio.lowlevel.checkpoint()
        while not self._waiting:
            if self._error is not None:
                raise self._error
            if self._over:
                raise StopAsyncIteration
            await self._news.park()
        change = next(iter(self._waiting))
        del self._waiting[change]
        return change

    # -- for the client

    @property
    def filter(self) -> dict[str, Any]:
        """The filter of the listen request, in its wire form."""
        wanted: dict[str, Any] = {_FIELDS[kind]: True for kind in sorted(self.kinds) if kind in _FIELDS}
        if self.uris:
            wanted["resourceSubscriptions"] = sorted(self.uris)
        return wanted

    def on_notification(self, method: str, params: Mapping[str, Any], *, stateful: bool) -> None:
        if not stateful:
            meta = params.get("_meta")
            if self.subscription is None or not isinstance(meta, Mapping):
                return
            number = meta.get(SUBSCRIPTION)
            if not isinstance(number, int | str) or not same_id(number, self.subscription):
                return
        if method == ACKNOWLEDGED:
            said = params.get("notifications")
            self._acknowledge(said if isinstance(said, Mapping) else {})
            return
        kind = _KINDS.get(method)
        if kind == "resource":
            uri = params.get("uri")
            if isinstance(uri, str) and (not stateful or any(_within(uri, one) for one in self.uris)):
                self.put(Change(kind=kind, uri=uri))
        elif kind is not None and kind in self.kinds:
            self.put(Change(kind=kind))

    def _acknowledge(self, said: Mapping[str, Any]) -> None:
        uris = said.get("resourceSubscriptions")
        kinds = frozenset(kind for kind in self.kinds if said.get(_FIELDS.get(kind, "")) is True)
        named = frozenset(uri for uri in uris if isinstance(uri, str)) if isinstance(uris, list) else frozenset()
        self.honour(kinds, named & self.uris)

    def honour(self, kinds: frozenset[Kind], uris: frozenset[str]) -> None:
        self.honoured = (kinds, uris)
        self.answered = True
        if self.waits is not None:
            self.waits.keep_waiting()
        if self.interrupted:
            # Not before the server reports changes again: one after the listener has looked would be missed.
            self.interrupted = False
            self.put_everything()
        self.acknowledged.set()

    def put(self, change: Change) -> None:
        if len(self._waiting) < _MAX_WAITING:
            self._waiting[change] = None
        self._news.unpark_all()

    def put_everything(self) -> None:
        """Report everything as changed, because changes may have been missed."""
        for kind in sorted(self.kinds):
            self.put(Change(kind=kind))
        for uri in sorted(self.uris):
            self.put(Change(kind="resource", uri=uri))

    def end(self, error: Exception | None = None) -> None:
        """End the iteration; changes that are queued can still be taken."""
        self._over = True
        self._error = self._error or error
        if not self.acknowledged.is_set():
            self._refused = error
            self.acknowledged.set()
        self._news.unpark_all()

    def raise_if_refused(self) -> None:
        """Raise the error that prevented the subscription."""
        if self._refused is not None:
            raise self._refused


def _within(uri: str, subscribed: str) -> bool:
    """Return whether an update concerns the subscribed resource or a part of it."""
    return uri == subscribed or uri.startswith(subscribed.rstrip("/") + "/")
