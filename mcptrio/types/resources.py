"""Resources: data of a server that is read by URI."""

from __future__ import annotations

from attrs import field

from .base import (
    CacheableResult,
    InputResponseParams,
    JsonObject,
    PaginatedParams,
    PaginatedResult,
    Params,
    Record,
    as_optional_tuple,
    as_tuple,
    frozen,
)
from .contents import ResourceContents
from .marks import Annotations, Icon


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


@frozen(kw_only=True)
class ListResourcesResult(PaginatedResult):
    """One page of the resources a server has."""

    resources: tuple[Resource, ...] = field(converter=as_tuple)


@frozen(kw_only=True)
class ListResourceTemplatesResult(PaginatedResult):
    """One page of the resource templates a server has."""

    resource_templates: tuple[ResourceTemplate, ...] = field(converter=as_tuple)


@frozen(kw_only=True)
class ReadResourceParams(InputResponseParams):
    """Which resource to read."""

    uri: str


@frozen(kw_only=True)
class ReadResourceResult(CacheableResult):
    """What a resource holds; a collection may give several contents."""

    contents: tuple[ResourceContents, ...] = field(converter=as_tuple)


@frozen(kw_only=True)
class SubscribeParams(Params):
    """Which resource's changes to be told about, or no longer."""

    uri: str


@frozen(kw_only=True)
class ResourceUpdatedParams(Params):
    """Which resource has changed; it may be a part of the one subscribed to."""

    uri: str


ListResourcesParams = PaginatedParams
ListResourceTemplatesParams = PaginatedParams
ResourceListChangedParams = Params
UnsubscribeParams = SubscribeParams
