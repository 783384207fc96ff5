"""The published rules of model providers for the input schemas of tools; each returns what a provider would refuse.

Read on 2026-11-17:

- Gemini: the fields of `Schema` in `FunctionDeclaration.parameters`, https://ai.google.dev/api/caching#Schema, and the
  note on `format` in https://firebase.google.com/docs/reference/js/ai.schemashared (other formats fail the request).
  Unknown fields fail it too. `$ref`, `$defs` and `additionalProperties` are fields of its JSON Schema form
  (`parametersJsonSchema`), and are allowed here only where nothing else can express the type: a record that contains
  itself, a mapping, and a tool that refuses unknown arguments (`arguments="strict"`).
- OpenAI: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas. `required` and
  `additionalProperties: false` for every object are of strict mode only, and hosts add them. Outside of strict mode an
  array without `items` is refused as well.
- Bedrock: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ToolInputSchema.html (an object at the
  top), with Claude's rules: no union at the top, no `oneOf`, keys of 1 to 64 characters of a small set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

Schema = dict[str, Any]

GEMINI = {
    *("type", "format", "title", "description", "nullable", "enum", "maxItems", "minItems", "properties", "required"),
    *("minProperties", "maxProperties", "minLength", "maxLength", "pattern", "example", "anyOf", "propertyOrdering"),
    *("default", "items", "minimum", "maximum"),
}
GEMINI_JSON = {"$ref", "$defs", "additionalProperties"}
ALLOWED_WITH_A_UNION = {"title", "description", "default", "nullable", "$defs"}
ALLOWED_WITH_A_REF = {"description", "default"}
OPENAI_REFUSES = {"allOf", "not", "dependentRequired", "dependentSchemas", "if", "then", "else", "oneOf"}
OPENAI_REFUSES |= {"patternProperties", "unevaluatedProperties", "propertyNames", "unevaluatedItems", "contains"}
OPENAI_REFUSES |= {"minContains", "maxContains", "uniqueItems", "prefixItems"}
OPENAI_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
TYPES = {"string", "number", "integer", "boolean", "array", "object", "null"}


def parts(schema: Schema, at: str = "") -> Iterator[tuple[str, Schema]]:
    """Every subschema with its path; values such as defaults are none."""
    yield at, schema
    for key in ("properties", "$defs"):
        for name, inner in schema.get(key, {}).items():
            yield from parts(inner, f"{at}/{key}/{name}")
    for key in ("items", "additionalProperties", "propertyNames", "not"):
        if isinstance(schema.get(key), dict):
            yield from parts(schema[key], f"{at}/{key}")
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for n, inner in enumerate(schema.get(key, ())):
            yield from parts(inner, f"{at}/{key}/{n}")


def gemini(schema: Schema) -> list[str]:
    found = []
    for at, part in parts(schema):
        unknown = {key for key in part if not key.startswith("x-")} - GEMINI - GEMINI_JSON
        found += [f"{at}: unknown field {key}" for key in sorted(unknown)]
        if part.get("format", "date-time") not in ("enum", "date-time"):
            found.append(f"{at}: format {part['format']}")
        if not isinstance(part.get("type", "string"), str):
            found.append(f"{at}: a list of types")
        if not all(isinstance(value, str) for value in part.get("enum", ())):
            found.append(f"{at}: enum of other values than strings")
        for key, allowed in (("anyOf", ALLOWED_WITH_A_UNION), ("$ref", ALLOWED_WITH_A_REF)):
            if key in part and (others := part.keys() - allowed - {key}):
                found.append(f"{at}: {', '.join(sorted(others))} next to {key}")
        if part.get("type") == "array" and "items" not in part:
            found.append(f"{at}: array without items")
    return found


def openai(schema: Schema) -> list[str]:
    found = ["the root is no object"] if schema.get("type") != "object" or "anyOf" in schema else []
    if "properties" not in schema:
        found.append("object schema missing properties")
    choices = 0
    for at, part in parts(schema):
        found += [f"{at}: {key}" for key in sorted(part.keys() & OPENAI_REFUSES)]
        if part.get("type") == "array" and not isinstance(part.get("items"), dict):
            found.append(f"{at}: array schema missing items")
        if part.get("format", "date") not in OPENAI_FORMATS:
            found.append(f"{at}: format {part['format']}")
        choices += len(part.get("enum", ()))
    if choices > 1000:
        found.append("more than 1000 enum values")
    return found


def bedrock(schema: Schema) -> list[str]:
    found = ["the root is no object"] if schema.get("type") != "object" else []
    found += [f"{key} at the top" for key in ("anyOf", "oneOf", "allOf") if key in schema]
    for at, part in parts(schema):
        if "oneOf" in part:
            found.append(f"{at}: oneOf")
        if not {part.get("type", "string")} <= TYPES:
            found.append(f"{at}: type {part['type']}")
        for key in part.get("properties", {}):
            if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", key):
                found.append(f"{at}: property {key}")
    return found


HOSTS: dict[str, Callable[[Schema], list[str]]] = {"gemini": gemini, "openai": openai, "bedrock": bedrock}
