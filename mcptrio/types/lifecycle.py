"""Identity and capabilities of the two sides: in `initialize`, `server/discover`, and the `_meta` of each message.

In capabilities, an empty object means that the feature is supported, an absent one that it is not.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field

from ._fields import as_optional_tuple, as_tuple, frozen
from .base import CacheableResult, Icon, JsonObject, LoggingLevel, Params, ProgressToken, Record, RequestId, Result


@frozen(kw_only=True)
class Implementation(Record):
    """The name and version of a client or server."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: tuple[Icon, ...] | None = field(default=None, converter=as_optional_tuple)


# -- capabilities of a client


@frozen(kw_only=True)
class RootsCapability(Record):
    """The client has roots, and may notify of changes."""

    list_changed: bool | None = None


@frozen(kw_only=True)
class SamplingCapability(Record):
    """The client lets the server use its model."""

    context: JsonObject | None = None
    tools: JsonObject | None = None


@frozen(kw_only=True)
class ElicitationCapability(Record):
    """The client lets the server ask the user; with neither mode declared, with a form."""

    form: JsonObject | None = None
    url: JsonObject | None = None


@frozen(kw_only=True)
class ClientCapabilities(Record):
    """The capabilities of a client. `tasks` is the form of 2025-11-25; later, tasks are one of the `extensions`."""

    experimental: Mapping[str, JsonObject] | None = None
    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None
    tasks: JsonObject | None = None
    extensions: Mapping[str, JsonObject] | None = None


# -- capabilities of a server


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
class InitializeParams(Params):
    """The client's side of opening a stateful session."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


@frozen(kw_only=True)
class InitializeResult(Result):
    """The server's side of opening a stateful session."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


InitializedParams = Params
DiscoverParams = Params


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
