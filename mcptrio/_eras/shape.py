"""Fitting what we send to the date it is sent at: fields and content types that a date lacks are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mcptrio._peer.era import Era


def trim(era: Era, kind: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """`value` without the keys that this date does not define for objects of this kind."""
    keys = era.shapes[kind]
    return {key: item for key, item in value.items() if key in keys}


def trim_all(era: Era, kind: str, values: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [trim(era, kind, value) for value in values]


def lower_content(era: Era, blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Content blocks in the types that this date has; what it lacks becomes the nearest thing that it can read."""
    known = era.content
    if all(block["type"] in known for block in blocks):
        return blocks
    return [block if block["type"] in known else _lower(block) for block in blocks]


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
