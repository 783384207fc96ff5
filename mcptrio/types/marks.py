"""What hosts show beside other things, and how much those matter: icons and annotations."""

from __future__ import annotations

from typing import Literal

from attrs import field

from .base import Record, Role, as_optional_tuple, frozen


@frozen(kw_only=True)
class Annotations(Record):
    """Hints for whom a piece of content is meant and how much it matters (0 to 1)."""

    audience: tuple[Role, ...] | None = field(default=None, converter=as_optional_tuple)
    priority: float | None = None
    last_modified: str | None = None


@frozen(kw_only=True)
class Icon(Record):
    """A picture that a host may show beside a name."""

    src: str
    mime_type: str | None = None
    sizes: tuple[str, ...] | None = field(default=None, converter=as_optional_tuple)
    theme: Literal["light", "dark"] | None = None
