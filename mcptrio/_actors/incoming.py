"""The request as middleware sees it. In its own module, because most servers have no middleware."""

from __future__ import annotations

from typing import Any

from attrs import frozen


@frozen
class Incoming:
    """A request as middleware sees it; `evolve` it to pass on a changed one."""

    method: str
    params: Any
