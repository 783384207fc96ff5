"""Progress, cancellation, log messages, and the subscriptions of the stateless revision."""

from __future__ import annotations

from typing import Any

from attrs import field

from ._fields import as_optional_tuple, frozen
from .base import LoggingLevel, Params, ProgressToken, Record, RequestId
from .results import Result


@frozen(kw_only=True)
class ProgressParams(Params):
    """The progress of a request, identified by the token that the request carried."""

    progress_token: ProgressToken
    progress: float
    total: float | None = None
    message: str | None = None


@frozen(kw_only=True)
class CancelledParams(Params):
    """The request that is cancelled, and the reason."""

    request_id: RequestId | None = None
    reason: str | None = None


# -- log messages


@frozen(kw_only=True)
class SetLevelParams(Params):
    """The minimum level of log messages that the server sends."""

    level: LoggingLevel


@frozen(kw_only=True)
class LoggingMessageParams(Params):
    """One log message; `data` is any JSON value and always present, so `None` is written as null."""

    level: LoggingLevel
    logger: str | None = None
    data: Any


# -- subscriptions: a request that stays open while the server sends notifications


@frozen(kw_only=True)
class SubscriptionFilter(Record):
    """The changes that a client subscribes to."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: tuple[str, ...] | None = field(default=None, converter=as_optional_tuple)


@frozen(kw_only=True)
class SubscriptionsListenParams(Params):
    """The params of `subscriptions/listen`."""

    notifications: SubscriptionFilter


@frozen(kw_only=True)
class SubscriptionsAcknowledgedParams(Params):
    """The part of the filter that the server supports."""

    notifications: SubscriptionFilter


SubscriptionsListenResult = Result
