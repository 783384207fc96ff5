"""Typed values <-> plain JSON values.

Theory of operation. cattrs writes one function per class and direction, which is fast to run and slow to make; so a
class is read and written plainly, field by field, until it was met often. A server that starts, answers a few calls and
ends never imports cattrs at all. The generated reader stops at the first fault without saying where; only when it
failed does the plain one read the value again and collect every fault with its path. Writing needs no checks.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from mcptrio import types
from mcptrio.errors import MCPTrioException

from .names import wire_name
from .plain import READERS
from .readers import FAILURES, MAX_FAULTS, Structure, faults_inside
from .writers import OFTEN, unstructure, write_fields

T = TypeVar("T")


class StructureError(MCPTrioException, ValueError):
    """A JSON value does not have the shape it should have; `faults` says all that is wrong, each with its path."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


def _plain_at_first(named: Any) -> Structure:
    kind = _class_of(named)
    read, left = READERS.get_structure_hook(kind), OFTEN

    def read_plainly(value: Any, _: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            from . import generated

            _read[named] = generated.reader(kind)
        return read(value, kind)

    return read_plainly


def _class_of(named: Any) -> Any:
    return getattr(types, named) if isinstance(named, str) else named


class _Readers(dict[Any, Structure]):
    """The reading functions, each made when it is first needed."""

    def __missing__(self, kind: Any) -> Structure:
        self[kind] = _plain_at_first(kind)
        return self[kind]


_read: Final = _Readers()


def structure(value: Any, cls: type[T] | str, *, at: str = "params") -> T:
    """Read a JSON value as a `cls`. Unknown keys are ignored; null in an optional field is the same as absent.

    A class of `mcptrio.types` may be given by its name, so that it is imported when there is a value of it.

    Raises:
        StructureError: with every fault there is; their paths, in the names of the wire, begin with `at`.
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
