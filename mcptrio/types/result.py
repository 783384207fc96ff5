"""What results are built from. A server answers with plain JSON mostly, so these are for clients."""

from __future__ import annotations

from .base import CacheScope, JsonObject, Record, frozen


@frozen(kw_only=True)
class Result(Record):
    """What a request is answered with; by itself, the empty result."""

    result_type: str | None = None
    meta: JsonObject | None = None


@frozen(kw_only=True)
class CacheableResult(Result):
    """A result that says for how long and for whom it may be kept."""

    ttl_ms: int | None = None
    cache_scope: CacheScope | None = None


@frozen(kw_only=True)
class PaginatedResult(CacheableResult):
    """One page of a list; `next_cursor` asks for the next one."""

    next_cursor: str | None = None


EmptyResult = Result
