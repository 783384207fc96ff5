"""Fields that newer revisions add to results: the result type, the server info and the cache lifetime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

from mcptrio._eras.stateless import SERVER_INFO
from mcptrio._peer.era import Era
from mcptrio._settings import check_fields, check_value
from mcptrio.errors import DeclarationError


class Cache(Struct, frozen=True, kw_only=True):
    """The cache lifetime of a result, and whether caches may share it.

    `ttl` is in seconds; 0 means that it is stale at once. `scope` "public" lets gateways share it between clients, so
    use it only for results that are the same for every caller.
    """

    ttl: float = 0.0
    """Seconds for which a client may use the result without requesting it again; 0: it is stale at once. Raise it for
    results that rarely change."""
    scope: Literal["public", "private"] = "private"
    """`"private"`: for this client only; `"public"` lets gateways share it between clients, so use it only for results
    that are the same for every caller."""

    def __post_init__(self) -> None:
        check_fields(self, not_negative=("ttl",))

    def add_to(self, wire: dict[str, Any]) -> None:
        wire.setdefault("ttlMs", round(self.ttl * 1000))
        wire.setdefault("cacheScope", self.scope)


NO_CACHE = Cache()
CACHED_LISTS = ("tools", "prompts", "resources", "templates", "discover")


def caches_of(cache: Cache | Mapping[str, Cache] | None) -> Mapping[str, Cache]:
    """Return the cache settings by list, from one setting for all lists or from some by name."""
    if cache is None or isinstance(cache, Cache):
        return {} if cache is None else dict.fromkeys(CACHED_LISTS, cache)
    check_value("cache", cache, Mapping[str, Cache] | Cache | None)
    unknown = sorted(set(cache) - set(CACHED_LISTS))
    if unknown:
        raise DeclarationError(f"cache: there is no list {', '.join(unknown)}; there are {', '.join(CACHED_LISTS)}")
    return dict(cache)


class ResultFields(Struct, frozen=True):
    """The fields that every result gets."""

    info: Mapping[str, Any]
    """The server's `Implementation` in its wire form."""
    lists: Mapping[str, Cache] = field(default_factory=dict)

    def finish(self, wire: dict[str, Any], era: Era) -> dict[str, Any]:
        """Add the result type and the server info, at the revisions that have them."""
        if era.stateful:
            return wire
        wire.setdefault("resultType", "complete")
        meta = wire.get("_meta")
        wire["_meta"] = {**(meta or {}), SERVER_INFO: self.info}
        return wire

    def finish_list(self, kind: str, wire: dict[str, Any], era: Era, *, varies: bool) -> dict[str, Any]:
        """Complete a page of a list. A list that differs between callers is never public; all its pages have one
        scope."""
        if era.features.cache_hints:
            cache = self.lists.get(kind, NO_CACHE)
            (Cache(ttl=cache.ttl) if varies else cache).add_to(wire)
        return self.finish(wire, era)
