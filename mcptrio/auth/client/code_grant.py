"""The authorization code grant: the person agrees in a browser, we are told a code, and exchange it (OAuth 2.1)."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from attrs import frozen

from mcptrio.auth.client.binding import discover_bound
from mcptrio.auth.client.credentials import Credentials
from mcptrio.auth.client.discovery import Discovered
from mcptrio.auth.client.errors import AuthorizationFailed, refusal
from mcptrio.auth.client.metadata import ServerMetadata
from mcptrio.auth.client.registration import About, Known, become_known, stored_credentials
from mcptrio.auth.client.scopes import OFFLINE, select
from mcptrio.auth.client.steps import Flow, Visit
from mcptrio.auth.client.token_request import Need, bound_key, obtain_tokens
from mcptrio.auth.client.tokens import Tokens
from mcptrio.auth.ssrf import UrlRefused, is_loopback_url, split_origin

_FORGOTTEN: Final = ("invalid_client", "unauthorized_client")


@frozen(kw_only=True)
class CodeGrant:
    """How to sign a person in."""

    own: Credentials | None = None
    issuer: str | None = None
    """The authorization server that `own` belongs to; `FIRST_SEEN`: the first one that the server named."""
    metadata_url: str | None = None
    about: About
    scopes: tuple[str, ...] | None = None
    offline: bool = True
    legacy: bool = True

    def obtain(self, need: Need) -> Flow[Tokens]:
        """New tokens, with the person's help if nothing else will do."""
        discovered = yield from discover_bound(need, self.own, self.issuer, legacy=self.legacy)
        if need.may_refresh and not need.step_up:
            renewed = yield from self._refresh(need, discovered)
            if renewed is not None:
                return renewed
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
            known = yield from become_known(
                server, own=self.own, metadata_url=self.metadata_url, about=self.about, scopes=scopes, again=again
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
        """New tokens without troubling anybody; None if that cannot be had."""
        if need.tokens is None or need.tokens.refresh_token is None:
            return None
        discovered = yield from discover_bound(need, self.own, self.issuer, legacy=self.legacy)
        renewed = yield from self._refresh(need, discovered)
        return renewed

    def _refresh(self, need: Need, discovered: Discovered) -> Flow[Tokens | None]:
        tokens, server = need.tokens, discovered.server
        if tokens is None or tokens.refresh_token is None or tokens.issuer != server.issuer:
            return None  # another authorization server now: the old one's token is none of its business
        if tokens.resource != discovered.resource:
            return None
        credentials: Credentials | None = self.own
        if credentials is None and tokens.client_id == self.metadata_url:
            credentials = Credentials(client_id=tokens.client_id)
        if credentials is None:
            credentials = yield from stored_credentials(server.issuer)
        if credentials is None or credentials.client_id != tokens.client_id:
            return None
        form = {"grant_type": "refresh_token", "refresh_token": tokens.refresh_token}
        try:
            renewed = yield from obtain_tokens(
                need, discovered, credentials, form, scopes=tokens.requested, key=tokens.dpop_key, previous=tokens
            )
        except AuthorizationFailed as error:
            if error.error is None:
                raise  # not a refusal: the network or the server is out of order, which a person cannot help
            return None
        return renewed


def check_code_grant(server: ServerMetadata) -> None:
    """Refuse an authorization server that cannot protect the code.

    Raises:
        AuthorizationFailed: it has no authorization page, or does not say that it checks PKCE with S256.
    """
    if server.authorization_endpoint is None:
        raise AuthorizationFailed("the authorization server has no authorization endpoint")
    if "S256" not in server.code_challenge_methods:  # 2026-07-28 security-considerations: refuse to proceed
        raise AuthorizationFailed("the authorization server does not announce PKCE with S256")
    check_page(server.authorization_endpoint)


def check_page(url: str) -> None:
    """Refuse a URL that is not one to open a browser with: only https, or http on this machine.

    Raises:
        AuthorizationFailed: it is something else, such as `javascript:` or an option of a program.
    """
    try:
        scheme, _, _ = split_origin(url)
    except UrlRefused as error:
        raise AuthorizationFailed(f"the authorization page is not one to open: {error}") from None
    if scheme != "https" and not is_loopback_url(url):
        raise AuthorizationFailed("the authorization page is neither https nor on this machine")


def challenge_of(verifier: str) -> str:
    """The S256 code challenge of a verifier (RFC 7636 section 4.2)."""
    return urlsafe_b64encode(hashlib.sha256(verifier.encode("ascii")).digest()).rstrip(b"=").decode()


def page_url(endpoint: str, parameters: Mapping[str, str]) -> str:
    """The authorization page with our parameters; what its own query holds is kept, except under our names."""
    parts = urlsplit(endpoint)
    kept = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in parameters]
    return urlunsplit((parts.scheme, parts.netloc, parts.path, urlencode([*kept, *parameters.items()]), ""))


def _authorize(need: Need, discovered: Discovered, known: Known, scopes: tuple[str, ...]) -> Flow[Tokens]:
    server, client_id = discovered.server, known.credentials.client_id
    assert server.authorization_endpoint is not None  # checked before anybody was asked
    verifier, state = need.world.secret(), need.world.secret()
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
    tokens = yield from obtain_tokens(need, discovered, known.credentials, form, scopes=scopes, key=key)
    return tokens


def read_redirect(answer: Mapping[str, str], *, state: str, server: ServerMetadata) -> str:
    """The code in a redirect, if the redirect is an answer to our request from the server that we asked.

    Raises:
        AuthorizationFailed: it is not, or the answer is no. What a stranger sent is not repeated.
    """
    if answer.get("state") != state:
        raise AuthorizationFailed("the redirect does not belong to this sign-in: another state")
    issuer = answer.get("iss")
    # RFC 9207 section 2.4, character by character, and before `error` is so much as looked at
    if issuer is None and server.iss_in_response:
        raise AuthorizationFailed("the redirect lacks the issuer that the authorization server always adds")
    if issuer is not None and issuer != server.issuer:
        raise AuthorizationFailed("the redirect comes from another issuer")
    if "error" in answer:
        raise refusal("the authorization", dict(answer))
    code = answer.get("code")
    if not code:
        raise AuthorizationFailed("the redirect has no code")
    return code
