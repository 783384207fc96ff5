"""Content blocks of tool results, prompts and messages, and the contents of resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from attrs import field

from ._fields import as_optional_tuple, frozen
from .base import Icon, JsonObject, Record, Role


@frozen(kw_only=True)
class Annotations(Record):
    """Hints about the audience of content and its importance (0 to 1)."""

    audience: tuple[Role, ...] | None = field(default=None, converter=as_optional_tuple)
    priority: float | None = None
    last_modified: str | None = None


@frozen(kw_only=True)
class TextResourceContents(Record):
    """The contents of a text resource."""

    uri: str
    text: str
    mime_type: str | None = None
    meta: JsonObject | None = None


@frozen(kw_only=True)
class BlobResourceContents(Record):
    """The contents of a binary resource, in base64."""

    uri: str
    blob: str
    mime_type: str | None = None
    meta: JsonObject | None = None


ResourceContents: TypeAlias = TextResourceContents | BlobResourceContents


@frozen(kw_only=True)
class TextContent(Record):
    """Text for the model or the user."""

    type: Literal["text"] = field(default="text", init=False, repr=False)
    text: str
    annotations: Annotations | None = None
    meta: JsonObject | None = None


@frozen(kw_only=True)
class ImageContent(Record):
    """An image in base64."""

    type: Literal["image"] = field(default="image", init=False, repr=False)
    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: JsonObject | None = None


@frozen(kw_only=True)
class AudioContent(Record):
    """Audio in base64."""

    type: Literal["audio"] = field(default="audio", init=False, repr=False)
    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: JsonObject | None = None


@frozen
class ResourceLink(Record):
    """A link to a resource: `ResourceLink("notes://today")`. Its default name is the last part of the URI."""

    type: Literal["resource_link"] = field(default="resource_link", init=False, repr=False)
    uri: str
    name: str = ""
    title: str | None = field(default=None, kw_only=True)
    description: str | None = field(default=None, kw_only=True)
    mime_type: str | None = field(default=None, kw_only=True)
    size: int | None = field(default=None, kw_only=True)
    icons: tuple[Icon, ...] | None = field(default=None, kw_only=True, converter=as_optional_tuple)
    annotations: Annotations | None = field(default=None, kw_only=True)
    meta: JsonObject | None = field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if not self.name:
            name = self.uri.rstrip("/").rpartition("/")[2] or self.uri
            object.__setattr__(self, "name", name)  # the class is frozen


@frozen(kw_only=True)
class EmbeddedResource(Record):
    """The contents of a resource, embedded instead of linked."""

    type: Literal["resource"] = field(default="resource", init=False, repr=False)
    resource: ResourceContents
    annotations: Annotations | None = None
    meta: JsonObject | None = None


@frozen(kw_only=True)
class UnknownContent(Record):
    """A content block of a type that this version does not know; `data` holds its other fields as received."""

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
