"""Read JSON values as attrs classes (`structure`) and write them (`unstructure`)."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from mcptrio import types
from mcptrio.errors import MCPTrioError

from .interpreted import READERS
from .names import wire_name
from .readers import FAILURES, MAX_FAULTS, Structure, faults_inside
from .writers import GENERATE_AFTER, unstructure, write_fields

T = TypeVar("T")


class StructureError(MCPTrioError, ValueError):
    """A JSON value that does not have the expected shape; `faults` lists every error with its path."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


def _interpreted_at_first(named: Any) -> Structure:
    kind = _class_of(named)
    read, left = READERS.get_structure_hook(kind), GENERATE_AFTER

    def read_interpreted(value: Any, _: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            from . import generated

            _read[named] = generated.reader(kind)
        return read(value, kind)

    return read_interpreted


def _class_of(named: Any) -> Any:
    return getattr(types, named) if isinstance(named, str) else named


class _Readers(dict[Any, Structure]):
    """The reading functions by class or class name, each made on first use."""

    def __missing__(self, kind: Any) -> Structure:
        self[kind] = _interpreted_at_first(kind)
        return self[kind]


_read: Final = _Readers()


def structure(value: Any, cls: type[T] | str, *, at: str = "params") -> T:
    """Read a JSON value as a `cls`. Unknown keys are ignored; null in an optional field means absent.

    `cls` may be the name of a class of `mcptrio.types`, which is then imported with the first value.

    Raises:
        StructureError: the value does not fit; its `faults` have paths of wire names that begin with `at`.
    """
    try:
        return _read[cls](value, cls)  # type: ignore[no-any-return]  # the hook of cls makes a cls
    except FAILURES:
        pass
    try:
        kind = _class_of(cls)
        return READERS.get_structure_hook(kind)(value, kind)  # type: ignore[no-any-return]  # if the two disagree
    except FAILURES as error:
        faults = [f"{where}: {text}" for where, text in faults_inside(error, at)]
    if len(faults) > MAX_FAULTS:
        faults[MAX_FAULTS:] = [f"{at}: and more"]
    raise StructureError(tuple(faults))


__all__ = ["StructureError", "structure", "unstructure", "wire_name", "write_fields"]
