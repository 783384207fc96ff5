"""Generated schemas as every host can read them: definitions inlined, and only keywords that all providers take.

Hosts pass a tool's input schema to the model's provider, some of them unchanged, and one keyword that the provider does
not know fails the whole request, with all tools in it. `inlined` is for every generated schema; `for_models` for input
schemas only, since hosts do not pass on output schemas. What a keyword said that is left out is said in the
description; the reader of the arguments still checks it. Schemas that were written by hand are listed unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from mcptrio._schema.containers import INTEGER_KEYS
from mcptrio._schema.faults import listed, show
from mcptrio._schema.shape import JsonSchema, kind_of

MAX_INLINED: Final = 64 * 1024
"""Bytes; a schema that would be larger keeps its definitions."""

_REF: Final = "#/$defs/"
_SCHEMA: Final = frozenset(
    {"items", "additionalProperties", "propertyNames", "not", "if", "then", "else", "contains", "unevaluatedProperties"}
)
_LIST: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_MAP: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs"})


def _mapped(schema: JsonSchema, change: Callable[[JsonSchema], JsonSchema]) -> JsonSchema:
    """Return a schema with its direct subschemas changed; values such as `default` and `enum` are no schemas."""
    out: JsonSchema = {}
    for key, value in schema.items():
        if key in _SCHEMA and isinstance(value, dict):
            value = change(value)
        elif key in _LIST and isinstance(value, list):
            value = [change(item) for item in value]
        elif key in _MAP and isinstance(value, dict):
            value = {name: change(item) for name, item in value.items()}
        out[key] = value
    return out


def _subschemas(schema: JsonSchema) -> Iterator[JsonSchema]:
    for key, value in schema.items():
        if key in _SCHEMA and isinstance(value, dict):
            yield value
        elif (key in _LIST and isinstance(value, list)) or (key in _MAP and isinstance(value, dict)):
            yield from value.values() if isinstance(value, dict) else value


# -- definitions


class _TooLarge(Exception):
    """The schema without references would be larger than `MAX_INLINED`."""


def inlined(schema: JsonSchema) -> JsonSchema:
    """Return a schema without `$ref` and `$defs`, except for definitions that contain themselves."""
    defs: Mapping[str, JsonSchema] | None = schema.get("$defs")
    if not defs:
        return schema
    body = {key: value for key, value in schema.items() if key != "$defs"}
    try:
        return _Inliner(defs).whole(body)
    except _TooLarge:
        return schema


class _Inliner:
    """The definitions of one schema, each expanded once."""

    def __init__(self, defs: Mapping[str, JsonSchema]) -> None:
        self._defs = defs
        self._uses = {name: _uses(body, defs) for name, body in defs.items()}
        self._kept = {name for name in defs if name in self._reachable(self._uses[name])}
        self._expanded: dict[str, JsonSchema] = {}

    def whole(self, body: JsonSchema) -> JsonSchema:
        out = self._expand(body)
        if left := self._kept & self._reachable(_uses(body, self._defs)):
            out = {**out, "$defs": {name: self._expand(self._defs[name]) for name in self._defs if name in left}}
        return _bounded(out)

    def _reachable(self, names: set[str]) -> set[str]:
        found: set[str] = set()
        while names:
            found |= names
            names = set().union(*(self._uses[name] for name in names)) - found
        return found

    def _expand(self, schema: JsonSchema) -> JsonSchema:
        name = _target(schema, self._defs)
        rest = {key: value for key, value in schema.items() if key != "discriminator"}  # it refers to definitions too
        if name is None or name in self._kept:
            return _mapped(rest, self._expand)
        if name not in self._expanded:
            self._expanded[name] = _bounded(self._expand(self._defs[name]))  # also bounds the work of nested ones
        del rest["$ref"]
        return {**self._expanded[name], **_mapped(rest, self._expand)}


def _target(schema: JsonSchema, defs: Mapping[str, JsonSchema]) -> str | None:
    ref = schema.get("$ref")
    name = ref.removeprefix(_REF) if isinstance(ref, str) and ref.startswith(_REF) else None
    return name if name in defs else None


def _uses(schema: JsonSchema, defs: Mapping[str, JsonSchema]) -> set[str]:
    name = _target(schema, defs)
    return set().union({name} if name is not None else (), *(_uses(part, defs) for part in _subschemas(schema)))


def _bounded(schema: JsonSchema) -> JsonSchema:
    if len(msgspec.json.encode(schema)) > MAX_INLINED:
        raise _TooLarge
    return schema


# -- keywords

_FORMATS: Final = {
    "date": "A date such as 2026-01-31.",
    "time": "A time such as 12:00:00.",
    "duration": "An ISO 8601 duration such as PT90S.",
    "uuid": "A UUID.",
    "ipv4": "An IPv4 address.",
    "ipv6": "An IPv6 address.",
    "byte": "Base64.",
    "path": "A path.",
    "decimal": "A decimal number.",
    "email": "An e-mail address.",
    "uri": "A URL.",
}


def for_models(schema: JsonSchema) -> JsonSchema:
    """Return a generated input schema with the keywords that Gemini, OpenAI and Bedrock all take.

    `tests/schema/host_rules.py` has their rules.
    """
    return _Common(_mapped(schema, for_models)).rewritten()


class _Common:
    """One schema, rewritten step by step; its subschemas are done."""

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        self._notes: list[str] = []

    def rewritten(self) -> JsonSchema:
        self._rows()
        self._choices()
        self._numbers()
        self._texts()
        schema = self._schema
        if schema.get("type") == "array":
            schema.setdefault("items", {})  # OpenAI: "array schema missing items"
        if self._notes:
            about = str(schema.get("description", ""))
            end = "" if not about or about.endswith((".", "!", "?", ":")) else "."
            schema["description"] = " ".join([about + end, *self._notes]).strip()
        return schema

    def _rows(self) -> None:
        schema = self._schema
        if (rows := schema.pop("prefixItems", None)) and isinstance(rows, list):
            kinds = [item for n, item in enumerate(rows) if item not in rows[:n]]
            schema["items"] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
            if len(kinds) > 1:
                self._notes.append(f"In this order: {', '.join(_words(item) for item in rows)}.")
        if schema.pop("uniqueItems", None):
            self._notes.append("All items differ.")
        if (names := schema.pop("propertyNames", None)) and isinstance(names, dict):
            self._notes.append(f"Keys: {_words(names)}.")

    def _choices(self) -> None:
        schema = self._schema
        if "const" in schema:
            schema["enum"] = [schema.pop("const")]
        if "oneOf" in schema and "anyOf" not in schema:
            schema["anyOf"] = schema.pop("oneOf")
        if isinstance(kinds := schema.get("type"), list):
            about: JsonSchema = {key: schema.pop(key) for key in ("title", "description", "default") if key in schema}
            members = [{"type": kind} if kind == "null" else for_models({**schema, "type": kind}) for kind in kinds]
            self._schema = schema = {**about, "anyOf": members}
        values = schema.get("enum")
        if not isinstance(values, list) or not values:
            return
        found = list(dict.fromkeys(map(kind_of, values)))
        if len(found) > 1:
            del schema["enum"]
            schema.pop("type", None)
            schema["anyOf"] = [for_models({"enum": [v for v in values if kind_of(v) == kind]}) for kind in found]
            return
        kind = schema.setdefault("type", found[0])
        if kind == "string":
            return
        del schema["enum"]  # Gemini: strings only
        if found[0] in ("integer", "number"):
            schema["minimum"], schema["maximum"] = min(values), max(values)
        if found[0] != "null" and (found[0] != "boolean" or len(values) == 1):
            self._notes.append(f"Only {listed([show(value) for value in values])}.")

    def _numbers(self) -> None:
        schema = self._schema
        whole = schema.get("type") == "integer"
        for keyword, bound, step, words in (
            ("exclusiveMinimum", "minimum", 1, "More than"),
            ("exclusiveMaximum", "maximum", -1, "Less than"),
        ):
            if (value := schema.pop(keyword, None)) is None:
                continue
            if whole and float(value).is_integer():
                schema[bound] = int(value) + step
            else:
                schema[bound] = value
                self._notes.append(f"{words} {show(value)}.")
        if (factor := schema.pop("multipleOf", None)) is not None:
            self._notes.append(f"A multiple of {show(factor)}.")

    def _texts(self) -> None:
        schema = self._schema
        if (format := schema.get("format")) is not None and format != "date-time":
            del schema["format"]
            self._notes.append(_FORMATS.get(format) or f"Format: {format}.")
        if schema.pop("contentEncoding", None) == "base64" and format != "byte":
            self._notes.append(_FORMATS["byte"])
        if examples := schema.pop("examples", None):
            self._notes.append(f"For example {listed([_shown(one) for one in examples])}.")


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _words(schema: JsonSchema) -> str:
    """Return a few words for a schema inside a description."""
    if isinstance(values := schema.get("enum"), list):
        return listed([show(value) for value in values])
    if isinstance(members := schema.get("anyOf"), list):
        return listed([_words(member) for member in members])
    if (pattern := schema.get("pattern")) is not None:
        return "integers" if pattern == INTEGER_KEYS else f"match {pattern}"
    return str(schema.get("type") or "anything")
