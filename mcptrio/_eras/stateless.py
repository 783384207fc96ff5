"""Parts shared by the stateless dates: a request's `_meta` says everything about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mcptrio.errors import INVALID_PARAMS, RemoteProtocolError
from mcptrio.types import LOGGING_LEVELS

PREFIX: Final = "io.modelcontextprotocol/"
VERSION: Final = PREFIX + "protocolVersion"
CAPABILITIES: Final = PREFIX + "clientCapabilities"
CLIENT_INFO: Final = PREFIX + "clientInfo"
SERVER_INFO: Final = PREFIX + "serverInfo"
LOG_LEVEL: Final = PREFIX + "logLevel"
SUBSCRIPTION: Final = PREFIX + "subscriptionId"

MAY_ASK: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""basic/patterns/mrtr: only these requests may be answered with input requests."""

NAMED_BY: Final[Mapping[str, str]] = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""Method -> the parameter that the header `Mcp-Name` repeats."""
ONLY_STATELESS: Final = frozenset({"server/discover", "subscriptions/listen"})
"""Methods that no stateful date has: a request for one of them without a declaration is incomplete."""


def declared_date(params: Mapping[str, Any]) -> str | None:
    """Return the date that a request declares for itself, or None (as before 2026-07-28)."""
    meta = params.get("_meta")
    date = meta.get(VERSION) if type(meta) is dict else None
    return date if type(date) is str else None


def is_stateless(params: Mapping[str, Any]) -> bool:
    """Return whether a request declares a stateless date, or tries to, in its `_meta`."""
    meta = params.get("_meta")
    return type(meta) is dict and (VERSION in meta or CAPABILITIES in meta or CLIENT_INFO in meta)


def read_capabilities(params: Mapping[str, Any], request_id: int | str) -> dict[str, Any]:
    """Return the client's capabilities, as this request declares them.

    Raises:
        RemoteProtocolError: the declaration is missing or is not an object. basic/index: both are required.
    """
    meta = params.get("_meta")
    if type(meta) is not dict or type(meta.get(VERSION)) is not str:
        raise RemoteProtocolError(f"params._meta needs {VERSION}, a string", code=INVALID_PARAMS, request_id=request_id)
    capabilities = meta.get(CAPABILITIES)
    if type(capabilities) is not dict:
        raise RemoteProtocolError(
            f"params._meta needs {CAPABILITIES}, an object", code=INVALID_PARAMS, request_id=request_id
        )
    if LOG_LEVEL in meta and meta[LOG_LEVEL] not in LOGGING_LEVELS:
        # server/utilities/logging: a level that does not exist SHOULD be rejected
        known = ", ".join(LOGGING_LEVELS)
        raise RemoteProtocolError(
            f"params._meta.{LOG_LEVEL} is not a log level; use {known}",
            code=INVALID_PARAMS,
            request_id=request_id,
        )
    return capabilities
