"""What middleware sees of a request. A module of its own, as most servers have no middleware."""

from __future__ import annotations

from typing import Any

from attrs import frozen


@frozen
class Incoming:
    """What middleware sees of a request; `evolve` it to hand on something else."""

    method: str
    params: Any
