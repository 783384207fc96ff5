"""An upper bound of the work of checking a value against a JSON Schema, known before the validator runs.

A schema of one kilobyte can keep a validator busy for years: in a chain of definitions that each refer to the next one
twice, every link doubles the work. So the references are expanded here first, with a limit.

A *place* is a schema that is applied to one location of a value, with everything that is applied to the same location
because of it (`$ref`, `allOf`, `anyOf`, `if` and so on). Its *work* is the number of these schemas, weighted by their
size. For each depth of a value, the budget computes the most work that any location at that depth can cause: a location
is reached through one property name or one index, so alternatives count once, and everything that applies to one
name together. A cycle of references that multiplies the work is usable, but only for values that are not deep.

Everything is counted too high where it cannot be counted exactly, never too low.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urljoin

from attrs import define, field

from mcptrio.errors import DeclarationError

MAX_EXPANSION: Final = 10_000
"""Schemas that may be applied to one location because of one place."""
MAX_STEPS: Final = 500_000
"""Steps that the computation of the bound itself may take."""
MAX_WORK: Final = 400_000
"""Work of checking one value; the validator does eight million units in a second, or more."""
MAX_DEPTH: Final = 500
"""Levels of a value that a schema with references may follow down, on the stack of the validator."""
REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")

_CAP: Final = 10**12
_IN_PLACE: Final = ("not", "if", "then", "else")
_IN_PLACE_LISTS: Final = ("allOf", "anyOf", "oneOf")
_IN_PLACE_MAPS: Final = ("dependentSchemas", "dependencies")
_SIZED: Final = ("enum", "required", "properties", "patternProperties", "prefixItems", "items", "dependentRequired")
_BACKTRACKS: Final = re.compile(r"\(\?<?[=!]|\\[1-9k]")  # not supported by a linear-time matcher
_PATTERN_WORK: Final = 1000
_SCALARS: Final = frozenset({int, float, bool, type(None)})

Schema: TypeAlias = Mapping[str, Any]
Contribution: TypeAlias = tuple[int, int]
"""A place by its number, and 1 or -1."""


@define(eq=False, repr=False)
class _Children:
    """The places that apply to the members of an object, or to the items of an array."""

    each: list[Contribution] = field(factory=list)
    named: dict[str | int, list[Contribution]] = field(factory=dict)


@define(eq=False, repr=False)
class _Place:
    work: int = 0
    members: _Children = field(factory=_Children)
    items: _Children = field(factory=_Children)


@define(eq=False, repr=False)
class SchemaBudget:
    """The bounds of one schema.

    Raises:
        DeclarationError: the references of the schema expand without end, or too far.
    """

    schema: Schema
    unresolved: list[str] = field(factory=list, init=False)
    """References that lead out of the schema; nothing is counted for them."""
    _targets: _Targets = field(init=False)
    _numbers: dict[int, int] = field(factory=dict, init=False)
    """Identity of a schema -> the number of its place."""
    _pending: list[Schema] = field(factory=list, init=False)
    _places: list[_Place] = field(factory=list, init=False)
    _steps: int = field(default=0, init=False)
    _weights: dict[int, int] = field(factory=dict, init=False)
    """Identity of a schema -> its own work."""
    _backtracks: bool = field(default=False, init=False)
    """Whether any pattern of the schema backtracks."""
    _level: list[int] = field(factory=list, init=False)
    """The work of every place at the deepest level that was computed."""
    _profile: list[int] = field(factory=list, init=False)
    """The work of the root's place at each depth."""

    def __attrs_post_init__(self) -> None:
        self._targets = _Targets(self.schema)
        self._number_of(self.schema)
        for schema in self._pending:  # grows while it is read
            self._places.append(self._expand(schema))
        self._level = [place.work for place in self._places]
        self._profile = [self._level[0]]

    def work_at(self, depth: int) -> int:
        """Return the most work that one location at this depth can cause; 0: the schema does not reach so deep.

        Raises:
            DeclarationError: the schema is too complex to say.
        """
        while depth >= len(self._profile):
            if not self._profile[-1]:
                return 0
            self._level = [self._most(place) for place in self._places]
            self._profile.append(self._level[0])
        return self._profile[depth]

    def measure(self, value: Any) -> tuple[int, int] | None:
        """Return how many schemas are applied to a value at most, and the work of that; None if it is over the limit.

        Raises:
            DeclarationError: the value is nested too deeply, or the schema is too complex to say.
        """
        applied = total = depth = 0
        level = [value]
        while level and (work := self.work_at(depth)):
            if depth > MAX_DEPTH:
                raise DeclarationError("nested too deeply")
            applied += work * len(level)
            total += work * len(level)
            children: list[Any] = []
            for node in level:
                kind = type(node)
                if kind is dict:  # by type: a request may have 100,000 nodes
                    children += node.values()
                    if self._backtracks:
                        total += sum(_backtracking(work, name) for name in node)
                elif kind is list:
                    children += node
                elif kind is str:
                    total += work * (len(node) >> 10)
                    if self._backtracks:
                        total += _backtracking(work, node)
                elif kind not in _SCALARS:
                    children += children_of(node)
            if total > MAX_WORK:
                return None
            level = children
            depth += 1
        return applied, total

    # -- places

    def _number_of(self, schema: Schema) -> int:
        number = self._numbers.get(id(schema))
        if number is None:
            number = self._numbers[id(schema)] = len(self._numbers)
            self._pending.append(schema)
        return number

    def _expand(self, schema: Schema) -> _Place:
        """Collect everything that applies to the location that `schema` applies to."""
        place, count = _Place(), 0
        path: set[int] = set()
        stack: list[tuple[Any, bool]] = [(schema, False)]
        while stack:
            node, leaving = stack.pop()
            if leaving:
                path.discard(id(node))
            if leaving or not isinstance(node, Mapping) or id(node) in path:
                continue  # true and false are not counted, and a validator does not go in circles at one location
            count += 1
            self._step()
            if count > MAX_EXPANSION:
                raise DeclarationError(
                    f"the references of the JSON Schema expand too far: more than {MAX_EXPANSION} schemas would be "
                    "applied to one value; refer to each definition fewer times"
                )
            if (weight := self._weights.get(id(node))) is None:
                weight = self._weights[id(node)] = _weight(node)
                self._backtracks = self._backtracks or _backtracking_patterns(node) > 0
            place.work += weight
            self._add_members(place.members, node)
            self._add_items(place.items, node)
            applied = [*_in_place(node), *self._referred(node)]
            # To find out what is unevaluated, a validator applies the rest a second time.
            applied *= 1 + ("unevaluatedProperties" in node) + ("unevaluatedItems" in node)
            path.add(id(node))
            stack.append((node, True))
            stack += [(child, False) for child in applied]
        return place

    def _referred(self, node: Schema) -> Iterator[Any]:
        for keyword in REFERENCES:
            if isinstance(node.get(keyword), str):
                found = self._targets.of(node, keyword)
                if not found:
                    self.unresolved.append(node[keyword])
                yield from found

    def _add_members(self, children: _Children, node: Schema) -> None:
        for keyword in ("propertyNames", "unevaluatedProperties"):
            self._add(children.each, node.get(keyword))
        other = node.get("additionalProperties")
        self._add(children.each, other)
        for child in _members(node, "patternProperties").values():
            self._add(children.each, child)
        for name, child in _members(node, "properties").items():
            self._add(own := children.named.setdefault(name, []), child)
            self._add(own, other, -1)

    def _add_items(self, children: _Children, node: Schema) -> None:
        for keyword in ("contains", "unevaluatedItems"):
            self._add(children.each, node.get(keyword))
        items = node.get("items")
        other = node.get("additionalItems") if isinstance(items, list | tuple) else items
        self._add(children.each, other)
        prefix = items if isinstance(items, list | tuple) else node.get("prefixItems")
        for index, child in enumerate(prefix if isinstance(prefix, list | tuple) else ()):
            self._add(own := children.named.setdefault(index, []), child)
            self._add(own, other, -1)

    def _add(self, contributions: list[Contribution], child: Any, sign: int = 1) -> None:
        self._step()
        if isinstance(child, Mapping):
            contributions.append((self._number_of(child), sign))

    # -- levels

    def _most(self, place: _Place) -> int:
        """Return the work that a place causes at any one location below, from what its children cause one level up."""
        level, most = self._level, 0
        for children in (place.members, place.items):
            each = sum(level[number] for number, _ in children.each)
            most = max(most, each)
            for contributions in children.named.values():
                self._step(len(contributions))
                most = max(most, each + sum(sign * level[number] for number, sign in contributions))
            self._step(1 + len(children.each))
        return min(most, _CAP)

    def _step(self, steps: int = 1) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise DeclarationError("the JSON Schema is too complex: too many schemas apply to one value")


@define(eq=False, repr=False)
class _Targets:
    """The targets of the references of one schema; all candidates, if a reference is ambiguous."""

    root: Schema
    _bases: dict[int, tuple[Any, str]] = field(factory=dict, init=False)
    """Identity of a schema -> the resource that it is in (the next `$id` around it), and its URI."""
    _resources: dict[str, list[Any]] = field(factory=dict, init=False)
    _anchors: dict[str, list[Any]] = field(factory=dict, init=False)
    _recursive: list[Any] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        pending: list[tuple[Any, Any, str]] = [(self.root, self.root, "")]
        while pending:
            node, resource, base = pending.pop()
            if isinstance(node, Mapping):
                for keyword in ("$id", "id"):
                    if isinstance(name := node.get(keyword), str) and not name.startswith("#"):
                        resource, base = node, _join(base, name).rstrip("#")
                        self._resources.setdefault(base, []).append(node)
                    elif isinstance(name, str):  # draft-06 and draft-07
                        self._anchors.setdefault(name[1:], []).append(node)
                for keyword in ("$anchor", "$dynamicAnchor"):
                    if isinstance(name := node.get(keyword), str):
                        self._anchors.setdefault(name, []).append(node)
                if node.get("$recursiveAnchor") is True:
                    self._recursive.append(node)
                self._bases[id(node)] = resource, base
            pending += [(child, resource, base) for child in children_of(node)]

    def of(self, node: Schema, keyword: str) -> list[Any]:
        """Return the schemas that a reference may lead to."""
        resource, base = self._bases.get(id(node), (self.root, ""))
        uri, _, fragment = node[keyword].partition("#")
        roots = [resource, self.root] if not uri else self._resources.get(_join(base, uri).rstrip("#"), [])
        found = list(self._recursive) if keyword == "$recursiveRef" else []
        fragment = unquote(fragment)
        if fragment and not fragment.startswith("/"):
            found += self._anchors.get(fragment, ())
        else:
            found += [target for root in roots if (target := _pointed(root, fragment)) is not None]
        return list({id(target): target for target in found}.values())


def _join(base: str, uri: str) -> str:
    try:
        return urljoin(base, uri)
    except ValueError:
        return uri


def _pointed(root: Any, pointer: str) -> Any:
    """Follow a JSON Pointer; None if it leads nowhere."""
    node = root
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and token in node:
            node = node[token]
        elif isinstance(node, list | tuple) and token.isdecimal() and int(token) < len(node):
            node = node[int(token)]
        else:
            return None
    return node


def children_of(node: Any) -> Iterable[Any]:
    """Return the members of an object or the items of an array."""
    if isinstance(node, Mapping):
        return node.values()
    return node if isinstance(node, list | tuple) else ()


def _members(node: Schema, keyword: str) -> Schema:
    found = node.get(keyword)
    return found if isinstance(found, Mapping) else {}


def _in_place(node: Schema) -> Iterator[Any]:
    for keyword in _IN_PLACE:
        if keyword in node:
            yield node[keyword]
    for keyword in _IN_PLACE_LISTS:
        found = node.get(keyword)
        yield from found if isinstance(found, list | tuple) else ()
    for keyword in _IN_PLACE_MAPS:
        yield from _members(node, keyword).values()


def _backtracking(work: int, text: str) -> int:
    """Return the work of patterns that backtrack: it grows with the square of the text."""
    return work // _PATTERN_WORK * len(text) ** 2 // 140


def _nodes(value: Any) -> int:
    """Return the number of values in a value."""
    count, pending = 0, [value]
    while pending:
        count += 1
        pending += children_of(pending.pop())
    return count


def _weight(node: Schema) -> int:
    """Return the work of applying one schema by itself."""
    # Texts and numbers are looked up; anything else is compared, in the end with all of it.
    compared = [node.get("const"), *(found if isinstance(found := node.get("enum"), list | tuple) else ())]
    equal = sum(2 * _nodes(value) for value in compared if isinstance(value, Mapping | list | tuple))
    size = sum(len(node[keyword]) for keyword in _SIZED if isinstance(node.get(keyword), Mapping | list | tuple))
    return 1 + size // 16 + equal + _PATTERN_WORK * _backtracking_patterns(node)


def _backtracking_patterns(node: Schema) -> int:
    """Return how many patterns of one schema backtrack."""
    return sum(bool(_BACKTRACKS.search(pattern)) for pattern in patterns_of(node))


def patterns_of(node: Schema) -> list[str]:
    """Return the regular expressions of one schema."""
    patterns = [node["pattern"]] if isinstance(node.get("pattern"), str) else []
    return [*patterns, *_members(node, "patternProperties")]
