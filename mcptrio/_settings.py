"""Checks of settings: a value of the wrong type or out of range is refused where it is set, not where it is used."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, Literal, Union, get_args, get_origin, get_type_hints

from mcptrio.errors import DeclarationError

_NAMES: Final[Mapping[Any, str]] = {
    int: "a whole number",
    float: "a number",
    str: "a string",
    bool: "True or False",
    NoneType: "None",
    Callable: "a function",
    os.PathLike: "a path",
}
_PLURALS: Final[Mapping[Any, str]] = {str: "strings", Any: "values", Mapping: "mappings", Callable: "functions"}


def check_fields(settings: object, *, positive: Iterable[str] = (), not_negative: Iterable[str] = ()) -> None:
    """Check the fields of a class of settings against their annotations; None has no range.

    Raises:
        DeclarationError: a value is not of its type, or out of range.
    """
    cls: Any = type(settings)
    for name, kind in _kinds(cls).items():
        check_value(f"{cls.__name__}.{name}", getattr(settings, name), kind)
    for name in positive:
        value = getattr(settings, name)
        if value is not None and not value > 0:
            raise DeclarationError(f"{cls.__name__}.{name} must be positive, got {value!r}")
    for name in not_negative:
        check_not_negative(f"{cls.__name__}.{name}", getattr(settings, name))


def check_value(name: str, value: Any, kind: Any) -> None:
    """Check a setting against a type, as an annotation writes it.

    Raises:
        DeclarationError: the value is not of this type.
    """
    if not _fits(value, kind):
        # Not the text of other objects: bytes may be a password.
        got = repr(value)[:80] if isinstance(value, str | int | float | NoneType) else f"a {type(value).__name__}"
        raise DeclarationError(f"{name} must be {_describe(kind)}, got {got}")


def check_not_negative(name: str, value: float | None) -> None:
    if value is not None and not value >= 0:
        raise DeclarationError(f"{name} must not be negative, got {value!r}")


def as_tuple(value: Any) -> Any:
    """Convert an iterable to a tuple, for the converter of a field; leave another value to `check_fields`."""
    return tuple(value) if isinstance(value, Iterable) else value


@cache
def _kinds(cls: Any) -> Mapping[str, Any]:
    hints = get_type_hints(cls).items()
    return {name: kind for name, kind in hints if name[0] != "_" and get_origin(kind) is not ClassVar}


def _fits(value: Any, kind: Any) -> bool:
    origin, args = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in args)
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in args)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and value == value  # not NaN
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if not isinstance(value, origin or kind):
        return False
    if origin in (tuple, frozenset):
        return all(_fits(each, args[0]) for each in value)
    if origin is Mapping:
        return all(_fits(key, args[0]) and _fits(each, args[1]) for key, each in value.items())
    return True


def _describe(kind: Any) -> str:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(map(_describe, args))
    if origin is Literal:
        return " or ".join(map(repr, args))
    if origin in (tuple, frozenset, Iterable):
        return f"a list of {_describe_many(args[0])}"
    if origin is Mapping:
        return f"a mapping from {_describe_many(args[0])} to {_describe_many(args[1])}"
    cls = origin or kind
    return _NAMES.get(cls) or f"a {cls.__name__}"


def _describe_many(kind: Any) -> str:
    return _PLURALS.get(get_origin(kind) or kind) or _describe(kind)
