"""The keys that the protocol itself reads in `_meta`, most of them of the stateless revision."""

from __future__ import annotations

from .base import ProgressToken, Record, RequestId, frozen
from .client_capabilities import ClientCapabilities
from .levels import LoggingLevel
from .lifecycle import Implementation


@frozen(kw_only=True)
class RequestMeta(Record):
    """The keys that the protocol itself reads in the `_meta` of a request; its other keys stay in `Params.meta`."""

    progress_token: ProgressToken | None = None
    protocol_version: str | None = None
    client_info: Implementation | None = None
    client_capabilities: ClientCapabilities | None = None
    log_level: LoggingLevel | None = None


@frozen(kw_only=True)
class NotificationMeta(Record):
    """The key that the protocol itself reads in the `_meta` of a notification, and of the result of a listen."""

    subscription_id: RequestId | None = None


@frozen(kw_only=True)
class ResultMeta(Record):
    """The key that the protocol itself reads in the `_meta` of a result."""

    server_info: Implementation | None = None
