"""The cache of results that a server declared fresh. Entries expire by time or when the server reports a change.

2026-07-28 server/utilities/caching. One cache belongs to one client and so to one authorization context, which makes
`private` and `public` the same here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from attrs import define, field

CACHEABLE: Final = frozenset(
    {"tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}
)
_MADE_STALE: Final[Mapping[str, tuple[str, ...]]] = {
    "notifications/tools/list_changed": ("tools/list",),
    "notifications/prompts/list_changed": ("prompts/list",),
    "notifications/resources/list_changed": ("resources/list", "resources/templates/list"),
}
_MAX_TTL: Final = 24 * 3600 * 1000
_encode: Final = msgspec.json.Encoder(order="deterministic").encode

Key = tuple[str, bytes]


@define(eq=False, repr=False)
class ResultCache:
    """A cache from method and parameters to result, with the lifetime that the server set."""

    max_entries: int = 256
    _entries: OrderedDict[Key, tuple[float, dict[str, Any]]] = field(factory=OrderedDict)
    _changes: int = 0

    @property
    def changes(self) -> int:
        """The number of invalidations: a result of a request from before the latest one must not be cached."""
        return self._changes

    def key(self, method: str, params: Mapping[str, Any]) -> Key | None:
        """Return the cache key of a request, or None if its result must not be cached."""
        if method not in CACHEABLE or not self.max_entries or "inputResponses" in params or "requestState" in params:
            return None
        return method, _encode({name: value for name, value in params.items() if name != "_meta"})

    def get(self, key: Key, now: float) -> dict[str, Any] | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if now >= entry[0]:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return entry[1]

    def put(self, key: Key, result: dict[str, Any], now: float, changes: int) -> None:
        """Cache a result whose request was sent when `changes` was the number of invalidations."""
        ttl = result.get("ttlMs")
        if type(ttl) is not int or ttl <= 0 or changes != self._changes:
            return
        self._entries[key] = (now + min(ttl, _MAX_TTL) / 1000, result)
        self._entries.move_to_end(key)
        while len(self._entries) > self.max_entries:
            self._entries.popitem(last=False)

    def on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """Drop the results that the server reports as changed."""
        methods = _MADE_STALE.get(method, ())
        uri = params.get("uri") if method == "notifications/resources/updated" else None
        if not methods and not isinstance(uri, str):
            return
        self._changes += 1
        for key in list(self._entries):
            if key[0] in methods or (isinstance(uri, str) and key[0] == "resources/read" and _reads(key, uri)):
                del self._entries[key]

    def clear(self) -> None:
        self._changes += 1
        self._entries.clear()


def _reads(key: Key, uri: str) -> bool:
    """Return whether a cached read is of this resource, of one that contains it, or of a part of it."""
    kept = msgspec.json.decode(key[1]).get("uri", "")
    return isinstance(kept, str) and (kept == uri or uri.startswith(kept) or kept.startswith(uri))
