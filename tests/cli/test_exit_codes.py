"""Which exception means which exit code."""

from __future__ import annotations

import pytest

from mcptrio.auth.client.errors import AuthorizationFailed, FetchFailed
from mcptrio.cli.exit_codes import Failure, UsageError, as_json, explain
from mcptrio.errors import (
    CapabilityMissing,
    ConnectionLost,
    DeclarationError,
    LocalProtocolError,
    MCPError,
    Overloaded,
    RemoteProtocolError,
    RequestTimeout,
)
from mcptrio.transports.client import NotDelivered
from mcptrio.transports.http_client.http import HttpMCPError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (MCPError(-32602, "no"), 2),
        (RemoteProtocolError("garbage"), 2),
        (RemoteProtocolError("HTTP 404", http_status=404), 2),
        (LocalProtocolError("no"), 2),
        (CapabilityMissing("no"), 2),
        (ConnectionLost("gone"), 3),
        (NotDelivered("no listener"), 3),
        (RequestTimeout("slow"), 3),
        (Overloaded("busy"), 3),
        (RemoteProtocolError("HTTP 401", http_status=401), 4),
        (RemoteProtocolError("HTTP 403", http_status=403), 4),
        (HttpMCPError(-32600, "a token is needed", None, status=401), 4),
        (HttpMCPError(-32600, "more is needed", None, status=403), 4),
        (HttpMCPError(-32600, "nothing is served here", None, status=404), 2),
        (AuthorizationFailed("no"), 4),
        (FetchFailed("no"), 4),
        (DeclarationError("wrong"), 64),
        (UsageError("wrong"), 64),
        (Failure(74, "full"), 74),
    ],
)
def test_every_exception_has_its_code(error: Exception, code: int) -> None:
    assert explain(error).code == code


def test_a_missing_feature_of_a_server_is_explained() -> None:
    missing = CapabilityMissing("resources/read needs {}", required={"resources": {}})
    assert str(explain(missing)) == "the server does not support resources"


def test_a_token_without_the_scope_is_not_answered_with_give_a_token() -> None:
    lacking = explain(HttpMCPError(-32600, "insufficient scope; required: items:report", None, status=403))
    assert "(give a token that allows it with --token" in str(lacking)
    assert "(give a valid token with --token" in str(explain(HttpMCPError(-32600, "no token", None, status=401)))


def test_an_error_text_is_joined_to_one_line() -> None:
    assert str(explain(MCPError(5, "first\n  second"))) == "first; second (5)"


def test_a_file_that_cannot_be_loaded_is_reported_in_the_words_of_mcptrio_run() -> None:
    lost = ConnectionLost("server/discover: the server exited with code 2; it said last: mcptrio: a.py:2: SyntaxError")
    assert (str(explain(lost)), explain(lost).code) == ("a.py:2: SyntaxError", 3)
    other = "server/discover: the server exited with code 2; it said last: not today"
    assert str(explain(ConnectionLost(other))) == other


def test_the_option_for_a_missing_capability_is_named() -> None:
    data = {"requiredCapabilities": {"roots": {}}}
    assert str(explain(MCPError(-32021, "no roots", data))) == "no roots (-32021) (declare a directory with --root DIR)"
    sampling = explain(MCPError(-32021, "no", {"requiredCapabilities": {"sampling": {}}}))
    assert str(sampling) == "no (-32021) (answer sampling requests with --sample TEXT)"
    assert str(explain(MCPError(-32021, "no", {"requiredCapabilities": {"other": {}}}))) == "no (-32021)"


def test_a_mistake_of_ours_is_not_hidden() -> None:
    with pytest.raises(KeyError):
        explain(KeyError("x"))


def test_pages_that_have_to_be_visited_first_are_named() -> None:
    data = {"elicitations": [{"mode": "url", "url": "https://a/"}, {"url": "https://b/"}, "?"]}
    assert str(explain(MCPError(-32042, "sign in", data))).endswith("; open these pages first: https://a/, https://b/")
    assert str(explain(MCPError(-32042, "sign in", {"elicitations": 7}))) == "sign in (-32042)"


def test_programs_get_code_and_data() -> None:
    error = MCPError(5, "no", {"why": 1})
    assert as_json(error, explain(error)) == {"error": {"code": 5, "message": "no", "data": {"why": 1}}}
    gone = ConnectionLost("gone")
    assert as_json(gone, explain(gone)) == {"error": {"message": "gone"}}
