"""Strict hooks that read one kind of JSON value each and describe every error.

By default cattrs turns `"5"` into 5 and a string into a list of its characters, so each kind of value has a hook here.
The hooks know no wire names except the tags of unions; `interpreted` and `generated` combine them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import UnionType
from typing import Any, Final, Literal, Protocol, Union, get_args, get_origin

from mcptrio import types

Structure = Callable[[Any, Any], Any]


class Hooks(Protocol):
    """Lookup of the hooks for nested types: `InterpretedReaders` or a cattrs converter."""

    detailed_validation: bool
    """Collect every error instead of stopping at the first."""

    def get_structure_hook(self, kind: Any, /) -> Structure: ...


MAX_FAULTS: Final = 32  # cap the reported errors so that bad input cannot inflate the response
_SHOWN: Final = 60  # characters of a wrong value that an error text quotes

MISSING: Final = "required, but missing"
FAILURES: Final = (KeyError, TypeError, ValueError)
"""The exceptions that reading may raise, from these hooks or from the constructors of classes."""


class Mismatch(ValueError):
    """The errors in a value, each a path inside the value and a text."""

    def __init__(self, *faults: tuple[str, str]) -> None:
        super().__init__("; ".join(text for _, text in faults))
        self.faults = faults


def wrong(expected: str, value: Any, where: str = "") -> Mismatch:
    """Make the error for a value of an unexpected type."""
    return Mismatch((where, f"expected {expected}, got {_show(value)}"))


def faults_inside(error: Exception, step: str) -> Iterable[tuple[str, str]]:
    """Return the errors of an exception, with `step` put before their paths."""
    if isinstance(error, Mismatch):
        return [(step + where, text) for where, text in error.faults]
    return [(step, MISSING if isinstance(error, KeyError) else str(error))]


def shortened(text: str) -> str:
    """Truncate text of the peer for an error message."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _show(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{shortened(value)}"'
        case int() if value.bit_length() > 4 * _SHOWN:
            return "a very large integer"  # its digits would take quadratic time
        case int() | float():
            return repr(value)
        case Mapping():
            return "object"
        case list() | tuple():
            return "array"
    return type(value).__name__


# -- scalars and objects


def read_str(value: Any, _: Any) -> str:
    if isinstance(value, str):
        return value
    raise wrong("string", value)


def read_int(value: Any, _: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)  # JSON has one kind of number: 2.0 is an integer
    raise wrong("integer", value)


def read_float(value: Any, _: Any) -> float:
    if type(value) is float or type(value) is int:
        return value  # an int stays an int: it is exact and written as received
    raise wrong("number", value)


def read_bool(value: Any, _: Any) -> bool:
    if value is True or value is False:
        return value
    raise wrong("boolean", value)


def _read_int_or_str(value: Any, cls: Any) -> int | str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and value is not True and value is not False:
        return read_int(value, cls)
    raise wrong("string or integer", value)


def _read_object(value: Any, _: Any) -> Mapping[str, Any]:
    if type(value) is dict or isinstance(value, Mapping):  # `isinstance` with an ABC alone is ten times slower
        return value
    raise wrong("object", value)


def read_nullable(value: Any, _: Any) -> Any:
    return types.NULL if value is None else value


def literal_reader(cls: Any, _: Hooks) -> Structure:
    allowed = get_args(cls)
    expected = " or ".join(f'"{word}"' for word in allowed)

    def read_literal(value: Any, _: Any) -> Any:
        if isinstance(value, str) and value in allowed:
            return value
        raise wrong(expected, value)

    return read_literal


# -- arrays and maps


def array_reader(cls: Any, hooks: Hooks) -> Structure:
    item, make = get_args(cls)[0], get_origin(cls)
    read = hooks.get_structure_hook(item)

    def read_array(value: Any, _: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise wrong("array", value)
        return make([read(v, item) for v in value])

    def explain_array(value: Any, _: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise wrong("array", value)
        return make(_explain_items(enumerate(value), read, item).values())

    return explain_array if hooks.detailed_validation else read_array


def mapping_reader(cls: Any, hooks: Hooks) -> Structure:
    item = get_args(cls)[1]
    if item is Any:
        return _read_object
    read = hooks.get_structure_hook(item)

    def read_mapping(value: Any, _: Any) -> dict[str, Any]:
        return {k: read(v, item) for k, v in _read_object(value, cls).items()}

    def explain_mapping(value: Any, _: Any) -> dict[str, Any]:
        return _explain_items(_read_object(value, cls).items(), read, item)

    return explain_mapping if hooks.detailed_validation else read_mapping


def _explain_items(items: Any, read: Structure, item: Any) -> dict[Any, Any]:
    done: dict[Any, Any] = {}
    faults: list[tuple[str, str]] = []
    for key, value in items:
        try:
            done[key] = read(value, item)
        except FAILURES as error:
            faults += faults_inside(error, f"[{key}]" if isinstance(key, int) else f".{shortened(key)}")
            if len(faults) > MAX_FAULTS:
                break
    if faults:
        raise Mismatch(*faults)
    return done


# -- unions, decided by a tag, never by trial


@cache
def _tag_tables() -> Mapping[frozenset[Any], Mapping[str, type]]:
    return {
        frozenset(get_args(types.ContentBlock)): types.CONTENT_BY_TYPE,
        frozenset(get_args(types.SamplingContent)): types.SAMPLING_CONTENT_BY_TYPE,
        frozenset(get_args(types.CompletionReference)): types.REFERENCE_BY_TYPE,
    }


def union_reader(cls: Any, hooks: Hooks) -> Structure:
    members = frozenset(get_args(cls)) - {type(None)}
    if len(members) == 1:
        (inner,) = members
        read = hooks.get_structure_hook(inner)
    else:
        inner = cls
        read = _required_union_reader(members, hooks)
    if type(None) not in get_args(cls):
        return read

    def read_optional(value: Any, _: Any) -> Any:
        return None if value is None else read(value, inner)

    return read_optional


def _required_union_reader(members: frozenset[Any], hooks: Hooks) -> Structure:
    if members == {int, str}:
        return _read_int_or_str
    if members == frozenset(get_args(types.ResourceContents)):
        return _contents_reader(hooks)
    return _tagged_reader(_tag_tables()[members], hooks, unknown_allowed=types.UnknownContent in members)


def _tagged_reader(table: Mapping[str, type], hooks: Hooks, *, unknown_allowed: bool) -> Structure:
    expected = " or ".join(f'"{tag}"' for tag in table)
    readers = {tag: (hooks.get_structure_hook(cls), cls) for tag, cls in table.items()}

    def read_tagged(value: Any, _: Any) -> Any:
        tag = _read_object(value, None).get("type")
        if isinstance(tag, str):
            if tag in readers:
                read, cls = readers[tag]
                return read(value, cls)
            if unknown_allowed:  # from a newer peer: keep it, and write it back as received
                return types.UnknownContent(type=tag, data={k: v for k, v in value.items() if k != "type"})
        elif tag is None:
            raise Mismatch((".type", MISSING))
        raise wrong("string" if unknown_allowed else expected, tag, ".type")

    return read_tagged


def _contents_reader(hooks: Hooks) -> Structure:
    """Resource contents have no tag: the required field `text` or `blob` tells them apart."""

    def read_contents(value: Any, _: Any) -> Any:
        cls: type
        if "text" in _read_object(value, None):
            cls = types.TextResourceContents
        elif "blob" in value:
            cls = types.BlobResourceContents
        else:
            raise Mismatch(("", "expected text or blob, got neither"))
        return hooks.get_structure_hook(cls)(value, cls)

    return read_contents


def _unknown_content_reader(_: Hooks) -> Structure:
    def read_unknown_content(value: Any, _: Any) -> types.UnknownContent:
        data = dict(_read_object(value, None))
        return types.UnknownContent(type=read_str(data.pop("type", None), str), data=data)

    return read_unknown_content


def _input_request_reader(hooks: Hooks) -> Structure:
    """Make the reader of an input request, whose method determines the class of its params."""

    def read_params(value: Any, cls: Any) -> Any:
        return _read_object(value, None) if cls is None else hooks.get_structure_hook(cls)(value, cls)

    def read_input_request(value: Any, _: Any) -> types.InputRequest:
        method = _read_object(value, None).get("method")
        if not isinstance(method, str):
            raise wrong("string", method, ".method")
        params = value.get("params")
        cls = types.INPUT_PARAMS_BY_METHOD.get(method)
        if params is not None and hooks.detailed_validation:
            params = _explain_items([("params", params)], read_params, cls)["params"]
        elif params is not None:
            params = read_params(params, cls)
        return types.InputRequest(method=method, params=params)

    return read_input_request


def one_or_many_reader(cls: Any, hooks: Hooks) -> Structure:
    read_many = hooks.get_structure_hook(cls)

    def read_one_or_many(value: Any, _: Any) -> Any:
        return read_many(value if isinstance(value, list | tuple) else [value], cls)

    return read_one_or_many


# -- the hook of each kind of type

SCALARS: Final[Mapping[Any, Structure]] = {str: read_str, int: read_int, float: read_float, bool: read_bool}
FACTORIES: Final[Mapping[Any, Callable[[Any, Hooks], Structure]]] = {
    Literal: literal_reader,
    tuple: array_reader,
    list: array_reader,
    Mapping: mapping_reader,
    dict: mapping_reader,
    Union: union_reader,
    UnionType: union_reader,
}
"""Hook factories by the `get_origin` of a type."""
_SPECIAL: Final = {"UnknownContent": _unknown_content_reader, "InputRequest": _input_request_reader}


def special_reader(cls: type, hooks: Hooks) -> Structure | None:
    """Return the hook of a class whose wire form does not follow from its fields, or None."""
    make = _SPECIAL.get(cls.__name__)  # by name, because most processes never import these classes
    return make(hooks) if make is not None and cls is getattr(types, cls.__name__) else None


def field_reader(field: Any, hooks: Hooks) -> Structure | None:
    """Return the hook of a field with metadata that changes how it is read, or None."""
    if "null_matters" in field.metadata:
        return read_nullable
    if "one_or_many" in field.metadata:
        return one_or_many_reader(field.type, hooks)
    return None
