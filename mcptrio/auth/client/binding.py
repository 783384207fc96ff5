"""Discovery for a client with credentials of its own: they are sent only to the authorization server they belong to."""

from __future__ import annotations

from typing import Final

from mcptrio.auth.client.credentials import Credentials
from mcptrio.auth.client.discovery import Discovered, discover
from mcptrio.auth.client.errors import AuthorizationFailed
from mcptrio.auth.client.metadata import ServerMetadata
from mcptrio.auth.client.steps import Flow, Save, load
from mcptrio.auth.client.token_request import Need
from mcptrio.auth.identifiers import same_identifier

FIRST_SEEN: Final = "first-seen"
"""In place of an issuer: the first authorization server that the server names, and from then on only that one."""


def find_endpoint(need: Need, own: Credentials | None, issuer: str | None, *, legacy: bool) -> Flow[Discovered]:
    """Return the authorization server of the current tokens, to renew them.

    It was stored with the tokens. If the server refused them it is discovered again, because it may have changed.

    Raises:
        AuthorizationFailed: the server now names another authorization server than that of the credentials.
    """
    tokens, any_issuer = need.tokens, issuer is None or issuer == FIRST_SEEN
    if need.refused or tokens is None or tokens.token_endpoint is None:
        discovered = yield from discover_bound(need, own, issuer, legacy=legacy)
        return discovered
    if not any_issuer and not same_identifier(issuer, tokens.issuer):
        raise AuthorizationFailed("the tokens are of another authorization server than the one that is configured")
    server = ServerMetadata(
        issuer=tokens.issuer, token_endpoint=tokens.token_endpoint, auth_methods=tokens.auth_methods
    )
    return Discovered(resource=tokens.resource, server=server)


def discover_bound(need: Need, own: Credentials | None, issuer: str | None, *, legacy: bool) -> Flow[Discovered]:
    """Discover the authorization server, and check that the credentials `own` belong to it.

    Raises:
        AuthorizationFailed: the server now names another authorization server.
    """
    if own is None or (issuer is not None and issuer != FIRST_SEEN):
        discovered = yield from discover(need.endpoint, need.challenge, issuer=issuer, legacy=legacy)
        return discovered
    key = f"issuer of {own.client_id} at {need.endpoint}"
    record = yield from load(key)
    seen = (record or {}).get("issuer")
    discovered = yield from discover(need.endpoint, need.challenge, issuer=seen, legacy=legacy)
    if discovered.server.assumed and own.secret is not None:
        # no metadata was published: a secret must not be sent to a guessed URL
        raise AuthorizationFailed("the server names no authorization server, so the client secret is not sent")
    if seen is None:
        yield Save(key=key, record={"issuer": discovered.server.issuer})
    return discovered
