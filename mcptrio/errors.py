"""Every exception mcptrio raises and every JSON-RPC error code it uses.

Three questions tell the classes apart: which side made the mistake (`LocalProtocolError`: this program,
`RemoteProtocolError`: the peer), does it cross the wire (`MCPError`, `ToolError`), and is the other side still there
(`ConnectionLost`).
"""

from __future__ import annotations

from typing import Any, Final

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
USER_REJECTED: Final = -1  # client/sampling: the user rejected the request


class MCPTrioError(Exception):
    """The base of every exception that mcptrio raises on purpose."""


class DeclarationError(MCPTrioError, ValueError):
    """A server or client was declared wrongly; the text says how to correct it."""


class LocalProtocolError(MCPTrioError):
    """This program requested something that the protocol forbids; correct the caller."""


class CapabilityMissing(LocalProtocolError):
    """The peer did not declare the capability that a request needs, or its revision lacks the feature.

    `required` holds the missing capability in its wire form.
    """

    def __init__(self, message: str, *, required: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.required: dict[str, Any] = required or {}


class RemoteProtocolError(MCPTrioError):
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


class MCPError(MCPTrioError):
    """A JSON-RPC error that crosses the wire.

    Raise it in a handler to choose the error that the peer sees; callers get it when the peer answered with an error.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data


class UrlElicitationRequired(MCPError):
    """The user must visit a page before a request can work, for example to sign in to a third party.

    Raise it in a handler: the client shows the page and may repeat the request. To wait for the user inside the
    handler, use `ctx.elicit_url` instead. A client raises it when the page was not visited; `elicitations` then holds
    the pages with their `url` and `message`.
    """

    def __init__(self, url: str, message: str, *, elicitation_id: str | None = None) -> None:
        # 2025-11-25 client/elicitation, "URL Elicitation Required Error"
        if elicitation_id is None:
            from secrets import token_urlsafe  # few servers need it

            elicitation_id = token_urlsafe(12)
        page = {"mode": "url", "elicitationId": elicitation_id, "url": url, "message": message}
        super().__init__(URL_ELICITATION_REQUIRED, message, {"elicitations": [page]})
        self.elicitations: tuple[Any, ...] = (page,)


class ToolError(MCPTrioError):
    """A failed tool call whose text the model may read: it becomes a result with `isError`."""


class OnceInterrupted(ToolError):
    """An earlier run of a `ctx.once` function did not finish, so it may have taken effect; it is not run again.

    Catch it to find out whether it did.
    """


class ConnectionLost(MCPTrioError):
    """The link to the peer is gone; whether a request in flight arrived is unknown."""


class RequestTimeout(MCPTrioError, TimeoutError):
    """The peer did not answer a request in time; the request was cancelled."""


class Overloaded(MCPTrioError):
    """A limit was reached (sessions, calls, threads, queues); a retry after `retry_after` seconds may succeed.

    `limit` names the limit. The HTTP status is 503 if the server is overloaded, 429 if this caller sends too much. A
    client also raises it for 502 and 504, which proxies send; its `retry_after` is 0 if the server did not set it.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after: int = 1,
        limit: str | None = None,
        http_status: int = 503,
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.limit = limit
        self.http_status = http_status


class SessionRefused(MCPTrioError):
    """Raised in a `@server.session` function to refuse the session; its text is sent to the client."""
