"""Discovery for a client that already has credentials: they belong to one authorization server, and go to no other."""

from __future__ import annotations

from typing import Final

from mcptrio.auth.client.credentials import Credentials
from mcptrio.auth.client.discovery import Discovered, discover
from mcptrio.auth.client.errors import AuthorizationFailed
from mcptrio.auth.client.steps import Flow, Save, load
from mcptrio.auth.client.token_request import Need

FIRST_SEEN: Final = "first-seen"
"""In place of an issuer: the first authorization server that the server names, and from then on only that one."""


def discover_bound(need: Need, own: Credentials | None, issuer: str | None, *, legacy: bool) -> Flow[Discovered]:
    """Who gives tokens, where `own` may be shown to that authorization server.

    Raises:
        AuthorizationFailed: the server now names another one than the credentials belong to.
    """
    if own is None or (issuer is not None and issuer != FIRST_SEEN):
        discovered = yield from discover(need.endpoint, need.challenge, issuer=issuer, legacy=legacy)
        return discovered
    key = f"issuer of {own.client_id} at {need.endpoint}"
    record = yield from load(key)
    seen = (record or {}).get("issuer")
    discovered = yield from discover(need.endpoint, need.challenge, issuer=seen, legacy=legacy)
    if discovered.server.assumed and own.secret is not None:
        # nobody published anything: a secret is not for guessed addresses
        raise AuthorizationFailed("the server names no authorization server, so the client secret is not sent")
    if seen is None:
        yield Save(key=key, record={"issuer": discovered.server.issuer})
    return discovered
