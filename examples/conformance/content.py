"""Tools that only answer: every kind of content, structured output, errors, logging, progress."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass
from typing import Any

import trio

from mcptrio import Audio, Context, Image, Server, ToolError
from mcptrio.types import ContentBlock, EmbeddedResource, TextContent, TextResourceContents

server = Server("content")

# One red pixel, and four samples of silence.
PNG = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)  # fmt: skip
WAV = b64decode("UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQgAAAAAAAAAAAAAAA==")


@server.tool
async def test_simple_text() -> str:
    """Returns a text."""
    return "This is a simple text response for testing."


@server.tool
async def test_image_content() -> Image:
    """Returns a picture."""
    return Image(PNG)


@server.tool
async def test_audio_content() -> Audio:
    """Returns a sound."""
    return Audio(WAV)


def embedded(uri: str, mime_type: str, text: str) -> EmbeddedResource:
    return EmbeddedResource(resource=TextResourceContents(uri=uri, mime_type=mime_type, text=text))


@server.tool
async def test_embedded_resource() -> EmbeddedResource:
    """Returns the contents of a resource."""
    return embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")


@server.tool
async def test_multiple_content_types() -> list[ContentBlock]:
    """Returns a text, a picture and a resource."""
    return [
        TextContent(text="Multiple content types test:"),
        Image(PNG).to_content(),
        embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ]


@dataclass
class Weather:
    city: str
    temperature: float
    conditions: str


@server.tool
async def test_structured_output(city: str) -> Weather:
    """Returns a typed value."""
    return Weather(city, 22.5, "sunny")


@server.tool
async def test_error_handling() -> str:
    """Fails in a way that the model can read."""
    raise ToolError("This tool intentionally returns an error for testing")


@server.tool
async def test_tool_with_logging(ctx: Context) -> str:
    """Sends three log messages while it works."""
    await ctx.info("Tool execution started")
    await trio.sleep(0.05)
    await ctx.info("Tool processing data")
    await trio.sleep(0.05)
    await ctx.info("Tool execution completed")
    return "Three messages were logged."


@server.tool
async def test_tool_with_progress(ctx: Context) -> str:
    """Reports progress in three steps."""
    for step in (0, 50, 100):
        if step:
            await trio.sleep(0.05)
        await ctx.progress(step, 100)
    return "Three steps were reported."


CONTACT = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@server.tool(input_schema=CONTACT)
async def json_schema_2020_12_tool(contact: dict[str, Any]) -> str:
    """Takes arguments whose schema was written by hand, with the keywords of JSON Schema 2020-12."""
    return f"Got {', '.join(sorted(contact))}."
