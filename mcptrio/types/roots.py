"""Roots: the directories and files in which a client lets a server work."""

from __future__ import annotations

from attrs import field

from ._fields import as_tuple, frozen
from .base import JsonObject, Params, Record
from .results import Result


@frozen(kw_only=True)
class Root(Record):
    """A directory or file, by its URI."""

    uri: str
    name: str | None = None
    meta: JsonObject | None = None


ListRootsParams = Params


@frozen(kw_only=True)
class ListRootsResult(Result):
    """The roots of a client."""

    roots: tuple[Root, ...] = field(converter=as_tuple)


RootsListChangedParams = Params
