"""The authorization code grant (OAuth 2.1): the user consents in a browser, and the client exchanges the code."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from attrs import frozen

from mcptrio.auth.client.binding import discover_bound, find_endpoint
from mcptrio.auth.client.credentials import Credentials
from mcptrio.auth.client.discovery import Discovered
from mcptrio.auth.client.errors import AuthorizationFailed, refusal
from mcptrio.auth.client.metadata import ServerMetadata
from mcptrio.auth.client.registration import ClientIdentity, ClientMetadata, identify_client
from mcptrio.auth.client.scopes import OFFLINE, select
from mcptrio.auth.client.steps import Flow, Visit
from mcptrio.auth.client.token_request import Need, bound_key, obtain_tokens
from mcptrio.auth.client.tokens import Tokens
from mcptrio.auth.identifiers import same_identifier
from mcptrio.auth.ssrf import UrlRefused, is_loopback_url, split_origin

_FORGOTTEN: Final = ("invalid_client", "unauthorized_client")


@frozen(kw_only=True)
class CodeGrant:
    """The sign-in of a user."""

    own: Credentials | None = None
    issuer: str | None = None
    """The authorization server that `own` belongs to; `FIRST_SEEN`: the first one that the server named."""
    metadata_url: str | None = None
    metadata: ClientMetadata
    scopes: tuple[str, ...] | None = None
    offline: bool = True
    legacy: bool = True

    def obtain(self, need: Need) -> Flow[Tokens]:
        """Obtain new tokens from the user."""
        discovered = yield from discover_bound(need, self.own, self.issuer, legacy=self.legacy)
        server = discovered.server
        check_code_grant(server)
        scopes = select(
            challenged=need.challenged,
            configured=self.scopes,
            supported=discovered.scopes_supported,
            before=need.before,
            offline=self.offline and OFFLINE in (server.scopes_supported or ()),
        )
        for again in (False, True):
            known = yield from identify_client(
                server, own=self.own, metadata_url=self.metadata_url, metadata=self.metadata, scopes=scopes, again=again
            )
            try:
                tokens = yield from _authorize(need, discovered, known, scopes)
            except AuthorizationFailed as error:
                if again or not known.registered or error.error not in _FORGOTTEN:
                    raise
            else:
                return tokens
        raise AssertionError("the second round returns or raises")

    def renew(self, need: Need) -> Flow[Tokens | None]:
        """Refresh the tokens without the user; None if there is no refresh token that may be sent.

        Raises:
            AuthorizationFailed: the refresh was refused, or failed (`FetchFailed`).
        """
        tokens = need.tokens
        if tokens is None or tokens.refresh_token is None:
            return None
        credentials = self.own or tokens.registration or Credentials(client_id=tokens.client_id)
        if credentials.client_id != tokens.client_id:
            return None
        discovered = yield from find_endpoint(need, self.own, self.issuer, legacy=self.legacy)
        if not same_identifier(tokens.issuer, discovered.server.issuer):
            return None  # the authorization server has changed: do not send it the token of another
        if not same_identifier(tokens.resource, discovered.resource):
            return None
        renewed = yield from obtain_tokens(
            need,
            discovered,
            credentials,
            {"grant_type": "refresh_token", "refresh_token": tokens.refresh_token},
            scopes=tokens.requested,
            key=tokens.dpop_key,
            previous=tokens,
            registration=tokens.registration,
        )
        return renewed


def check_code_grant(server: ServerMetadata) -> None:
    """Check that an authorization server protects the code.

    Raises:
        AuthorizationFailed: it has no authorization endpoint, or does not announce PKCE with S256.
    """
    if server.authorization_endpoint is None:
        raise AuthorizationFailed("the authorization server has no authorization endpoint")
    if "S256" not in server.code_challenge_methods:  # 2026-07-28 security-considerations: refuse to proceed
        raise AuthorizationFailed("the authorization server does not announce PKCE with S256")
    check_page(server.authorization_endpoint)


def check_page(url: str) -> None:
    """Check that a URL is safe to open in a browser: https, or http on this machine.

    Raises:
        AuthorizationFailed: it is something else, such as `javascript:` or a command line option.
    """
    try:
        scheme, _, _ = split_origin(url)
    except UrlRefused as error:
        raise AuthorizationFailed(f"the authorization page is not one to open: {error}") from None
    if scheme != "https" and not is_loopback_url(url):
        raise AuthorizationFailed("the authorization page is neither https nor on this machine")


def challenge_of(verifier: str) -> str:
    """Compute the S256 code challenge of a verifier (RFC 7636 section 4.2)."""
    return urlsafe_b64encode(hashlib.sha256(verifier.encode("ascii")).digest()).rstrip(b"=").decode()


def page_url(endpoint: str, parameters: Mapping[str, str]) -> str:
    """Add parameters to the URL of the authorization endpoint; they replace equal names in its query."""
    parts = urlsplit(endpoint)
    kept = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in parameters]
    return urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode([*kept, *parameters.items()]), ""))


def _authorize(need: Need, discovered: Discovered, known: ClientIdentity, scopes: tuple[str, ...]) -> Flow[Tokens]:
    server, client_id = discovered.server, known.credentials.client_id
    assert server.authorization_endpoint is not None  # checked by `check_code_grant`
    verifier, state = need.inputs.secret(), need.inputs.secret()
    parameters = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": known.redirect_uri,
        "state": state,
        "code_challenge": challenge_of(verifier),
        "code_challenge_method": "S256",
        "resource": discovered.resource,
        **({"scope": " ".join(scopes)} if scopes else {}),
        # OpenID Connect Core section 11: without it offline_access may be ignored
        **({"prompt": "consent"} if OFFLINE in scopes else {}),
    }
    key = bound_key(need, discovered)
    answer = yield Visit(url=page_url(server.authorization_endpoint, parameters), state=state)
    code = read_redirect(answer, state=state, server=server)
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": known.redirect_uri,
        "code_verifier": verifier,
    }
    registration = known.credentials if known.registered else None
    tokens = yield from obtain_tokens(
        need, discovered, known.credentials, form, scopes=scopes, key=key, registration=registration
    )
    return tokens


def read_redirect(answer: Mapping[str, str], *, state: str, server: ServerMetadata) -> str:
    """Read the code from a redirect, after checking that it belongs to this request and this server.

    Raises:
        AuthorizationFailed: it does not belong to them, or the user declined. The text quotes nothing from a redirect
            that is not authentic.
    """
    if answer.get("state") != state:
        raise AuthorizationFailed("the redirect does not belong to this sign-in: another state")
    issuer = answer.get("iss")
    # 2026-07-28 authorization: compared as strings, a trailing slash included, and before `error` is read
    if issuer is None and server.iss_in_response:
        raise AuthorizationFailed("the redirect lacks the issuer that the authorization server always adds")
    if issuer is not None and issuer != server.issuer:
        raise AuthorizationFailed(
            f"the redirect comes from another issuer: {issuer!r:.200}, expected {server.issuer!r:.200}"
        )
    if "error" in answer:
        raise refusal("the authorization", dict(answer))
    code = answer.get("code")
    if not code:
        raise AuthorizationFailed("the redirect has no code")
    return code
