"""What a server declares that it can do. An empty object says yes, an absent one says no."""

from __future__ import annotations

from collections.abc import Mapping

from .base import JsonObject, Record, frozen


@frozen(kw_only=True)
class PromptsCapability(Record):
    """The server has prompts, and may tell when their list changes."""

    list_changed: bool | None = None


@frozen(kw_only=True)
class ResourcesCapability(Record):
    """The server has resources, and may tell when one or their list changes."""

    subscribe: bool | None = None
    list_changed: bool | None = None


@frozen(kw_only=True)
class ToolsCapability(Record):
    """The server has tools, and may tell when their list changes."""

    list_changed: bool | None = None


@frozen(kw_only=True)
class ServerCapabilities(Record):
    """What a server can do. `tasks` is the shape of 2025-11-25; later, tasks are one of the `extensions`."""

    experimental: Mapping[str, JsonObject] | None = None
    logging: JsonObject | None = None
    completions: JsonObject | None = None
    prompts: PromptsCapability | None = None
    resources: ResourcesCapability | None = None
    tools: ToolsCapability | None = None
    tasks: JsonObject | None = None
    extensions: Mapping[str, JsonObject] | None = None
