"""What internal classes are built from. A struct takes a tenth of the time that an attrs class takes to be defined."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

__all__ = ["Entity", "Options"]

if TYPE_CHECKING:
    from typing import TypedDict as Options
else:

    class Options:
        """Names of keyword arguments and their types; only type checkers read the types.

        A real TypedDict compiles each of its annotations, and a start should not take longer for that.
        """

        def __init_subclass__(cls, *, total: bool = True) -> None: ...


class Entity(msgspec.Struct, eq=False):
    """A thing with fields rather than a value: it is equal to nothing but itself, and keeps to itself what it holds."""

    __repr__ = object.__repr__
