"""What results carry beside their content at dates that want it: their type, who answers, how long they may be kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from mcptrio._eras.stateless import SERVER_INFO
from mcptrio._peer.era import Era
from mcptrio.errors import DeclarationError


class Cache(Struct, frozen=True, kw_only=True):
    """How long clients may keep a result, and whether they may share it.

    `ttl` is in seconds; 0 means that it is stale at once. `scope` "public" lets gateways give it to anybody, so it is
    only for what does not depend on who asks.
    """

    ttl: float = 0.0
    """Seconds for which a client may use the result without asking again; 0: it is stale at once. Raise it for what
    seldom changes."""
    scope: Literal["public", "private"] = "private"
    """`"private"`: for the client that asked; `"public"` lets gateways give it to anybody, so only for what does
    not depend on who asks."""

    def __post_init__(self) -> None:
        if not self.ttl >= 0:
            raise DeclarationError(f"Cache.ttl must not be negative, got {self.ttl}")
        if self.scope not in ("public", "private"):
            raise DeclarationError(f'Cache.scope is "public" or "private", not {self.scope!r}')

    def add_to(self, wire: dict[str, Any]) -> None:
        wire.setdefault("ttlMs", round(self.ttl * 1000))
        wire.setdefault("cacheScope", self.scope)


NO_CACHE = Cache()
CACHED_LISTS = ("tools", "prompts", "resources", "templates", "discover")


def caches_of(cache: Cache | Mapping[str, Cache] | None) -> Mapping[str, Cache]:
    """By list what was said for all lists, or for some."""
    if cache is None or isinstance(cache, Cache):
        return {} if cache is None else dict.fromkeys(CACHED_LISTS, cache)
    unknown = sorted(set(cache) - set(CACHED_LISTS))
    if unknown:
        raise DeclarationError(f"cache: there is no list {', '.join(unknown)}; there are {', '.join(CACHED_LISTS)}")
    return dict(cache)


class Hints(Struct, frozen=True):
    """Completes results."""

    info: Mapping[str, Any]
    """The server's `Implementation` on the wire."""
    lists: Mapping[str, Cache] = field(default_factory=dict)

    def finish(self, wire: dict[str, Any], era: Era) -> dict[str, Any]:
        """Every result of a date that has result types says which it is and who made it."""
        if era.stateful:
            return wire
        wire.setdefault("resultType", "complete")
        meta = wire.get("_meta")
        wire["_meta"] = {**(meta or {}), SERVER_INFO: self.info}
        return wire

    def finish_list(self, kind: str, wire: dict[str, Any], era: Era, *, varies: bool) -> dict[str, Any]:
        """A page of a list. One that differs between callers is never public, and all pages are of one scope."""
        if era.features.cache_hints:
            cache = self.lists.get(kind, NO_CACHE)
            (Cache(ttl=cache.ttl) if varies else cache).add_to(wire)
        return self.finish(wire, era)
