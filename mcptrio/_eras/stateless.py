"""What the stateless dates have in common: everything about a request stands in its own `_meta`."""

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
"""basic/patterns/mrtr: no other request may be answered with questions."""

ONLY_STATELESS: Final = frozenset({"server/discover", "subscriptions/listen"})
"""Methods that no stateful date has: a request for one of them without a declaration is an incomplete one."""


def declared_date(params: Mapping[str, Any]) -> str | None:
    """The date that a request declares for itself; None where it declares none, as before 2026-07-28."""
    meta = params.get("_meta")
    date = meta.get(VERSION) if type(meta) is dict else None
    return date if type(date) is str else None


def is_stateless(params: Mapping[str, Any]) -> bool:
    """Whether a request speaks a stateless date, or tries to: it says something of itself in `_meta`."""
    meta = params.get("_meta")
    return type(meta) is dict and (VERSION in meta or CAPABILITIES in meta or CLIENT_INFO in meta)


def read_capabilities(params: Mapping[str, Any], request_id: int | str) -> dict[str, Any]:
    """What the client can do, as this request declares it.

    Raises:
        RemoteProtocolError: the declaration is missing or no object. basic/index: both are required.
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
        # server/utilities/logging: a level that does not exist SHOULD be refused
        known = ", ".join(LOGGING_LEVELS)
        raise RemoteProtocolError(
            f"params._meta.{LOG_LEVEL} is no log level; there are {known}", code=INVALID_PARAMS, request_id=request_id
        )
    return capabilities
