"""Read and write classes with functions that cattrs generates. Imported only when a class is used often.

Reading stops at the first error without its path; `interpreted` finds the paths.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, get_origin

import attrs
from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from .names import wire_name
from .readers import FACTORIES, SCALARS, Structure, field_reader, special_reader, wrong
from .writers import Unstructure, field_writer


@cache
def _class_reader(cls: Any) -> Structure:
    return special_reader(cls, CONVERTER) or _fields_reader(cls)


def _read_class(value: Any, cls: Any) -> Any:
    """Read any nested class. It looks the reader up per value, so that classes may contain themselves."""
    return _class_reader(cls)(value, cls)


def _fields_reader(cls: type) -> Structure:
    attrs.resolve_types(cls)
    overrides: dict[str, Any] = {
        f.name: override(rename=wire_name(f.name, cls), struct_hook=field_reader(f, CONVERTER))
        for f in attrs.fields(cls)
    }
    generated: Structure = make_dict_structure_fn(cls, CONVERTER, _cattrs_use_linecache=False, **overrides)

    def read_fields(value: Any, cls: Any) -> Any:
        if type(value) is not dict and not isinstance(value, Mapping):
            raise wrong("object", value)
        return generated(value, cls)

    return read_fields


def _made_from(origin: Any) -> Callable[[Any], bool]:
    return lambda kind: get_origin(kind) is origin


def _converter() -> Converter:
    converter = Converter(detailed_validation=False)
    for scalar, read in SCALARS.items():
        converter.register_structure_hook(scalar, read)
    for origin, factory in FACTORIES.items():
        converter.register_structure_hook_factory(_made_from(origin), factory)
    converter.register_structure_hook_factory(attrs.has, lambda _: _read_class)
    return converter


CONVERTER: Final = _converter()


def reader(kind: Any) -> Structure:
    """Return the function that reads values of a type."""
    return _class_reader(kind) if attrs.has(kind) else CONVERTER.get_structure_hook(kind)


def writer(cls: type) -> Unstructure:
    """Return the function that writes values of an attrs class."""
    attrs.resolve_types(cls)
    overrides: dict[str, Any] = {
        f.name: override(
            rename=wire_name(f.name, cls),
            omit=False,
            omit_if_default=f.default is None,
            unstruct_hook=field_writer(f),
        )
        for f in attrs.fields(cls)
    }
    return make_dict_unstructure_fn(cls, CONVERTER, _cattrs_use_linecache=False, **overrides)
