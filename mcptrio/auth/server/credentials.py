"""The credentials of a request: a token in a single `Authorization` header, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal
from urllib.parse import parse_qsl

from attrs import field, frozen

from mcptrio.auth.server.errors import CredentialsRefused

_TOKEN: Final = re.compile(rb"[A-Za-z0-9\-._~+/]++=*+")  # RFC 6750 section 2.1


@frozen(kw_only=True)
class Presented:
    """The credentials that a request presents."""

    scheme: Literal["bearer", "dpop"]
    token: str = field(repr=False)
    proofs: tuple[str, ...] = field(default=(), repr=False)
    """The `DPoP` headers."""
    method: str = "POST"
    path: str = "/mcp"
    certificate: bytes | None = field(default=None, repr=False)
    """The client's TLS certificate (DER), if the listener requested one."""


def read_credentials(
    headers: Sequence[tuple[bytes, bytes]],
    query: bytes,
    *,
    method: str,
    path: str,
    max_token: int,
    certificate: bytes | None = None,
) -> Presented:
    """Read the token of a request.

    Raises:
        CredentialsRefused: there is none, or it is malformed or in the wrong place.
    """
    if query and _has_token(query):
        # basic/authorization: tokens MUST NOT be in the query, where logs would record them
        raise CredentialsRefused("tokens belong into the Authorization header", error="invalid_request")
    found = [value for name, value in headers if name == b"authorization"]
    if not found:
        raise CredentialsRefused("a token is needed", error=None)
    if len(found) > 1:
        raise CredentialsRefused("Authorization was sent twice", error="invalid_request", status=400)
    scheme, _, rest = found[0].strip(b" \t").partition(b" ")
    name = scheme.lower()
    token = rest.strip(b" ")
    if name == b"bearer":
        kind: Literal["bearer", "dpop"] = "bearer"
    elif name == b"dpop":
        kind = "dpop"
    else:
        raise CredentialsRefused("a Bearer token is needed", error=None)
    if not token:
        raise CredentialsRefused("a token is needed", error=None)
    if len(token) > max_token:
        raise CredentialsRefused("the token is too long", detail=f"{len(token)} bytes; the maximum is {max_token}")
    if not _TOKEN.fullmatch(token):
        raise CredentialsRefused("the token is malformed")
    proofs = tuple(value.decode("latin-1") for name, value in headers if name == b"dpop")
    return Presented(
        scheme=kind, token=token.decode("ascii"), proofs=proofs, method=method, path=path, certificate=certificate
    )


def _has_token(query: bytes) -> bool:
    if len(query) > 64 * 1024:
        return True  # too long for a genuine request; not parsed
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=None)
    return any(name.lower() == "access_token" for name, _ in pairs)
