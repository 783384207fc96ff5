"""Write typed values as JSON: fields that are not `None`, under their wire names. JSON values are passed through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

import attrs

from mcptrio import types

from .names import wire_name

Unstructure = Callable[[Any], Any]

GENERATE_AFTER: Final = 16
"""The number of values of a class after which cattrs generates its reader or writer."""


def _pass_through(value: Any) -> Any:
    return value


def _write_nullable(value: Any) -> Any:
    return None if value is types.NULL else value


def _write_each(values: tuple[Any, ...]) -> list[Any]:
    return [_write[v.__class__](v) for v in values]


def _write_one_or_many(values: tuple[Any, ...]) -> Any:
    return _write_each(values) if len(values) != 1 else unstructure(values[0])


def _write_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _write[v.__class__](v) for k, v in values.items()}


def _write_unknown_content(value: types.UnknownContent) -> dict[str, Any]:
    return {**value.data, "type": value.type}


def field_writer(f: attrs.Attribute[Any]) -> Unstructure:
    """Return the function that writes one field, chosen by the field's metadata and type."""
    if "one_or_many" in f.metadata:
        return _write_one_or_many
    if f.type is Any:
        return _write_nullable
    kind = f.type
    if get_origin(kind) in (Union, UnionType):
        members = [arg for arg in get_args(kind) if arg is not type(None)]
        if any(attrs.has(member) for member in members):
            return unstructure
        kind = members[0]
    if get_origin(kind) is tuple:
        return _write_each if _holds_classes(get_args(kind)[0]) else list
    if get_origin(kind) is Mapping and _holds_classes(get_args(kind)[1]):
        return _write_values
    return unstructure if _holds_classes(kind) else _pass_through


def _holds_classes(kind: Any) -> bool:
    return attrs.has(kind) or any(attrs.has(member) for member in get_args(kind))


def interpreted_writer(cls: type) -> Unstructure:
    """Return a function that writes an attrs class field by field; required fields first, as cattrs writes them."""
    attrs.resolve_types(cls)
    fields = [(f.name, wire_name(f.name, cls), field_writer(f), f.default is None) for f in attrs.fields(cls)]
    fields.sort(key=lambda row: row[3])

    def write(value: Any) -> dict[str, Any]:
        wire = {}
        for name, key, write_field, optional in fields:
            part = getattr(value, name)
            if part is not None or not optional:
                wire[key] = write_field(part)
        return wire

    return write


def _interpreted_at_first(cls: type) -> Unstructure:
    write, left = interpreted_writer(cls), GENERATE_AFTER

    def write_interpreted(value: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            from . import generated

            _write[cls] = generated.writer(cls)
        return write(value)

    return write_interpreted


class _Writers(dict[type, Unstructure]):
    """The writing functions by class, each made on first use."""

    def __missing__(self, cls: type) -> Unstructure:
        if attrs.has(cls):
            unknown = cls.__name__ == "UnknownContent" and cls is types.UnknownContent
            self[cls] = _write_unknown_content if unknown else _interpreted_at_first(cls)
        elif cls is types.Null:
            self[cls] = _write_nullable
        elif issubclass(cls, list | tuple):
            self[cls] = _write_each
        else:
            self[cls] = _pass_through
        return self[cls]


_write: Final = _Writers()


def write_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Write these fields as a class of `mcptrio.types` with them would be written, without importing the class."""
    return {wire_name(name): unstructure(value) for name, value in fields.items() if value is not None}


def unstructure(value: Any) -> Any:
    """Write a typed value as JSON: a new dict of the fields that are not `None`. JSON values are returned as is."""
    return _write[value.__class__](value)
