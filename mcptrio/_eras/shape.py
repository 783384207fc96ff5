"""Fit outgoing values to a protocol date: fields and content types that the date lacks are left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from mcptrio._peer.era import Era
from mcptrio.errors import CapabilityMissing


def trim(era: Era, kind: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return `value` without the keys that this date does not define for objects of this kind."""
    keys = era.shapes[kind]
    return {key: item for key, item in value.items() if key in keys}


def trimmed(kind: str) -> Callable[[Era, Mapping[str, Any]], dict[str, Any]]:
    """Return `trim` for objects of one kind."""
    return lambda era, value: trim(era, kind, value)


def lower_content(era: Era, blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Convert content blocks to the types of this date; a type that it lacks becomes the nearest one that it has."""
    known = era.content
    if all(block["type"] in known for block in blocks):
        return blocks
    return [block if block["type"] in known else _lower(block) for block in blocks]


def lower_form(era: Era, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert the schema of an elicitation form to the keywords of this date.

    Raises:
        CapabilityMissing: the form has a multiple choice, which this date does not support.
    """
    if era.features.elicitation_url:  # 2025-11-25 client/elicitation added the keywords below together with URL mode
        return schema
    fields = {name: _lower_field(era, name, field) for name, field in schema.get("properties", {}).items()}
    lowered: dict[str, Any] = {"type": "object", "properties": fields}
    return {**lowered, "required": list(schema["required"])} if schema.get("required") else lowered


def _lower_field(era: Era, name: str, field: Mapping[str, Any]) -> dict[str, Any]:
    kind = field.get("type")
    if kind == "array":
        raise CapabilityMissing(f"{name}: a choice of several does not exist at protocol version {era.date}")
    kept = {key: value for key, value in field.items() if key in _FORM_WORDS.get(kind, ())}
    if options := field.get("oneOf"):
        kept["enum"] = [option["const"] for option in options]
        kept["enumNames"] = [option.get("title", option["const"]) for option in options]
    return kept


_NAMED: Final = {"type", "title", "description"}
_FORM_WORDS: Final[Mapping[Any, set[str]]] = {
    "string": _NAMED | {"minLength", "maxLength", "format", "enum", "enumNames"},
    "number": _NAMED | {"minimum", "maximum"},
    "integer": _NAMED | {"minimum", "maximum"},
    "boolean": _NAMED | {"default"},
}
"""The keywords of 2025-06-18 per kind of field: `enumNames` instead of titled choices, defaults of booleans only."""


def _lower(block: dict[str, Any]) -> dict[str, Any]:
    match block["type"]:
        case "audio":
            media = {"uri": "data:audio", "mimeType": block["mimeType"], "blob": block["data"]}
            return {"type": "resource", "resource": media}
        case "resource_link":
            name = block.get("title") or block.get("name") or block["uri"]
            return {"type": "text", "text": f"{name}: {block['uri']}"}
        case other:
            return {"type": "text", "text": f"({other} content, which this protocol version cannot carry)"}
