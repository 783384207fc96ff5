"""A server's description of itself in `initialize` and `server/discover`, and the protocol's own keys in `_meta`.

Not in `lifecycle`: a server sends them as JSON objects and starts without these classes.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field

from ._fields import as_tuple, frozen
from .base import JsonObject, LoggingLevel, ProgressToken, Record, RequestId
from .lifecycle import ClientCapabilities, Implementation
from .results import CacheableResult, Result


@frozen(kw_only=True)
class PromptsCapability(Record):
    """The server has prompts, and may notify of changes to their list."""

    list_changed: bool | None = None


@frozen(kw_only=True)
class ResourcesCapability(Record):
    """The server has resources, and may notify of changes to one or to their list."""

    subscribe: bool | None = None
    list_changed: bool | None = None


@frozen(kw_only=True)
class ToolsCapability(Record):
    """The server has tools, and may notify of changes to their list."""

    list_changed: bool | None = None


@frozen(kw_only=True)
class ServerCapabilities(Record):
    """The capabilities of a server. `tasks` is the form of 2025-11-25; later, tasks are one of the `extensions`."""

    experimental: Mapping[str, JsonObject] | None = None
    logging: JsonObject | None = None
    completions: JsonObject | None = None
    prompts: PromptsCapability | None = None
    resources: ResourcesCapability | None = None
    tools: ToolsCapability | None = None
    tasks: JsonObject | None = None
    extensions: Mapping[str, JsonObject] | None = None


# -- initialize and server/discover


@frozen(kw_only=True)
class InitializeResult(Result):
    """The server's side of opening a stateful session."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


@frozen(kw_only=True)
class DiscoverResult(CacheableResult):
    """The server's description of itself for clients without a session."""

    supported_versions: tuple[str, ...] = field(converter=as_tuple)
    capabilities: ServerCapabilities
    instructions: str | None = None


@frozen(kw_only=True)
class UnsupportedProtocolVersionData(Record):
    """The error data with the supported revisions and the requested one."""

    supported: tuple[str, ...] = field(converter=as_tuple)
    requested: str


@frozen(kw_only=True)
class MissingClientCapabilityData(Record):
    """The error data with the capabilities that the client would have to declare."""

    required_capabilities: ClientCapabilities


# -- the protocol's own keys in `_meta`, most of them of the stateless revision


@frozen(kw_only=True)
class RequestMeta(Record):
    """The protocol's own keys in the `_meta` of a request; all other keys stay in `Params.meta`."""

    progress_token: ProgressToken | None = None
    protocol_version: str | None = None
    client_info: Implementation | None = None
    client_capabilities: ClientCapabilities | None = None
    log_level: LoggingLevel | None = None


@frozen(kw_only=True)
class NotificationMeta(Record):
    """The protocol's own key in the `_meta` of a notification, and of the result of `subscriptions/listen`."""

    subscription_id: RequestId | None = None


@frozen(kw_only=True)
class ResultMeta(Record):
    """The protocol's own key in the `_meta` of a result."""

    server_info: Implementation | None = None
