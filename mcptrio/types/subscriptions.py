"""Subscriptions of the stateless revision: one request that stays open and says what changed."""

from __future__ import annotations

from attrs import field

from .base import Params, Record, as_optional_tuple, frozen
from .result import Result


@frozen(kw_only=True)
class SubscriptionFilter(Record):
    """Which changes to be told about."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: tuple[str, ...] | None = field(default=None, converter=as_optional_tuple)


@frozen(kw_only=True)
class SubscriptionsListenParams(Params):
    """What a client wants to listen to."""

    notifications: SubscriptionFilter


@frozen(kw_only=True)
class SubscriptionsAcknowledgedParams(Params):
    """The part of the filter that the server will honour."""

    notifications: SubscriptionFilter


SubscriptionsListenResult = Result
