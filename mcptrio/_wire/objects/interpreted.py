"""Read classes field by field, without generated code, and report every error with its path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_origin

import attrs

from .names import wire_name
from .readers import (
    FACTORIES,
    FAILURES,
    MISSING,
    SCALARS,
    Mismatch,
    Structure,
    faults_inside,
    field_reader,
    special_reader,
    wrong,
)


def _read_any(value: Any, _: Any) -> Any:
    return value


class InterpretedReaders:
    """The interpreted reading functions by type, each made on first use."""

    detailed_validation = True

    def __init__(self) -> None:
        self._hooks: dict[Any, Structure] = {**SCALARS, Any: _read_any}
        self._classes: dict[type, Structure] = {}

    def get_structure_hook(self, kind: Any, /) -> Structure:
        """Return the function that reads values of a type."""
        hook = self._hooks.get(kind)
        if hook is None:
            hook = self._hooks[kind] = self._hook_for(kind)
        return hook

    def _hook_for(self, kind: Any) -> Structure:
        factory = FACTORIES.get(get_origin(kind))
        if factory is not None:
            return factory(kind, self)
        if attrs.has(kind):
            return self._read_class
        from .generated import CONVERTER  # a type that only user classes contain, such as an enum

        return CONVERTER.get_structure_hook(kind)

    def _read_class(self, value: Any, cls: Any) -> Any:
        """Read any attrs class. It looks the reader up per value, so that classes may contain themselves."""
        read = self._classes.get(cls)
        if read is None:
            read = self._classes[cls] = special_reader(cls, self) or self._fields_reader(cls)
        return read(value, cls)

    def _fields_reader(self, cls: type) -> Structure:
        attrs.resolve_types(cls)
        fields = [
            (
                wire_name(f.name, cls),
                f.alias,
                f.default is attrs.NOTHING,
                f.type,
                field_reader(f, self) or self.get_structure_hook(f.type),
            )
            for f in attrs.fields(cls)
            if f.init
        ]

        def read_fields(value: Any, _: Any) -> Any:
            if not isinstance(value, Mapping):
                raise wrong("object", value)
            given: dict[str, Any] = {}
            faults: list[tuple[str, str]] = []
            for key, name, required, kind, read in fields:
                if key in value:
                    try:
                        given[name] = read(value[key], kind)
                    except FAILURES as error:
                        faults += faults_inside(error, f".{key}")
                elif required:
                    faults.append((f".{key}", MISSING))
            if faults:
                raise Mismatch(*faults)
            return cls(**given)

        return read_fields


READERS: Final = InterpretedReaders()
