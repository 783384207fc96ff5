"""What a call of a tool gives back."""

from __future__ import annotations

from typing import Any

from attrs import field

from .base import NULL_MATTERS, Result, as_tuple, frozen
from .content import ContentBlock


@frozen(kw_only=True)
class CallToolResult(Result):
    """What a tool gave back; with `is_error`, a failure that the model can read."""

    content: tuple[ContentBlock, ...] = field(default=(), converter=as_tuple)
    structured_content: Any = field(default=None, metadata=NULL_MATTERS)
    is_error: bool | None = None
