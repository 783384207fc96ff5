"""Reading classes field by field: slow, without generating any code, and with every fault named."""

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


def _as_it_is(value: Any, _: Any) -> Any:
    return value


class PlainReaders:
    """A hook for each kind, made when it is first needed."""

    detailed_validation = True

    def __init__(self) -> None:
        self._hooks: dict[Any, Structure] = {**SCALARS, Any: _as_it_is}
        self._classes: dict[type, Structure] = {}

    def get_structure_hook(self, kind: Any, /) -> Structure:
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
        from .generated import CONVERTER  # a kind that only classes of others have

        return CONVERTER.get_structure_hook(kind)

    def _read_class(self, value: Any, cls: Any) -> Any:
        """The hook of every class; it looks for the class's own when there is a value, so that classes may nest."""
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


READERS: Final = PlainReaders()
