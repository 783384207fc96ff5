"""Grants without a user: client credentials, enterprise-managed authorization, workload identity."""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from attrs import field, frozen

from mcptrio.auth.client.binding import discover_bound, find_endpoint
from mcptrio.auth.client.credentials import Credentials
from mcptrio.auth.client.discovery import Discovered, find_server
from mcptrio.auth.client.errors import AuthorizationFailed
from mcptrio.auth.client.metadata import ServerMetadata
from mcptrio.auth.client.scopes import select
from mcptrio.auth.client.steps import Flow, supply
from mcptrio.auth.client.token_request import Need, bound_key, obtain_tokens, request_token
from mcptrio.auth.client.tokens import Tokens

JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"

Supplier = str | Callable[..., Any]
Form = dict[str, str]


@frozen(kw_only=True)
class MachineGrant(ABC):
    """The common base of grants without a user; they differ in the fields of the token request."""

    own: Credentials
    """The credentials at the authorization server of the MCP server."""
    issuer: str | None = None
    scopes: tuple[str, ...] | None = None

    def obtain(self, need: Need) -> Flow[Tokens]:
        discovered = yield from discover_bound(need, self.own, self.issuer, legacy=False)
        tokens = yield from self._request(need, discovered)
        return tokens

    def renew(self, need: Need) -> Flow[Tokens | None]:
        discovered = yield from find_endpoint(need, self.own, self.issuer, legacy=False)
        tokens = yield from self._request(need, discovered)
        return tokens

    def _request(self, need: Need, discovered: Discovered) -> Flow[Tokens]:
        supported = discovered.scopes_supported
        scopes = select(challenged=need.challenged, configured=self.scopes, supported=supported, before=need.before)
        scope = {"scope": " ".join(scopes)} if scopes else {}
        grant = yield from self.grant(need, discovered, scope)
        tokens = yield from obtain_tokens(
            need, discovered, self.own, {**grant, **scope}, scopes=scopes, key=bound_key(need, discovered)
        )
        return tokens

    @abstractmethod
    def grant(self, need: Need, discovered: Discovered, scope: Mapping[str, str]) -> Flow[Form]:
        """Build the fields of the token request other than the scope."""


@frozen(kw_only=True)
class ClientCredentialsGrant(MachineGrant):
    """The client credentials grant (extension: OAuth client credentials)."""

    def grant(self, need: Need, discovered: Discovered, scope: Mapping[str, str]) -> Flow[Form]:
        yield from ()
        return {"grant_type": "client_credentials"}


@frozen(kw_only=True)
class WorkloadGrant(MachineGrant):
    """A JWT bearer grant with an assertion of the platform (RFC 7523 section 2.1)."""

    assertion: Supplier = field(repr=False)
    """The assertion, or a function that is called with the issuer it is for."""

    def grant(self, need: Need, discovered: Discovered, scope: Mapping[str, str]) -> Flow[Form]:
        statement = yield from supply(self.assertion, discovered.server.issuer)
        if self.issuer is None:
            # any holder of the assertion could use it: send it only to the server in its audience
            check_audience(statement, discovered.server)
        return {"grant_type": JWT_BEARER, "assertion": statement}


@frozen(kw_only=True)
class EnterpriseGrant(MachineGrant):
    """A grant of the company's identity provider (extension: enterprise-managed authorization)."""

    idp: Credentials
    """The credentials at the identity provider."""
    idp_issuer: str | None = None
    idp_token_endpoint: str | None = None
    subject_token: Supplier = field(repr=False)
    """The user's ID token, or a function that returns one."""
    subject_token_type: str = ID_TOKEN

    def grant(self, need: Need, discovered: Discovered, scope: Mapping[str, str]) -> Flow[Form]:
        provider = yield from self._provider()
        subject = yield from supply(self.subject_token)
        exchange = {
            "grant_type": TOKEN_EXCHANGE,
            "requested_token_type": ID_JAG,
            "audience": discovered.server.issuer,
            "resource": discovered.resource,
            "subject_token": subject,
            "subject_token_type": self.subject_token_type,
            **scope,
        }
        document = yield from request_token(need, provider, self.idp, exchange, what="the token exchange")
        grant = document.get("access_token")  # RFC 8693 section 2.2.1: the name of this field for every token type
        if document.get("issued_token_type") != ID_JAG or not isinstance(grant, str):
            raise AuthorizationFailed("the identity provider gave something else than an identity assertion grant")
        return {"grant_type": JWT_BEARER, "assertion": grant}

    def _provider(self) -> Flow[ServerMetadata]:
        if self.idp_token_endpoint is not None:
            methods = ("client_secret_basic", "client_secret_post", "private_key_jwt", "none")
            issuer = self.idp_issuer or self.idp_token_endpoint
            return ServerMetadata(issuer=issuer, token_endpoint=self.idp_token_endpoint, auth_methods=methods)
        if self.idp_issuer is None:
            raise AuthorizationFailed("neither the issuer nor the token endpoint of the identity provider is known")
        provider = yield from find_server(self.idp_issuer)
        return provider


def check_audience(statement: str, server: ServerMetadata) -> None:
    """Check that an assertion names the authorization server as its audience.

    Raises:
        AuthorizationFailed: it names another, or cannot be read.
    """
    try:
        payload = statement.split(".")[1]
        claims = msgspec.json.decode(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        audience = claims["aud"]
    except (IndexError, KeyError, TypeError, ValueError):
        raise AuthorizationFailed("the assertion is no JWT with an audience: name the issuer that it is for") from None
    named = audience if isinstance(audience, list) else [audience]
    allowed = {server.issuer, server.issuer.rstrip("/"), server.issuer.rstrip("/") + "/", server.token_endpoint}
    if not allowed & {one for one in named if isinstance(one, str)}:
        raise AuthorizationFailed("the assertion is meant for another authorization server")
