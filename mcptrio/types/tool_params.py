"""The parameters of requests and notifications about tools."""

from __future__ import annotations

from .base import InputResponseParams, JsonObject, Params, frozen


@frozen(kw_only=True)
class CallToolParams(InputResponseParams):
    """Which tool to call, and with what."""

    name: str
    arguments: JsonObject | None = None
    task: JsonObject | None = None


ToolListChangedParams = Params
