"""Icons: pictures that hosts show beside names."""

from __future__ import annotations

from typing import Literal

from attrs import field

from .base import Record, as_optional_tuple, frozen


@frozen(kw_only=True)
class Icon(Record):
    """A picture that a host may show beside a name."""

    src: str
    mime_type: str | None = None
    sizes: tuple[str, ...] | None = field(default=None, converter=as_optional_tuple)
    theme: Literal["light", "dark"] | None = None
