"""Signing in to servers that want to know who calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mcptrio import connect
from mcptrio.auth import (
    AuthorizationFailed,
    ClientCredentials,
    EnterpriseManaged,
    FileStorage,
    OAuth,
    PrivateKey,
    WorkloadIdentity,
)


async def sign_in(url: str, folder: Path, **settings: Any) -> list[str]:
    """A browser opens the first time; later the tokens in the folder are used, and renewed."""
    auth = OAuth(client_name="My app", scopes=["files:read"], storage=FileStorage(folder), **settings)
    try:
        async with connect(url, auth=auth) as client:
            return [tool.name for tool in await client.list_tools()]
    except AuthorizationFailed as error:
        return [f"not signed in: {error}"]


def as_a_program(secret: str) -> ClientCredentials:
    """Sign in without a user: the program has its own secret."""
    return ClientCredentials(client_id="nightly", client_secret=secret, issuer="https://login.example.org")


def with_a_key(pem: str) -> ClientCredentials:
    """Authenticate with a key, which never leaves the program."""
    key = PrivateKey(pem=pem, algorithm="ES256", key_id="2026")
    return ClientCredentials(client_id="nightly", private_key=key)


def as_a_workload(token_file: Path) -> WorkloadIdentity:
    """The platform vouches for what runs on it, with a token that it writes into a file."""
    return WorkloadIdentity(client_id="nightly", assertion=lambda issuer: token_file.read_text())


def as_an_employee(id_token: str, secret: str) -> EnterpriseManaged:
    """The company's identity provider decides which servers its people may use."""
    return EnterpriseManaged(
        client_id="app",
        client_secret=secret,
        issuer="https://login.example.org",
        idp_client_id="app-at-idp",
        idp_issuer="https://idp.example.com",
        id_token=id_token,
    )
