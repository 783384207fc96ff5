"""Typed values to JSON values: the inverse of the readers in `shapes`."""

from __future__ import annotations

import binascii
import collections.abc
import enum
import math
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UnsetType

from mcptrio._schema import records

_LEAVES: Final = frozenset({str, int, bool, type(None)})
"""Types of JSON that are converted by leaving them as they are: most parts of a large value."""
_MAX_KNOWN: Final = 4096  # bound the cache, because classes may be created at run time


def dump(value: Any) -> Any:
    """Return the JSON value of a typed value: None, bool, int, float, str, list or dict, recursively.

    Raises:
        ValueError: a part of it has no JSON form (a NaN, a file, an unsupported class), or it contains itself.
    """
    try:
        return _dump(value)
    except RecursionError:
        raise ValueError("the value is nested too deeply or holds itself") from None


def _dump(value: Any) -> Any:
    return _KNOWN[type(value)](value)


class _Ways(dict[type, Callable[[Any], Any]]):
    """The converting functions by class, each made on first use."""

    def __missing__(self, cls: type) -> Callable[[Any], Any]:
        if len(self) >= _MAX_KNOWN:
            self.clear()
            self.update(_PLAIN)
        self[cls] = how = _way_of(cls)
        return how


def _same(value: Any) -> Any:
    return value


def _number(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} has no JSON form; return None or a string instead")
    return float(value)


def _items(value: Any) -> list[Any]:
    return [item if type(item) in _LEAVES else _KNOWN[type(item)](item) for item in value]


def _set(value: Any) -> list[Any]:
    items = _items(value)
    try:
        return sorted(items)  # the same set gives the same text in every process
    except TypeError:
        return items


def _pairs(value: Any) -> dict[str, Any]:
    return {
        key if type(key) is str else _key(key): item if type(item) in _LEAVES else _KNOWN[type(item)](item)
        for key, item in value.items()
    }


def _key(key: Any) -> str:
    out = _dump(key)
    if type(out) is int:
        return str(out)
    if type(out) is not str:
        raise ValueError(f"{key!r} cannot be a key in JSON; use strings")
    return out


_PLAIN: Final[dict[type, Callable[[Any], Any]]] = {
    str: _same,
    int: _same,
    bool: _same,
    type(None): _same,
    float: _number,
    list: _items,
    tuple: _items,
    dict: _pairs,
    set: _set,
    frozenset: _set,
}
_KNOWN: Final = _Ways(_PLAIN)


def _isoformat(value: Any) -> Any:
    return value.isoformat()


def _decimal(value: Any) -> str:
    if not value.is_finite():
        raise ValueError(f"{value} has no JSON form; return None or a string instead")
    return str(value)


def _base64(value: Any) -> str:
    return binascii.b2a_base64(value, newline=False).decode("ascii")


_BY_NAME: Final[dict[tuple[str, str], Callable[[Any], Any]]] = {
    ("datetime", "datetime"): _isoformat,
    ("datetime", "date"): _isoformat,
    ("datetime", "time"): _isoformat,
    ("datetime", "timedelta"): msgspec.to_builtins,
    ("uuid", "UUID"): str,
    ("decimal", "Decimal"): _decimal,
    ("pathlib", "PurePath"): str,
    ("ipaddress", "IPv4Address"): str,
    ("ipaddress", "IPv6Address"): str,
    ("builtins", "bytes"): _base64,
    ("builtins", "bytearray"): _base64,
    ("builtins", "memoryview"): _base64,
}


def _way_of(cls: type) -> Callable[[Any], Any]:
    if issubclass(cls, enum.Enum):
        return lambda value: _dump(value.value)
    if hasattr(cls, "__pydantic_serializer__"):
        return _model
    if (attributes := records.attributes_of(cls)) is not None:
        return _record(cls, attributes)
    for base in cls.__mro__:
        if (how := _BY_NAME.get((base.__module__.partition(".")[0], base.__name__))) is not None:
            return how
    for base, how in ((str, lambda v: str.__str__(v)), (int, int), (float, _number)):
        if issubclass(cls, base):
            return how
    if issubclass(cls, collections.abc.Mapping):
        return _pairs
    if issubclass(cls, collections.abc.Set):
        return _set
    if issubclass(cls, collections.abc.Sequence):
        return _items
    if hasattr(cls, "__get_pydantic_core_schema__"):  # AnyUrl and similar types
        return str
    return _refuse


def _record(cls: type, attributes: list[tuple[str, str]]) -> Callable[[Any], dict[str, Any]]:
    head: dict[str, Any] = dict([tag]) if (tag := records.tag_of(cls)) is not None else {}

    def how(value: Any) -> dict[str, Any]:
        out = dict(head)
        for attribute, key in attributes:
            item = getattr(value, attribute)
            kind = type(item)
            if kind in _LEAVES:
                out[key] = item
            elif kind is not UnsetType:  # the field is left out
                out[key] = _KNOWN[kind](item)
        return out

    return how


def _model(value: Any) -> Any:
    return _dump(type(value).__pydantic_serializer__.to_python(value, mode="json", by_alias=True))


def _refuse(value: Any) -> Any:
    if isinstance(value, collections.abc.Awaitable):
        raise ValueError(f"a value of type {type(value).__name__} was returned: an `await` is missing")
    raise ValueError(
        f"a value of type {type(value).__name__} has no JSON form; return a dataclass, a dict or a plain value"
    )
