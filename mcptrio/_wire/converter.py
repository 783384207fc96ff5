"""Typed values <-> plain JSON values. The only place that knows the wire's camelCase.

Theory of operation. cattrs writes one function per class and direction, the first time the class is met: importing this
module generates nothing, and a server that never sees an image never generates code for one. Reading goes through two
converters that share their hooks: the hot one stops at the first fault without saying where, and only when it failed
does the explaining one read the value again and collect every fault with its path. Writing needs no checks: the
function of a class lists its fields, leaves out those that are `None`, and hands JSON through as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import islice
from types import UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

import attrs
from cattrs import ClassValidationError, Converter, IterableValidationError
from cattrs.fns import identity
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from mcptrio import types
from mcptrio.errors import MCPTrioException

from .readers import (
    MAX_FAULTS,
    Mismatch,
    Structure,
    input_request_reader,
    literal_reader,
    mapping_reader,
    one_or_many_reader,
    read_bool,
    read_float,
    read_int,
    read_nullable,
    read_str,
    read_unknown_content,
    shortened,
    tuple_reader,
    union_reader,
    wrong,
)

T = TypeVar("T")
Unstructure = Callable[[Any], Any]

# -- names

_ODD_NAMES: Final[Mapping[str, str]] = {"meta": "_meta"}
# 2026-07-28 basic/index: the keys that the protocol reserves in `_meta`
_RESERVED: Final = "io.modelcontextprotocol/"
_WITH_RESERVED_KEYS: Final = (types.RequestMeta, types.NotificationMeta, types.ResultMeta)


def wire_name(name: str, cls: type | None = None) -> str:
    """The name that the field `name` (of `cls`) has on the wire: `mime_type` is `mimeType`."""
    if name in _ODD_NAMES:
        return _ODD_NAMES[name]
    head, *rest = name.split("_")
    camel = head + "".join(part.capitalize() for part in rest)
    return _RESERVED + camel if cls in _WITH_RESERVED_KEYS and name != "progress_token" else camel


# -- faults


class StructureError(MCPTrioException, ValueError):
    """A JSON value does not have the shape it should have; `faults` says all that is wrong, each with its path."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


def _faults(exc: BaseException, path: str) -> Iterator[str]:
    """Walk the tree of exceptions that the explaining converter raised."""
    match exc:
        case ClassValidationError():
            noted, plain = exc.group_exceptions()
            for inner, note in noted:
                yield from _faults(inner, f"{path}.{wire_name(note.name, exc.cl)}")
        case IterableValidationError():
            noted_items, plain = exc.group_exceptions()
            for inner, item in noted_items:
                yield from _faults(inner, path + _step(item.index))
        case KeyError():
            yield f"{path}: required, but missing"
            return
        case Mismatch():
            yield f"{path}{exc.where}: {exc}"
            return
        case _:
            yield f"{path}: {exc}"
            return
    for inner in plain:
        yield from _faults(inner, path)


def _step(index: int | str) -> str:
    return f"[{index}]" if isinstance(index, int) else f".{shortened(index)}"


# -- reading: classes


def _generate_reader(cls: type, converter: Converter) -> Structure:
    attrs.resolve_types(cls)
    overrides: dict[str, Any] = {}
    for f in attrs.fields(cls):
        hook: Structure | None = None
        if "null_matters" in f.metadata:
            hook = read_nullable
        elif "one_or_many" in f.metadata:
            hook = one_or_many_reader(f.type, converter)
        overrides[f.name] = override(rename=wire_name(f.name, cls), struct_hook=hook)
    generated: Structure = make_dict_structure_fn(cls, converter, _cattrs_use_linecache=False, **overrides)

    def read_class(value: Any, cls: Any) -> Any:
        if type(value) is not dict and not isinstance(value, Mapping):
            raise wrong("object", value)
        return generated(value, cls)

    return read_class


def _made_from(*origins: Any) -> Callable[[Any], bool]:
    return lambda kind: get_origin(kind) in origins


class _Readers(dict[Any, Structure]):
    """The reading functions of one converter, each made when it is first needed."""

    def __init__(self, *, explaining: bool) -> None:
        super().__init__()
        self.converter = converter = Converter(detailed_validation=explaining)
        for scalar, read in ((str, read_str), (int, read_int), (float, read_float), (bool, read_bool)):
            converter.register_structure_hook(scalar, read)
        converter.register_structure_hook_factory(_made_from(Literal), literal_reader)
        converter.register_structure_hook_factory(_made_from(tuple), tuple_reader)
        converter.register_structure_hook_factory(_made_from(Mapping), mapping_reader)
        converter.register_structure_hook_factory(_made_from(Union, UnionType), union_reader)
        converter.register_structure_hook_factory(attrs.has, lambda _: self._read_later)
        self[types.UnknownContent] = read_unknown_content
        self[types.InputRequest] = input_request_reader(converter)

    def __missing__(self, cls: Any) -> Structure:
        if attrs.has(cls):
            self[cls] = _generate_reader(cls, self.converter)
        else:
            self[cls] = self.converter.get_structure_hook(cls)
        return self[cls]

    def _read_later(self, value: Any, cls: Any) -> Any:
        """The hook of every class inside another one; it looks its function up when there is a value to read."""
        return self[cls](value, cls)


_read: Final = _Readers(explaining=False)


@cache
def _explaining() -> _Readers:
    """The readers that find every fault; most processes never need them."""
    return _Readers(explaining=True)


def structure(value: Any, cls: type[T], *, at: str = "params") -> T:
    """Read a JSON value as a `cls`. Unknown keys are ignored; null in an optional field is the same as absent.

    Raises:
        StructureError: with every fault there is; their paths, in the names of the wire, begin with `at`.
    """
    try:
        return _read[cls](value, cls)  # type: ignore[no-any-return]  # the hook of cls makes a cls
    except (KeyError, TypeError, ValueError):
        pass
    try:
        return _explaining()[cls](value, cls)  # type: ignore[no-any-return]  # the same; reached only if the two disagree
    except (KeyError, TypeError, ValueError, ClassValidationError, IterableValidationError) as exc:
        faults = tuple(islice(_faults(exc, at), MAX_FAULTS + 1))
    if len(faults) > MAX_FAULTS:
        faults = (*faults[:MAX_FAULTS], f"{at}: and more")
    raise StructureError(faults)


# -- writing


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


def _field_writer(f: attrs.Attribute[Any]) -> Unstructure:
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
    return unstructure if _holds_classes(kind) else identity


def _holds_classes(kind: Any) -> bool:
    return attrs.has(kind) or any(attrs.has(member) for member in get_args(kind))


def _generate_writer(cls: type) -> Unstructure:
    attrs.resolve_types(cls)
    overrides: dict[str, Any] = {
        f.name: override(
            rename=wire_name(f.name, cls),
            omit=False,
            omit_if_default=f.default is None,
            unstruct_hook=_field_writer(f),
        )
        for f in attrs.fields(cls)
    }
    return make_dict_unstructure_fn(cls, _read.converter, _cattrs_use_linecache=False, **overrides)


class _Writers(dict[type, Unstructure]):
    """The writing functions, each made when it is first needed."""

    def __missing__(self, cls: type) -> Unstructure:
        if attrs.has(cls):
            self[cls] = _generate_writer(cls)
        elif cls is types.Null:
            self[cls] = _write_nullable
        elif issubclass(cls, list | tuple):
            self[cls] = _write_each
        else:
            self[cls] = identity
        return self[cls]


_write: Final = _Writers({types.UnknownContent: _write_unknown_content})


def unstructure(value: Any) -> Any:
    """Write a typed value as JSON: a new dict with what is not `None`. Plain JSON values come back as they are."""
    return _write[value.__class__](value)
