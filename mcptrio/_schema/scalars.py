"""Shapes of single values: numbers, strings, the strings with a format, enums and literals."""

from __future__ import annotations

import binascii
import enum
import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from mcptrio._schema.faults import Faults, Place, listed, show
from mcptrio._schema.shape import ANY_KIND, NUMBERS, Load, Shape, anything
from mcptrio.errors import DeclarationError

_STRING: Final = frozenset({"string"})


def _string(value: Any, at: Place, faults: Faults) -> Any:
    if type(value) is str:
        return value
    return faults.add(at, f"expected string, got {show(value)}")


def _integer(value: Any, at: Place, faults: Faults) -> Any:
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer():
        return int(value)
    return faults.add(at, f"expected integer, got {show(value)}")


def _number(value: Any, at: Place, faults: Faults) -> Any:
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            return faults.add(at, f"expected a number within the range of a double, got {show(value)}")
    return faults.add(at, f"expected number, got {show(value)}")


def _boolean(value: Any, at: Place, faults: Faults) -> Any:
    if type(value) is bool:
        return value
    return faults.add(at, f"expected boolean, got {show(value)}")


def _null(value: Any, at: Place, faults: Faults) -> Any:
    if value is not None:
        faults.add(at, f"expected null, got {show(value)}")


def plain(type_: Any) -> Shape | None:
    """Return the shape of a type that is already a JSON type."""
    if type_ is str:
        return Shape({"type": "string"}, _string, label="string", kinds=_STRING, exact=str, natural=str)
    if type_ is int:
        return Shape({"type": "integer"}, _integer, label="integer", kinds=NUMBERS, exact=int, natural=int)
    if type_ is float:
        return Shape({"type": "number"}, _number, label="number", kinds=NUMBERS, natural=float)
    if type_ is bool:
        return Shape({"type": "boolean"}, _boolean, label="boolean", kinds=frozenset({"boolean"}), exact=bool)
    if type_ is None or type_ is type(None):
        return Shape({"type": "null"}, _null, label="null", kinds=frozenset({"null"}))
    if type_ is Any or type_ is object:
        return Shape({}, anything, label="anything", kinds=ANY_KIND)
    return None


def _base64(text: str) -> bytes:
    return binascii.a2b_base64(text, strict_mode=True)


def _duration(text: str) -> Any:
    import datetime

    import msgspec

    return msgspec.convert(text, datetime.timedelta)


# (module, class) -> (extra schema, how to read it or None for the class's fromisoformat, "expected …"). By name, so
# that nothing is imported for types that no signature mentions.
_FORMATS: Final[dict[tuple[str, str], tuple[dict[str, Any], Callable[[str], Any] | str, str]]] = {
    ("datetime", "datetime"): ({"format": "date-time"}, "fromisoformat", "date-time such as 2026-01-31T12:00:00Z"),
    ("datetime", "date"): ({"format": "date"}, "fromisoformat", "date such as 2026-01-31"),
    ("datetime", "time"): ({"format": "time"}, "fromisoformat", "time such as 12:00:00"),
    ("datetime", "timedelta"): ({"format": "duration"}, _duration, "ISO 8601 duration such as PT90S"),
    ("uuid", "UUID"): ({"format": "uuid"}, "", "UUID"),
    ("ipaddress", "IPv4Address"): ({"format": "ipv4"}, "", "IPv4 address"),
    ("ipaddress", "IPv6Address"): ({"format": "ipv6"}, "", "IPv6 address"),
    ("builtins", "bytes"): ({"format": "byte", "contentEncoding": "base64"}, _base64, "base64 string"),
    ("pathlib", "Path"): ({"format": "path"}, "", "path"),
    ("pathlib", "PurePath"): ({"format": "path"}, "", "path"),
    ("pathlib", "PurePosixPath"): ({"format": "path"}, "", "path"),
    ("pathlib", "PureWindowsPath"): ({"format": "path"}, "", "path"),
}


def formatted(type_: type) -> Shape | None:
    """Return the shape of a type that is written as a string with a format."""
    name = (type_.__module__.partition(".")[0], type_.__name__)
    if name == ("decimal", "Decimal"):
        return _decimal(type_)
    row = _FORMATS.get(name)
    if row is None:
        return None
    extra, how, label = row
    read: Callable[[str], Any] = type_ if how == "" else getattr(type_, how) if isinstance(how, str) else how

    def load(value: Any, at: Place, faults: Faults) -> Any:
        if type(value) is str:
            try:
                return read(value)
            except (ValueError, OverflowError):
                pass
        return faults.add(at, f"expected {label}, got {show(value)}")

    return Shape({"type": "string", **extra}, load, label=label, kinds=_STRING, natural=type_)


def _decimal(type_: Callable[[str], Any]) -> Shape:
    """Make the shape of Decimal: read from a string, which is exact, or a number, which most models write."""

    def load(value: Any, at: Place, faults: Faults) -> Any:
        if type(value) in (int, float, str):
            try:
                number = type_(str(value))
            except (ArithmeticError, ValueError):
                pass
            else:
                if number.is_finite():
                    return number
        return faults.add(at, f"expected decimal number, got {show(value)}")

    schema = {"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}]}
    label = "decimal number"
    return Shape(schema, load, label=label, kinds=_STRING | NUMBERS, natural=type_)  # type: ignore[arg-type]  # Decimal


def subclassed(type_: type) -> Shape | None:
    """Make the shape of a class derived from str, int or float: read as its base, then constructed."""
    for base in (str, int, float):
        if issubclass(type_, base):
            inner = plain(base)
            assert inner is not None
            return inner.like(schema=inner.schema, load=_constructed(inner.load, type_))
    return None


def _constructed(inner: Load, type_: type) -> Load:
    def load(value: Any, at: Place, faults: Faults) -> Any:
        before = faults.count
        out = inner(value, at, faults)
        if faults.count != before:
            return None
        try:
            return type_(out)
        except (ValueError, TypeError) as exc:
            return faults.add(at, said(exc))

    return load


def said(exc: BaseException) -> str:
    """Return the text of an exception that the user's own constructor or validator raised."""
    text = str(exc.args[0]) if exc.args else type(exc).__name__
    return text if len(text) <= 200 else text[:199] + "…"


def choice(pairs: Sequence[tuple[Any, Any]], *, what: str) -> Shape:
    """Make the shape of a choice of JSON scalars, each of which stands for a Python value."""
    values = tuple(json for json, _ in pairs)
    for json in values:
        if json is not None and type(json) not in (str, int, float, bool):
            raise DeclarationError(f"{what} holds {json!r}; only strings, numbers, booleans and None can be chosen")
    # True == 1 in Python and not in JSON; 1 == 1.0 in both.
    table = {(type(json) is bool, json): value for json, value in pairs}
    label = listed([show(json) for json in values])

    def load(value: Any, at: Place, faults: Faults) -> Any:
        try:
            return table[type(value) is bool, value]
        except (KeyError, TypeError):  # TypeError: not hashable
            return faults.add(at, f"expected {label}, got {show(value)}")

    schema: dict[str, Any] = {"enum": list(values)}
    types = {type(json) for json in values}
    if len(types) == 1 and (inner := plain(types.pop())) is not None:
        schema = {**inner.schema, **schema}
    kinds = frozenset().union(*(inner.kinds for json in values if (inner := plain(type(json))) is not None))
    return Shape(schema, load, label=label, kinds=kinds, choices=values)


def literal(values: Sequence[Any]) -> Shape:
    return choice([(v.value if isinstance(v, enum.Enum) else v, v) for v in values], what="a Literal")


def enumeration(type_: type[enum.Enum]) -> Shape:
    members = list(type_)
    if not members:
        raise DeclarationError(f"the enum {type_.__name__} has no members to choose from; add one")
    if issubclass(type_, enum.Flag):
        return _flag(type_, members)
    return choice([(m.value, m) for m in members], what=f"the enum {type_.__name__}")


def _flag(type_: type[enum.Flag], members: Sequence[Any]) -> Shape:
    """Make the shape of a flag: an integer, since its members can be combined."""
    every = functools.reduce(operator.or_, (int(member.value) for member in members))
    label = f"a sum of {', '.join(f'{member.value} ({member.name})' for member in members)}"

    def load(value: Any, at: Place, faults: Faults) -> Any:
        number = int(value) if type(value) is float and value.is_integer() else value
        if type(number) is int and number >= 0 and not number & ~every:
            return type_(number)
        return faults.add(at, f"expected {label}, got {show(value)}")

    schema = {"type": "integer", "minimum": 0, "maximum": every, "description": label[0].upper() + label[1:]}
    return Shape(schema, load, label=label, kinds=NUMBERS, natural=int)
