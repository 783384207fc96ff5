"""Checks of settings: a value of the wrong type or out of range is refused where it is set, not where it is used.

A value of another type that can only mean one thing is converted: a list to a tuple, `4e6` to a whole number, a member
of an enumeration of strings to its string.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from math import inf
from operator import index
from types import NoneType, UnionType
from typing import Any, ClassVar, Final, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import force_setattr

from mcptrio.errors import DeclarationError

_PACKAGE: Final = __name__.partition(".")[0]
_NAMES: Final[Mapping[Any, str]] = {
    int: "a whole number",
    float: "a number",
    str: "a string",
    bool: "True or False",
    NoneType: "None",
    Callable: "a function",
    os.PathLike: "a path",
}
_PLURALS: Final[Mapping[Any, str]] = {
    str: "strings",
    Any: "values",
    Iterable: "lists",
    Mapping: "mappings",
    Callable: "functions",
    os.PathLike: "paths",
}


class _Mismatch(Exception):
    """A value, or a part of it, that is not of its kind."""

    def __init__(self, value: Any, kind: Any) -> None:
        self.value, self.kind = value, kind


def check_fields(
    settings: object,
    *,
    positive: Iterable[str] = (),
    not_negative: Iterable[str] = (),
    finite: Iterable[str] = (),
) -> None:
    """Check the fields of a class of settings against their annotations, and convert them; None has no range.

    Whole numbers are limits, which inf turns off, except those in `finite`.

    Raises:
        DeclarationError: a value is not of its type, or out of range.
    """
    cls: Any = type(settings)
    for name, kind in _kinds(cls).items():
        given = getattr(settings, name)
        # As an int, because the code that uses it may divide it, slice with it, or send it to a database.
        limit = kind is int and name not in finite
        value = sys.maxsize if limit and isinstance(given, float) and given == inf else given
        hint = "write math.inf for no limit" if limit and given is None else ""
        value = check_value(f"{cls.__name__}.{name}", value, kind, hint=hint)
        if value is not given:
            _set(settings, name, value)
    for name in positive:
        value = getattr(settings, name)
        if value is not None and not value > 0:
            raise DeclarationError(f"{cls.__name__}.{name} must be positive, got {value!r}")
    for name in not_negative:
        check_not_negative(f"{cls.__name__}.{name}", getattr(settings, name))


def check_value(name: str, value: Any, kind: Any, *, hint: str = "") -> Any:
    """Check a setting against a type, as an annotation writes it, and return it as a value of this type.

    Raises:
        DeclarationError: the value is not of this type; the text ends with `hint`.
    """
    try:
        return _convert(value, kind)
    except _Mismatch as mismatch:
        got = _got(value, kind)
        if mismatch.value is not value:
            got += f" that holds {_got(mismatch.value, mismatch.kind)}"
        elif kind is int and value == inf:
            hint = "this cannot be unlimited, write a number"
        raise DeclarationError(f"{name} must be {_describe(kind)}, got {got}{hint and f'; {hint}'}") from None


def check_not_negative(name: str, value: float | None) -> None:
    if value is not None and not value >= 0:
        raise DeclarationError(f"{name} must not be negative, got {value!r}")


def as_tuple(value: Any) -> Any:
    """Convert a collection to a tuple, for the converter of a field; leave another value to `check_fields`."""
    return tuple(value) if _is_collection(value) else value


def as_path(value: Any) -> Any:
    """Convert a path to a string, for the converter of a field; leave another value to `check_fields`."""
    return os.fspath(value) if isinstance(value, os.PathLike) else value


@cache
def _kinds(cls: type) -> Mapping[str, Any]:
    """Return the annotations of the fields to check: those of this package, not those that a user's subclass adds."""
    own = next(each for each in cls.__mro__ if each.__module__.partition(".")[0] == _PACKAGE)
    hints = get_type_hints(own).items()
    return {name: kind for name, kind in hints if name[0] != "_" and get_origin(kind) is not ClassVar}


def _set(settings: object, name: str, value: Any) -> None:
    if isinstance(settings, Struct):
        force_setattr(settings, name, value)  # object.__setattr__ refuses a Struct
    else:
        object.__setattr__(settings, name, value)


def _is_collection(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)


@cache
def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(kind), get_args(kind)


def _convert(value: Any, kind: Any) -> Any:
    if kind is Any or (type(value) is kind and kind is not float):  # a float may be NaN
        return value
    origin, args = _parts(kind)  # cached, because a Principal is made in most requests
    if origin in (Union, UnionType):
        return _convert_to_one(value, kind, args)
    if origin is Literal:
        return _convert_to_literal(value, kind, args)
    if kind in (int, float):
        return _convert_to_number(value, kind)
    if origin in (tuple, frozenset) and _is_collection(value):
        return origin(_convert(each, args[0]) for each in value)
    if not isinstance(value, origin or kind):
        raise _Mismatch(value, kind)
    if kind is str:
        return str.__str__(value)  # not a subclass: its format() may differ, and msgspec cannot encode it
    if origin is Mapping:  # not copied: it may be an object of the user, such as os.environ
        for key, each in value.items():
            _convert(key, args[0])
            _convert(each, args[1])
    return value


def _convert_to_one(value: Any, kind: Any, kinds: tuple[Any, ...]) -> Any:
    if type(value) in kinds and type(value) is not float:
        return value
    part: _Mismatch | None = None
    for each in kinds:
        try:
            return _convert(value, each)
        except _Mismatch as mismatch:
            if mismatch.value is not value:
                part = mismatch
    raise part or _Mismatch(value, kind)


def _convert_to_literal(value: Any, kind: Any, allowed: Iterable[Any]) -> Any:
    for each in allowed:
        if (type(value) is type(each) or isinstance(value, str)) and value == each:
            return each  # not a subclass of str, such as a member of an enumeration, whose format() may differ
    raise _Mismatch(value, kind)


def _convert_to_number(value: Any, kind: Any) -> Any:
    with suppress(TypeError, ValueError, ArithmeticError):  # of numbers of other libraries
        if not isinstance(value, bool) and value == value:  # not NaN
            if isinstance(value, int) or (isinstance(value, float) and kind is float):
                return value
            if isinstance(value, float) and value.is_integer():
                return int(value)
            if hasattr(value, "__index__"):
                return index(value)
            if kind is float and hasattr(value, "__float__"):
                return float(value)
    raise _Mismatch(value, kind)


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
    return _NAMES.get(cls) or _with_article(_name_of(cls))


def _describe_many(kind: Any) -> str:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return " or ".join(map(_describe_many, get_args(kind)))
    if origin is Literal:
        return _describe(kind)
    cls = origin or kind
    return _PLURALS.get(cls) or f"{_name_of(cls)} objects"


def _got(value: Any, kind: Any) -> str:
    """Describe a refused value. It is repeated only for numbers, switches and choices: others may be a secret."""
    if value is None or (_is_public(kind) and isinstance(value, str | int | float)):
        return repr(value)[:80]
    return _with_article(_name_of(type(value)))


def _is_public(kind: Any) -> bool:
    if get_origin(kind) in (Union, UnionType):
        return all(map(_is_public, get_args(kind)))
    return kind in (int, float, bool, NoneType) or get_origin(kind) is Literal


def _name_of(cls: type) -> str:
    """Name a class, with its library, because several have an `AsyncClient`."""
    library = cls.__module__.partition(".")[0]
    return cls.__name__ if library in ("builtins", "__main__", _PACKAGE) else f"{library}.{cls.__name__}"


def _with_article(name: str) -> str:
    return f"{'an' if name.startswith(('a', 'e', 'i', 'o', 'A', 'E', 'I', 'O', 'httpx', 'ssl')) else 'a'} {name}"
