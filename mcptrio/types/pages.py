"""Asking for a page of a list: the same parameters for every list."""

from __future__ import annotations

from .base import Params, frozen


@frozen(kw_only=True)
class PaginatedParams(Params):
    """The parameters of a request for one page of a list."""

    cursor: str | None = None


ListPromptsParams = PaginatedParams
ListResourcesParams = PaginatedParams
ListResourceTemplatesParams = PaginatedParams
ListToolsParams = PaginatedParams
