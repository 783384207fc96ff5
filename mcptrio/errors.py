"""Every exception mcptrio raises and every JSON-RPC error code it uses.

Three questions tell the classes apart: who made the mistake (`LocalProtocolError`: this program,
`RemoteProtocolError`: the peer), does it cross the wire (`McpError`, `ToolError`), and is the other side still there
(`LinkClosed`).
"""

from __future__ import annotations

from typing import Any, Final, Literal

# JSON-RPC 2.0 section 5.1
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
# MCP
RESOURCE_NOT_FOUND: Final = -32002  # up to 2025-11-25 server/resources; INVALID_PARAMS from 2026-07-28
URL_ELICITATION_REQUIRED: Final = -32042  # 2025-11-25 client/elicitation
HEADER_MISMATCH: Final = -32020  # 2026-07-28 basic/transports/streamable-http
MISSING_CLIENT_CAPABILITY: Final = -32021  # 2026-07-28 basic/index
UNSUPPORTED_PROTOCOL_VERSION: Final = -32022  # 2026-07-28 basic/versioning
USER_REJECTED: Final = -1  # client/sampling: the person refused


class MCPTrioException(Exception):
    """The base of every exception that mcptrio raises on purpose."""


class DeclarationError(MCPTrioException, ValueError):
    """A server or client was declared wrongly; the text says how to mend it."""


class LocalProtocolError(MCPTrioException):
    """This program asked for something that the protocol forbids; mend the caller."""


class CapabilityMissing(LocalProtocolError):
    """The peer did not declare the capability that a request needs, or its revision lacks the feature.

    `required` holds the missing capability as it would stand in the peer's capabilities.
    """

    def __init__(self, message: str, *, required: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.required: dict[str, Any] = required or {}


class RemoteProtocolError(MCPTrioException):
    """The peer broke the protocol.

    `code` is the JSON-RPC code to answer with, `request_id` the id to answer to where one could be read, `http_status`
    the status for a transport that has one, and `limit` the name of the bound that was reached, if one was.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int = INVALID_REQUEST,
        request_id: int | str | None = None,
        http_status: int = 400,
        data: Any = None,
        limit: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.request_id = request_id
        self.http_status = http_status
        self.data = data
        self.limit = limit


class McpError(MCPTrioException):
    """A JSON-RPC error that crosses the wire.

    Raise it in a handler to choose what the peer sees; it is raised to a caller when the peer answered with one.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data


class ToolError(MCPTrioException):
    """A failed tool call whose text the model may read: it becomes a result with `isError`."""


class LinkClosed(MCPTrioException):
    """The link to the peer is gone; whether a request in flight arrived is unknown."""


class RequestTimeout(MCPTrioException, TimeoutError):
    """The peer did not answer a request in time; it has been told that nobody waits any more."""


class Overloaded(MCPTrioException):
    """A bound was reached (sessions, calls, threads, queues); trying again after `retry_after` seconds may work.

    `limit` names the bound. The HTTP status is 503 where the server has too much to do, 429 where this caller asks for
    too much.
    """

    def __init__(
        self, message: str, *, retry_after: int = 1, limit: str | None = None, http_status: Literal[429, 503] = 503
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.limit = limit
        self.http_status = http_status


class SessionRefused(MCPTrioException):
    """Raised in a `@server.session` function to refuse the session; its text is sent to the client."""
