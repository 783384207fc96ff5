"""What requests about resources give back."""

from __future__ import annotations

from attrs import field

from .base import as_tuple, frozen
from .contents import ResourceContents
from .resources import Resource, ResourceTemplate
from .result import CacheableResult, PaginatedResult


@frozen(kw_only=True)
class ListResourcesResult(PaginatedResult):
    """One page of the resources a server has."""

    resources: tuple[Resource, ...] = field(converter=as_tuple)


@frozen(kw_only=True)
class ListResourceTemplatesResult(PaginatedResult):
    """One page of the resource templates a server has."""

    resource_templates: tuple[ResourceTemplate, ...] = field(converter=as_tuple)


@frozen(kw_only=True)
class ReadResourceResult(CacheableResult):
    """What a resource holds; a collection may give several contents."""

    contents: tuple[ResourceContents, ...] = field(converter=as_tuple)
