"""Annotations: for whom a piece of content is meant, and how much it matters."""

from __future__ import annotations

from attrs import field

from .base import Record, Role, as_optional_tuple, frozen


@frozen(kw_only=True)
class Annotations(Record):
    """Hints for whom a piece of content is meant and how much it matters (0 to 1)."""

    audience: tuple[Role, ...] | None = field(default=None, converter=as_optional_tuple)
    priority: float | None = None
    last_modified: str | None = None
