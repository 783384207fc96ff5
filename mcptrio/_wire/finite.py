"""The search for NaN and infinities, which JSON lacks: the encoder writes them as null."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, UnsetType
from msgspec.structs import astuple

_LEAVES: Final = frozenset({str, int, bool, type(None), bytes, Raw, UnsetType})


def has_non_finite(value: Any) -> bool:
    """Return whether there is a NaN or an infinity in a value.

    By type and without paths: a table with empty cells is searched for every response.
    """
    level: list[Any] = [value]
    while level:
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind in _LEAVES:
                continue
            if kind is dict:
                below += item.values()
            elif kind is list or kind is tuple:
                below += item
            elif kind is float:
                if not isfinite(item):
                    return True
            elif isinstance(item, Struct):
                below += astuple(item)
            elif find_non_finite(item) is not None:
                return True
        level = below
    return False


def find_non_finite(value: Any) -> str | None:
    """Return the path of the first NaN or infinity in a value, such as `$.result.rows[2]`, or None."""
    stack: list[tuple[str, Any]] = [("$", value)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, float):
            if not isfinite(item):
                return path
        elif isinstance(item, dict):
            stack.extend((f"{path}.{key}", child) for key, child in reversed(item.items()))
        elif isinstance(item, list | tuple | set | frozenset):
            stack.extend(reversed([(f"{path}[{index}]", child) for index, child in enumerate(item)]))
        elif isinstance(item, Struct):
            stack.extend((f"{path}.{name}", getattr(item, name)) for name in reversed(item.__struct_fields__))
        elif item is not None and not isinstance(item, str | int | bytes | Raw | UnsetType):
            plain = msgspec.to_builtins(item)  # dataclasses, attrs classes, enums, dates, …
            if isinstance(plain, dict | list | float):
                stack.append((path, plain))
    return None
