"""Lenient reading of arguments: JSON values that a model wrote as text, where the schema leaves no doubt.

Used only after the exact reading has failed. `"5"` is read as 5 where the schema takes integers and no strings,
`"true"` as a boolean, and a JSON text as the object or array that it holds; null for a property that may be left out
and is never null counts as left out. A string is never changed where the schema takes that string.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from mcptrio._schema.shape import ANY_KIND, JsonSchema, kind_of

MAX_STEPS: Final = 10_000
"""Values looked at, those inside of texts included. A model writes far fewer; more would block the event loop."""
_LONGEST_NUMBER: Final = 64
_MAX_REFS: Final = 32
_MEMBERS: Final = ("anyOf", "oneOf")
_NOTHING: Final[Any] = object()
_ANYTHING: Final[JsonSchema] = {}


def coerced(schema: JsonSchema, arguments: Mapping[str, Any]) -> Any:
    """Return the arguments with texts replaced by the values that they stand for; unchanged if they are too many."""
    try:
        return _Coercion(schema).read(schema, dict(arguments))
    except (RecursionError, _TooManyError):
        return arguments


class _TooManyError(Exception):
    """There are more values than a lenient reading looks at."""


class _Facts(Struct, frozen=True):
    """The JSON types that a schema takes; whether it takes any string, or else which ones."""

    kinds: frozenset[str]
    any_text: bool
    texts: frozenset[str]


class _Coercion:
    """The conversion of one value by one schema, with a cache of facts about the parts of the schema."""

    def __init__(self, root: JsonSchema) -> None:
        self._defs: Mapping[str, JsonSchema] = root.get("$defs") or {}
        self._facts: dict[int, _Facts] = {}
        self._steps = 0

    def read(self, schema: Any, value: Any) -> Any:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise _TooManyError
        schema = self._resolved(schema)
        if type(value) is str:
            value = self._from_text(schema, value)
        if type(value) is dict:
            return self._object(self._member(schema, "object", value), value)
        if type(value) is list:
            return self._array(self._member(schema, "array", value), value)
        return value

    # -- values

    def _from_text(self, schema: Mapping[str, Any], text: str) -> Any:
        facts = self._about(schema)
        if facts.any_text or text in facts.texts:
            return text
        word = text.strip()
        if "boolean" in facts.kinds and word.lower() in ("true", "false"):  # Python's True, too
            return word.lower() == "true"
        value = self._decoded(word)
        kind = "" if value is _NOTHING else kind_of(value)
        if kind == "number" and "number" not in facts.kinds and value.is_integer():
            kind, value = "integer", int(value)
        fits = kind in facts.kinds or (kind == "integer" and "number" in facts.kinds)
        return value if fits else text

    def _decoded(self, text: str) -> Any:
        nodes = 1 + text.count(",") + text.count("[") + text.count("{")
        if self._steps + nodes > MAX_STEPS or (not text.startswith(("[", "{")) and len(text) > _LONGEST_NUMBER):
            return _NOTHING
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError):
            return _NOTHING
        # A decoder keeps the last of two equal keys, so that the text has more colons than its value.
        if "\\u003" in text or text.count(":") != msgspec.json.encode(value).count(b":"):
            return _NOTHING
        return value

    def _object(self, schema: Mapping[str, Any] | None, value: dict[str, Any]) -> Any:
        if schema is None:
            return value
        properties, required = schema.get("properties") or {}, schema.get("required") or ()
        others = schema.get("additionalProperties")
        out: dict[str, Any] = {}
        for key, item in value.items():
            inner = properties.get(key, others)
            # A strict host requires every property and lets the model write null for those that it would leave out.
            if item is None and key in properties and key not in required and "null" not in self._about(inner).kinds:
                continue
            out[key] = self.read(inner, item)
        return out

    def _array(self, schema: Mapping[str, Any] | None, value: list[Any]) -> Any:
        if schema is None:
            return value
        row, others = schema.get("prefixItems") or (), schema.get("items")
        return [self.read(row[n] if n < len(row) else others, item) for n, item in enumerate(value)]

    # -- schemas

    def _resolved(self, schema: Any) -> Mapping[str, Any]:
        for _ in range(_MAX_REFS):
            if not isinstance(schema, Mapping):
                break
            ref = schema.get("$ref")
            if not isinstance(ref, str):
                return schema
            schema = self._defs.get(ref.removeprefix("#/$defs/"))
        return _ANYTHING  # True, False, or a reference that leads elsewhere

    def _member(self, schema: Mapping[str, Any], kind: str, value: Any) -> Mapping[str, Any] | None:
        """Return the schema for the parts of an object or array; None if a union leaves a doubt."""
        for keyword in _MEMBERS:
            if isinstance(members := schema.get(keyword), list):
                break
        else:
            return schema
        self._steps += len(members)
        found = [one for one in members if kind in self._about(one).kinds]
        if kind == "object" and len(found) > 1:
            found = [one for one in found if self._has_tags(one, value)]
        return self._member(self._resolved(found[0]), kind, value) if len(found) == 1 else None

    def _has_tags(self, schema: Any, value: Mapping[str, Any]) -> bool:
        """Return whether an object has the values that a record requires of it, such as `"kind": "circle"`."""
        schema = self._resolved(schema)
        properties = schema.get("properties") or {}
        for key in schema.get("required") or ():
            facts, tag = self._about(properties.get(key)), value.get(key)
            if facts.kinds == {"string"} and not facts.any_text and not (isinstance(tag, str) and tag in facts.texts):
                return False
        return True

    def _about(self, schema: Any) -> _Facts:
        schema = self._resolved(schema)
        known = self._facts.get(id(schema))
        if known is None:
            self._facts[id(schema)] = _Facts(ANY_KIND, True, frozenset())  # for a union that contains itself
            known = self._facts[id(schema)] = self._found_out(schema)
        return known

    def _found_out(self, schema: Mapping[str, Any]) -> _Facts:
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list):
            texts = frozenset(value for value in values if isinstance(value, str))
            return _Facts(frozenset(map(kind_of, values)), False, texts)
        for keyword in _MEMBERS:
            if isinstance(members := schema.get(keyword), list):
                found = [self._about(one) for one in members]
                return _Facts(
                    frozenset().union(*(one.kinds for one in found)),
                    any(one.any_text for one in found),
                    frozenset().union(*(one.texts for one in found)),
                )
        kind = schema.get("type")
        kinds = frozenset({kind}) if isinstance(kind, str) else frozenset(kind) if isinstance(kind, list) else ANY_KIND
        return _Facts(kinds, "string" in kinds, frozenset())
