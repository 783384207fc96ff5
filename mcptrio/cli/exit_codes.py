"""Exit codes of the client commands, and the error line that goes with each."""

from __future__ import annotations

from typing import Any, Final

from mcptrio.errors import (
    MISSING_CLIENT_CAPABILITY,
    URL_ELICITATION_REQUIRED,
    CapabilityMissing,
    ConnectionLost,
    DeclarationError,
    MCPError,
    MCPTrioError,
    Overloaded,
    RemoteProtocolError,
    RequestTimeout,
)

OK: Final = 0
TOOL_FAILED: Final = 1  # the result says `isError`
REFUSED: Final = 2  # the server answered with an error, or broke the protocol
UNREACHABLE: Final = 3  # not running, died, or timed out
UNAUTHORIZED: Final = 4
USAGE: Final = 64  # EX_USAGE
NO_OUTPUT: Final = 74  # EX_IOERR: the output could not be written
INTERRUPTED: Final = 130


_OPTIONS: Final = {
    "roots": "declare a directory with --root DIR",
    "sampling": "answer sampling requests with --sample TEXT",
}
"""The options that declare a capability of the client."""


class Failure(Exception):
    """The end of a command: an exit code and one line of text."""

    def __init__(self, code: int, line: str) -> None:
        super().__init__(line)
        self.code = code


class UsageError(Failure):
    """An invalid command line."""

    def __init__(self, line: str) -> None:
        super().__init__(USAGE, line)


class OutputError(Failure):
    """Stdout cannot be written."""

    def __init__(self, line: str) -> None:
        super().__init__(NO_OUTPUT, line)


def explain(error: Exception) -> Failure:
    """Map an exception of the client to an exit code and a line."""
    from mcptrio.auth.client.errors import AuthorizationFailed

    lines = [" ".join(line.split()) for line in str(error).splitlines()]
    text = "; ".join(filter(None, lines)) or type(error).__name__
    match error:
        case Failure():
            return error
        case AuthorizationFailed(error="no_authorization_server"):
            return Failure(UNAUTHORIZED, "this server needs a token: --token or MCPTRIO_TOKEN")
        case AuthorizationFailed():
            return Failure(UNAUTHORIZED, f"sign-in failed: {text}")
        case RemoteProtocolError() | MCPError() if (status := _http_status(error)) in (401, 403):
            needed = "give a valid token" if status == 401 else "give a token that allows it"
            return Failure(UNAUTHORIZED, f"{text} ({needed} with --token or MCPTRIO_TOKEN, or use --auth oauth)")
        case CapabilityMissing(required={**wanted}) if wanted:
            return Failure(REFUSED, f"the server does not support {' and '.join(wanted)}")
        case MCPError():
            return Failure(REFUSED, text + _pages_to_visit(error) + _option_to_give(error))
        case ConnectionLost() if said := text.partition("; it said last: mcptrio: ")[2]:
            return Failure(UNREACHABLE, said)  # `mcptrio run` could not load the file, and has said why
        case ConnectionLost() | RequestTimeout() | Overloaded():
            return Failure(UNREACHABLE, text)
        case DeclarationError():
            return UsageError(text)
        case MCPTrioError():
            return Failure(REFUSED, text)
    raise error


def _http_status(error: Exception) -> int | None:
    """Return the HTTP status of a refusal, which may be plain HTTP or the JSON-RPC error of an `HttpMCPError`."""
    found: int | None = getattr(error, "status", None) or getattr(error, "http_status", None)
    return found


def as_json(error: Exception, end: Failure) -> dict[str, Any]:
    """Return the error as an object for `--json`."""
    found: dict[str, Any] = {"message": str(end)}
    if isinstance(error, MCPError):
        found = {"code": error.code, "message": error.message}
        if error.data is not None:
            found["data"] = error.data
    return {"error": found}


def _pages_to_visit(error: MCPError) -> str:
    # 2025-11-25 client/elicitation, URL Elicitation Required Error
    if error.code != URL_ELICITATION_REQUIRED or not isinstance(error.data, dict):
        return ""
    wanted = error.data.get("elicitations")
    urls = [one["url"] for one in wanted if isinstance(one, dict) and "url" in one] if isinstance(wanted, list) else []
    return f"; open these pages first: {', '.join(map(str, urls))}" if urls else ""


def _option_to_give(error: MCPError) -> str:
    """Name the option that declares the capability which the server needs."""
    if error.code != MISSING_CLIENT_CAPABILITY or not isinstance(error.data, dict):
        return ""
    wanted = error.data.get("requiredCapabilities")
    names = wanted if isinstance(wanted, dict) else {}
    return "".join(f" ({advice})" for name, advice in _OPTIONS.items() if name in names)
