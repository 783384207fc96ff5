"""Shapes made of other shapes: arrays, rows, mappings and unions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from mcptrio._schema.faults import Faults, Place, listed, show
from mcptrio._schema.shape import JsonSchema, Load, Shape, kind_of
from mcptrio.errors import DeclarationError

_ARRAY: Final = frozenset({"array"})
_OBJECT: Final = frozenset({"object"})
INTEGER_KEYS: Final = "^-?(0|[1-9][0-9]*)$"


def array(item: Shape, make: Callable[[list[Any]], Any], *, unique: bool = False) -> Shape:
    """Make the shape of an array of items of one shape."""
    load_item, exact = item.load, item.exact

    def load(value: Any, at: Place, faults: Faults) -> Any:
        if type(value) is not list and type(value) is not tuple:
            return faults.add(at, f"expected array, got {show(value)}")
        before = faults.count
        if exact is not None and all(type(v) is exact for v in value):
            found = list(value)
        else:
            found = []
            for i, v in enumerate(value):
                found.append(load_item(v, (at, i), faults))
                if faults.full:
                    return None
        if faults.count != before:
            return None
        out = make(found)
        if unique and len(out) != len(found):
            return faults.add(at, "expected items that all differ")
        return out

    schema: JsonSchema = {"type": "array"}
    if item.schema:
        schema["items"] = item.schema
    if unique:
        schema["uniqueItems"] = True
    return Shape(schema, load, label="array", kinds=_ARRAY, natural=list)


def row(items: list[Shape]) -> Shape:
    """Make the shape of a tuple with a fixed number of items."""
    loads, size = [item.load for item in items], len(items)

    def load(value: Any, at: Place, faults: Faults) -> Any:
        if type(value) is not list and type(value) is not tuple:
            return faults.add(at, f"expected array of {size} items, got {show(value)}")
        if len(value) != size:
            return faults.add(at, f"expected array of {size} items, got {len(value)}")
        return tuple([load_item(v, (at, i), faults) for i, (load_item, v) in enumerate(zip(loads, value, strict=True))])

    schema: JsonSchema = {"type": "array", "minItems": size, "maxItems": size}
    if items:
        schema["prefixItems"] = [item.schema for item in items]
    return Shape(schema, load, label=f"array of {size} items", kinds=_ARRAY)


def mapping(key: Shape, value: Shape) -> Shape:
    """Make the shape of an object whose keys are data."""
    load_key, load_value, exact = key.load, value.load, value.exact
    names = {} if key.schema == {"type": "string"} else key.schema
    if key.natural is int and key.exact is int:
        names, load_key = {"pattern": INTEGER_KEYS}, _integer_key
    elif "string" not in key.kinds:
        raise DeclarationError(f"a mapping cannot have keys of {key.label} in JSON; use str keys")
    plain_keys = key.exact is str

    def load(given: Any, at: Place, faults: Faults) -> Any:
        if type(given) is not dict and not isinstance(given, Mapping):
            return faults.add(at, f"expected object, got {show(given)}")
        return {
            (k if plain_keys else load_key(k, (at, k), faults)): (
                v if type(v) is exact else load_value(v, (at, k), faults)
            )
            for k, v in given.items()
        }

    schema: JsonSchema = {"type": "object"}
    if names:
        schema["propertyNames"] = names
    if value.schema:
        schema["additionalProperties"] = value.schema
    return Shape(schema, load, label="object", kinds=_OBJECT, natural=dict)


def _integer_key(value: str, at: Place, faults: Faults) -> Any:
    digits = value.removeprefix("-")
    if digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0") and len(digits) < 1000:
        return int(value)
    return faults.add(at, f"expected a key that is an integer, got {show(value)}")


def union(members: list[Shape]) -> Shape:
    """Make the shape of a union.

    The kind of the JSON value excludes most members. Records are distinguished by a field whose choices differ, if they
    have one; the remaining members are tried in order of declaration, as `anyOf` would.
    """
    label = listed([m.label for m in members])
    kinds = frozenset().union(*(m.kinds for m in members))
    fitting: dict[str, list[Shape]] = {
        kind: sorted((m for m in members if kind in m.kinds), key=lambda m: _second_choice(m, kind)) for kind in kinds
    }
    table: list[_Tags | None] = []  # made for the first record: members may be unfinished until then

    def load(value: Any, at: Place, faults: Faults) -> Any:
        candidates = fitting.get(kind_of(value), ())
        if not candidates:
            return faults.add(at, f"expected {label}, got {show(value)}")
        if len(candidates) == 1:
            return candidates[0].load(value, at, faults)
        if isinstance(value, Mapping):
            if not table:
                table.append(_tags(fitting["object"]))
            if (tags := table[0]) is not None and tags.key in value:
                return tags.load(value, at, faults)
        return _first_fit(candidates, value, at, faults)

    return Shape({"anyOf": [m.schema for m in members]}, load, label=label, kinds=kinds)


def _second_choice(member: Shape, kind: str) -> bool:
    """Return whether a number would change its type here although another member may take it as it is."""
    return (kind == "integer" and member.natural is float) or (kind == "number" and member.natural is int)


def _first_fit(candidates: list[Shape], value: Any, at: Place, faults: Faults) -> Any:
    closest: Faults | None = None
    for member in candidates:
        if faults.out_of_guesses:
            return faults.add(at, "fits too many types in part; give the records a field that tells them apart")
        aside = faults.aside()
        out = member.load(value, at, aside)
        if not aside.count:
            return out
        if closest is None or aside.count < closest.count:
            closest = aside
    assert closest is not None
    if not isinstance(value, Mapping | list | tuple):  # a scalar: "a" or "b" or a date
        return faults.add(at, f"expected {listed([m.label for m in candidates])}, got {show(value)}")
    return faults.take(closest)


class _Tags:
    """A field that every record of a union has and whose value identifies the record."""

    __slots__ = ("key", "readers", "words")

    def __init__(self, key: str, readers: dict[Any, Load]) -> None:
        self.key, self.readers, self.words = key, readers, listed([show(value) for value in readers])

    def load(self, value: Mapping[str, Any], at: Place, faults: Faults) -> Any:
        tag = value[self.key]
        reader = self.readers.get(tag) if isinstance(tag, str) else None
        if reader is None:
            return faults.add((at, self.key), f"expected {self.words}, got {show(tag)}")
        return reader(value, at, faults)


def _tags(members: list[Shape]) -> _Tags | None:
    for key in members[0].tags:
        readers: dict[Any, Load] = {}
        for member in members:
            for choice in member.tags.get(key, (None,)):
                if not isinstance(choice, str) or choice in readers:
                    break
                readers[choice] = member.load
            else:
                continue
            break
        else:
            return _Tags(key, readers)
    return None
