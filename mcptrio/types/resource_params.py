"""The parameters of requests and notifications about resources."""

from __future__ import annotations

from .base import InputResponseParams, Params, frozen


@frozen(kw_only=True)
class ReadResourceParams(InputResponseParams):
    """Which resource to read."""

    uri: str


@frozen(kw_only=True)
class SubscribeParams(Params):
    """Which resource's changes to be told about, or no longer."""

    uri: str


@frozen(kw_only=True)
class ResourceUpdatedParams(Params):
    """Which resource has changed; it may be a part of the one subscribed to."""

    uri: str


ResourceListChangedParams = Params
UnsubscribeParams = SubscribeParams
