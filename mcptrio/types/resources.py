"""Resources: data of a server that clients read by URI."""

from __future__ import annotations

from attrs import field

from ._fields import as_optional_tuple, as_tuple, frozen
from .base import Icon, InputResponseParams, JsonObject, PaginatedParams, Params, Record
from .content import Annotations, ResourceContents
from .results import CacheableResult, PaginatedResult


@frozen(kw_only=True)
class Resource(Record):
    """A resource with a fixed URI."""

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


ListResourcesParams = PaginatedParams
ListResourceTemplatesParams = PaginatedParams


@frozen(kw_only=True)
class ListResourcesResult(PaginatedResult):
    """One page of the resources of a server."""

    resources: tuple[Resource, ...] = field(converter=as_tuple)


@frozen(kw_only=True)
class ListResourceTemplatesResult(PaginatedResult):
    """One page of the resource templates of a server."""

    resource_templates: tuple[ResourceTemplate, ...] = field(converter=as_tuple)


@frozen(kw_only=True)
class ReadResourceParams(InputResponseParams):
    """The resource to read."""

    uri: str


@frozen(kw_only=True)
class ReadResourceResult(CacheableResult):
    """The contents of a resource; a collection may return several."""

    contents: tuple[ResourceContents, ...] = field(converter=as_tuple)


@frozen(kw_only=True)
class SubscribeParams(Params):
    """The resource whose updates to subscribe to, or to unsubscribe from."""

    uri: str


UnsubscribeParams = SubscribeParams


@frozen(kw_only=True)
class ResourceUpdatedParams(Params):
    """The resource that has changed; it may be a part of the one subscribed to."""

    uri: str


ResourceListChangedParams = Params
