"""Roots: the places a client lets a server work in."""

from __future__ import annotations

from attrs import field

from .base import JsonObject, Params, Record, as_tuple, frozen
from .result import Result


@frozen(kw_only=True)
class Root(Record):
    """A directory or file, by its URI."""

    uri: str
    name: str | None = None
    meta: JsonObject | None = None


@frozen(kw_only=True)
class ListRootsResult(Result):
    """The roots of a client."""

    roots: tuple[Root, ...] = field(converter=as_tuple)


ListRootsParams = Params
RootsListChangedParams = Params
