"""How a command ends: the exit codes that scripts can use, and the one line that says why."""

from __future__ import annotations

from typing import Any, Final

from mcptrio.errors import (
    URL_ELICITATION_REQUIRED,
    CapabilityMissing,
    DeclarationError,
    LinkClosed,
    McpError,
    MCPTrioException,
    Overloaded,
    RemoteProtocolError,
    RequestTimeout,
)

OK: Final = 0
TOOL_FAILED: Final = 1  # the result says `isError`
REFUSED: Final = 2  # the server answered with an error, or broke the protocol
UNREACHABLE: Final = 3  # nobody there, died, or silent for too long
UNAUTHORIZED: Final = 4
USAGE: Final = 64  # EX_USAGE
NO_OUTPUT: Final = 74  # EX_IOERR: what came could not be written
INTERRUPTED: Final = 130


class Failure(Exception):
    """The command ends with this code and this line."""

    def __init__(self, code: int, line: str) -> None:
        super().__init__(line)
        self.code = code


class UsageError(Failure):
    """The command line cannot be used as it is."""

    def __init__(self, line: str) -> None:
        super().__init__(USAGE, line)


def explain(error: Exception) -> Failure:
    """The end that an exception of the client means."""
    from mcptrio.auth.client.errors import AuthorizationFailed

    text = " ".join(str(error).split()) or type(error).__name__
    match error:
        case Failure():
            return error
        case AuthorizationFailed():
            return Failure(UNAUTHORIZED, f"not signed in: {text}")
        case RemoteProtocolError() | McpError() if _http_status(error) in (401, 403):
            return Failure(UNAUTHORIZED, f"{text} (sign in with --auth oauth, or give --token)")
        case CapabilityMissing(required={**wanted}) if wanted:
            return Failure(REFUSED, f"the server offers no {' and no '.join(wanted)}")
        case McpError():
            return Failure(REFUSED, text + _pages_to_visit(error))
        case LinkClosed() | RequestTimeout() | Overloaded():
            return Failure(UNREACHABLE, text)
        case DeclarationError():
            return UsageError(text)
        case MCPTrioException():
            return Failure(REFUSED, text)
    raise error


def _http_status(error: Exception) -> int | None:
    """What the answer came with: a refusal may be bare HTTP, or a JSON-RPC error of an `HttpMcpError`."""
    found: int | None = getattr(error, "status", None) or getattr(error, "http_status", None)
    return found


def as_json(error: Exception, end: Failure) -> dict[str, Any]:
    """The same for programs."""
    found: dict[str, Any] = {"message": str(end)}
    if isinstance(error, McpError):
        found = {"code": error.code, "message": error.message}
        if error.data is not None:
            found["data"] = error.data
    return {"error": found}


def _pages_to_visit(error: McpError) -> str:
    # 2025-11-25 client/elicitation, URL Elicitation Required Error
    if error.code != URL_ELICITATION_REQUIRED or not isinstance(error.data, dict):
        return ""
    wanted = error.data.get("elicitations")
    urls = [one["url"] for one in wanted if isinstance(one, dict) and "url" in one] if isinstance(wanted, list) else []
    return f"; visit first: {', '.join(map(str, urls))}" if urls else ""
