"""A shape: the JSON Schema and the reader of one Python type.

Both are made together from the same facts, so they cannot disagree. A reader takes a JSON value, its place and the list
of faults; it returns the typed value, or adds a fault and returns None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from mcptrio._schema.faults import Faults, Place

JsonSchema: TypeAlias = dict[str, Any]
Load: TypeAlias = Callable[[Any, Place, Faults], Any]

ANY_KIND: Final = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})
NUMBERS: Final = frozenset({"integer", "number"})  # 2.0 is an integer in JSON Schema, and 2 is a number
_KINDS: Final = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
    list: "array",
    tuple: "array",
    dict: "object",
}


class Shape:
    """The JSON Schema of a type and the function that reads it.

    `label` is the word for "expected …". `exact` is the one Python type whose values need no reading at all. `natural`
    determines the meaning of a limit such as `ge` or `min_length`. `choices` are the JSON values of an enum; `tags` the
    choices of a record's fields, by which a union of records tells its members apart. Mutable only while it is being
    built: a record that contains itself is used before it is finished.
    """

    __slots__ = ("choices", "exact", "kinds", "label", "load", "natural", "schema", "tags")

    def __init__(
        self,
        schema: JsonSchema,
        load: Load | None,
        *,
        label: str,
        kinds: frozenset[str],
        exact: type | None = None,
        natural: type | None = None,
        choices: tuple[Any, ...] | None = None,
    ) -> None:
        self.schema = schema
        self.load: Load = load or self._late
        self.label = label
        self.kinds = kinds
        self.exact = exact
        self.natural = natural
        self.choices = choices
        self.tags: dict[str, tuple[Any, ...]] = {}

    def _late(self, value: Any, at: Place, faults: Faults) -> Any:
        # Captured by a reader that was built before this record was finished; by now `load` is the real one.
        return self.load(value, at, faults)

    def like(self, *, schema: JsonSchema, load: Load | None = None) -> Shape:
        """Return a copy with another schema, and with another reader if the new one refuses more."""
        new = Shape(
            schema,
            load or self.load,
            label=self.label,
            kinds=self.kinds,
            exact=self.exact if load is None else None,
            natural=self.natural,
            choices=self.choices,
        )
        new.tags = self.tags
        return new


def kind_of(value: Any) -> str:
    """Return the JSON Schema type of a JSON value."""
    return _KINDS.get(type(value)) or ("object" if isinstance(value, Mapping) else "value of an unknown kind")


def anything(value: Any, at: Place, faults: Faults) -> Any:
    return value
