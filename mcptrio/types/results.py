"""The common results. Not in `base`: a server sends results as JSON objects and starts without these classes."""

from __future__ import annotations

from ._fields import frozen
from .base import CacheScope, JsonObject, Record


@frozen(kw_only=True)
class Result(Record):
    """The result of a request, without fields of its own."""

    result_type: str | None = None
    meta: JsonObject | None = None


@frozen(kw_only=True)
class CacheableResult(Result):
    """A result that says for how long and by whom it may be cached."""

    ttl_ms: int | None = None
    cache_scope: CacheScope | None = None


@frozen(kw_only=True)
class PaginatedResult(CacheableResult):
    """One page of a list; `next_cursor` requests the next page."""

    next_cursor: str | None = None


EmptyResult = Result
