"""Resources: data of a server that is read by URI."""

from __future__ import annotations

from attrs import field

from .annotations import Annotations
from .base import JsonObject, Record, as_optional_tuple, frozen
from .icons import Icon


@frozen(kw_only=True)
class Resource(Record):
    """Something that can be read under a fixed URI."""

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
class ResourceTemplate(Record):
    """A family of resources, described by an RFC 6570 URI template."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    icons: tuple[Icon, ...] | None = field(default=None, converter=as_optional_tuple)
    annotations: Annotations | None = None
    meta: JsonObject | None = None
