"""Content blocks: what tool results, prompts and sampling messages are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from attrs import field

from .annotations import Annotations
from .base import NULL_MATTERS, JsonObject, Record, as_optional_tuple, as_tuple, frozen
from .contents import ResourceContents
from .icons import Icon


@frozen(kw_only=True)
class TextContent(Record):
    """Text for the model or the person."""

    type: Literal["text"] = field(default="text", init=False, repr=False)
    text: str
    annotations: Annotations | None = None
    meta: JsonObject | None = None


@frozen(kw_only=True)
class ImageContent(Record):
    """A picture, its bytes in base64."""

    type: Literal["image"] = field(default="image", init=False, repr=False)
    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: JsonObject | None = None


@frozen(kw_only=True)
class AudioContent(Record):
    """A sound, its bytes in base64."""

    type: Literal["audio"] = field(default="audio", init=False, repr=False)
    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: JsonObject | None = None


@frozen(kw_only=True)
class ResourceLink(Record):
    """A pointer to a resource that can be read."""

    type: Literal["resource_link"] = field(default="resource_link", init=False, repr=False)
    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: tuple[Icon, ...] | None = field(default=None, converter=as_optional_tuple)
    annotations: Annotations | None = None
    meta: JsonObject | None = None


@frozen(kw_only=True)
class EmbeddedResource(Record):
    """The contents of a resource, carried along instead of linked to."""

    type: Literal["resource"] = field(default="resource", init=False, repr=False)
    resource: ResourceContents
    annotations: Annotations | None = None
    meta: JsonObject | None = None


@frozen(kw_only=True)
class UnknownContent(Record):
    """A content block whose type this version does not know; `data` holds its other fields as they came."""

    type: str
    data: JsonObject


ContentBlock: TypeAlias = (
    TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource | UnknownContent
)  # fmt: skip
CONTENT_BY_TYPE: Final[Mapping[str, type[Any]]] = {
    "text": TextContent,
    "image": ImageContent,
    "audio": AudioContent,
    "resource_link": ResourceLink,
    "resource": EmbeddedResource,
}


@frozen(kw_only=True)
class ToolUseContent(Record):
    """The model asks for a tool, inside a sampling message."""

    type: Literal["tool_use"] = field(default="tool_use", init=False, repr=False)
    id: str
    name: str
    input: JsonObject
    meta: JsonObject | None = None


@frozen(kw_only=True)
class ToolResultContent(Record):
    """What the tool asked for by a `ToolUseContent` gave back."""

    type: Literal["tool_result"] = field(default="tool_result", init=False, repr=False)
    tool_use_id: str
    content: tuple[ContentBlock, ...] = field(default=(), converter=as_tuple)
    structured_content: Any = field(default=None, metadata=NULL_MATTERS)
    is_error: bool | None = None
    meta: JsonObject | None = None


SamplingContent: TypeAlias = (
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent | UnknownContent
)  # fmt: skip
SAMPLING_CONTENT_BY_TYPE: Final[Mapping[str, type[Any]]] = {
    "text": TextContent,
    "image": ImageContent,
    "audio": AudioContent,
    "tool_use": ToolUseContent,
    "tool_result": ToolResultContent,
}
