"""The place of a token in a request: one Authorization header, and nowhere else."""

from __future__ import annotations

import pytest

from mcptrio.auth.server.credentials import Presented, read_credentials
from mcptrio.auth.server.errors import CredentialsRefused


def read(*values: bytes, query: bytes = b"", proofs: tuple[bytes, ...] = ()) -> Presented:
    headers = [(b"host", b"x"), *((b"authorization", v) for v in values), *((b"dpop", p) for p in proofs)]
    return read_credentials(headers, query, method="POST", path="/mcp", max_token=100)


@pytest.mark.parametrize("value", [b"Bearer abc.def-_~+/==", b"bearer   abc.def-_~+/==", b"BEARER abc.def-_~+/== "])
def test_a_bearer_token_is_found(value: bytes) -> None:
    shown = read(value, query=b"session_id=7")
    assert (shown.scheme, shown.token) == ("bearer", "abc.def-_~+/==")
    assert "abc" not in repr(shown)


def test_a_bound_token_comes_with_its_proofs() -> None:
    shown = read(b"DPoP abc", proofs=(b"p1", b"p2"))
    assert (shown.scheme, shown.proofs) == ("dpop", ("p1", "p2"))


@pytest.mark.parametrize(
    ("values", "query", "status", "error"),
    [
        ((), b"", 401, None),
        ((b"Bearer",), b"", 401, None),
        ((b"Bearer    ",), b"", 401, None),
        ((b"Basic YTpi",), b"", 401, None),
        ((b"",), b"", 401, None),
        ((b"Bearer a", b"Bearer a"), b"", 400, "invalid_request"),
        ((b"Bearer a b",), b"", 401, "invalid_token"),
        ((b'Bearer "a"',), b"", 401, "invalid_token"),
        ((b"Bearer \xff",), b"", 401, "invalid_token"),
        ((b"Bearer " + b"a" * 101,), b"", 401, "invalid_token"),
        ((b"Bearer a=b",), b"", 401, "invalid_token"),
        ((), b"access_token=abc", 401, "invalid_request"),
        ((b"Bearer a",), b"x=1&access_token=abc", 401, "invalid_request"),
        ((b"Bearer a",), b"%61ccess_token=abc", 401, "invalid_request"),
        ((b"Bearer a",), b"Access_Token=", 401, "invalid_request"),
    ],
)
def test_anything_else_is_refused(values: tuple[bytes, ...], query: bytes, status: int, error: str | None) -> None:
    with pytest.raises(CredentialsRefused) as caught:
        read(*values, query=query)
    assert (caught.value.status, caught.value.error) == (status, error)
    assert "abc" not in str(caught.value)
