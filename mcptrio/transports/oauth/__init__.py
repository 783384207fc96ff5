"""OAuth 2.1 for the HTTP client: the values of `auth` in `mcptrio.connect(url, auth=…)`.

    async with mcptrio.connect("https://example.org/mcp", auth=OAuth(client_name="My app")) as client: ...

Each object authorizes one client at one server and may be used for any number of connections to it.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from mcptrio._settings import check_value
from mcptrio.auth.client.acquire import Grant
from mcptrio.auth.client.binding import FIRST_SEEN
from mcptrio.auth.client.code_grant import CodeGrant
from mcptrio.auth.client.credentials import Credentials, PrivateKey
from mcptrio.auth.client.errors import AuthorizationFailed
from mcptrio.auth.client.machine_grants import ID_TOKEN, ClientCredentialsGrant, EnterpriseGrant, WorkloadGrant
from mcptrio.auth.client.registration import ClientMetadata, check_metadata_url
from mcptrio.auth.client.storage import FileStorage, KeyringStorage, LockingStorage, MemoryStorage, TokenStorage
from mcptrio.errors import DeclarationError
from mcptrio.transports.oauth.browser import open_page
from mcptrio.transports.oauth.runner import LOOPBACK, SignInSettings, Visitor
from mcptrio.transports.oauth.token_source import TokenSource
from mcptrio.transports.verification import as_verification

if TYPE_CHECKING:
    import httpx2

    from mcptrio.transports.http_client.auth import AuthRequest, AuthResponse

__all__ = [
    "FIRST_SEEN",
    "AuthorizationFailed",
    "AuthorizationSettings",
    "ClientCredentials",
    "EnterpriseManaged",
    "FileStorage",
    "KeyringStorage",
    "LockingStorage",
    "MemoryStorage",
    "OAuth",
    "PrivateKey",
    "TokenStorage",
    "WorkloadIdentity",
]


_KINDS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("client_name", "client_id", "redirect_uri", "idp_client_id", "id_token_type"), str),
    **dict.fromkeys(("client_uri", "client_secret", "issuer", "client_metadata_url"), str | None),
    **dict.fromkeys(("idp_client_secret", "idp_issuer", "idp_token_endpoint"), str | None),
    **dict.fromkeys(("assertion", "id_token"), str | Callable[..., Any]),
    "private_key": PrivateKey | None,
    "client_metadata": Mapping[str, Any] | None,
    "scopes": Iterable[str] | None,
    **dict.fromkeys(("offline_access", "legacy"), bool),
    "visit": Callable[..., Any] | None,
    "open_browser": Callable[..., Any],
    "dpop": bool | None,
    "verify": ssl.SSLContext | bool,
}


def _check(**settings: Any) -> None:
    """Raise `DeclarationError` if a setting is not of its type."""
    for name, value in settings.items():
        check_value(name, value, _KINDS[name])


class AuthorizationSettings(TypedDict, total=False):
    """Settings that every grant has."""

    storage: TokenStorage | None
    """Stores tokens and registrations; default: in memory. With `FileStorage` the user need not sign in again after a
    restart."""
    dpop: bool | None
    """True binds tokens to a key and proves possession with every request (DPoP), False never does; default: if the
    server asks for it."""
    trusted_hosts: Iterable[str]
    """Host names that may resolve to private addresses, for authorization servers in a private network; default: none,
    except loopback for a server on loopback."""
    verify: ssl.SSLContext | str | os.PathLike[str] | bool
    """How certificates are verified: with the system's authorities, with those in a file (PEM) or directory, or with an
    `ssl.SSLContext`."""
    http_client: httpx2.AsyncClient | None
    """The HTTP client for the requests of the flow, for example with a proxy; default: one of its own."""


class Authorization:
    """The common base of the four grants: implements the `HttpAuth` protocol of the HTTP transport."""

    def __init__(
        self,
        grant: Grant,
        *,
        kind: str,
        named: Iterable[str | None],
        sign_in: SignInSettings | None = None,
        storage: TokenStorage | None = None,
        dpop: bool | None = None,
        trusted_hosts: Iterable[str] = (),
        verify: ssl.SSLContext | str | os.PathLike[str] | bool = True,
        http_client: httpx2.AsyncClient | None = None,
    ) -> None:
        verify = as_verification(verify)
        _check(dpop=dpop, verify=verify)
        if isinstance(trusted_hosts, str):
            raise DeclarationError(f"trusted_hosts is a list of names: trusted_hosts=[{trusted_hosts!r:.200}]")
        trusted_hosts = check_value("trusted_hosts", trusted_hosts, tuple[str, ...])
        self._source = TokenSource(
            grant,
            kind,
            storage if storage is not None else MemoryStorage(),
            sign_in or SignInSettings(),
            dpop,
            tuple(url for url in named if url is not None and url != FIRST_SEEN),
            frozenset(host.lower() for host in trusted_hosts),
            verify,
            http_client,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} for {self._source.endpoint or 'no server yet'}>"

    async def authorize(self, request: AuthRequest) -> Mapping[str, str]:
        """Return the headers to add to a request."""
        return await self._source.authorize(request)

    async def on_response(self, response: AuthResponse) -> bool:
        """Sign in if the response asks for it; return whether to repeat the request."""
        return await self._source.on_response(response)


class OAuth(Authorization):
    """Sign-in of a user in a browser (authorization code grant).

    Without `client_id` the client identifies itself by `client_metadata_url`, if the authorization server supports
    that, otherwise by dynamic registration.
    """

    def __init__(
        self,
        *,
        client_name: str = "mcptrio",
        client_uri: str | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        private_key: PrivateKey | None = None,
        issuer: str | None = None,
        client_metadata_url: str | None = None,
        client_metadata: Mapping[str, Any] | None = None,
        scopes: Iterable[str] | None = None,
        offline_access: bool = True,
        redirect_uri: str = LOOPBACK,
        visit: Visitor | None = None,
        open_browser: Callable[[str], Awaitable[bool]] = open_page,
        sign_in_timeout: float = 300.0,
        legacy: bool = True,
        **settings: Unpack[AuthorizationSettings],
    ) -> None:
        """
        Args:
            client_name: The name that the user sees on the consent page.
            client_uri: The home page of the application.
            client_id: The ID of the application at the authorization server, if it is registered there.
            client_secret: The secret of `client_id`, for confidential clients; needs `issuer`.
            private_key: A key to authenticate with instead of a secret; it is never sent.
            issuer: The authorization server of the credentials; `FIRST_SEEN`: the first that the server names.
            client_metadata_url: The https URL of a client metadata document, used as the client ID.
            client_metadata: Further fields of the registration, or the content of that document.
            scopes: Scopes to request in addition to those that the server requires.
            offline_access: Request a refresh token if the authorization server supports the scope `offline_access`.
            redirect_uri: Where the redirect is received by a loopback listener; port 0 selects any free port.
            visit: Replaces browser and listener: it is called with the URL of the page, and returns the URL that it
                redirected to.
            open_browser: Opens the page; returns whether it succeeded.
            sign_in_timeout: Seconds for the user to sign in.
            legacy: Also support servers of 2025-03-26, which publish no protected resource metadata.
            settings: See `AuthorizationSettings`.
        """
        _check(client_name=client_name, client_uri=client_uri, client_secret=client_secret, private_key=private_key)
        _check(issuer=issuer, client_metadata_url=client_metadata_url, client_metadata=client_metadata, scopes=scopes)
        _check(offline_access=offline_access, legacy=legacy, redirect_uri=redirect_uri, visit=visit)
        _check(open_browser=open_browser)
        sign_in_timeout = check_value("sign_in_timeout", sign_in_timeout, float)
        if not sign_in_timeout > 0:
            raise DeclarationError(f"sign_in_timeout must be positive, got {sign_in_timeout!r}")
        own = None
        if client_id is not None:
            _check(client_id=client_id)
            own = Credentials(client_id=client_id, secret=client_secret, key=private_key)
        elif client_secret is not None or private_key is not None:
            raise DeclarationError("client_secret and private_key need a client_id: pass client_id= too")
        if client_secret is not None:
            _need_issuer(issuer)
        named = (client_metadata or {}).get("client_id", client_metadata_url)
        if named != client_metadata_url:  # 2026-07-28 client-registration: MUST match the document's URL exactly
            raise DeclarationError("the client_id in client_metadata must be equal to client_metadata_url")
        if visit is not None and redirect_uri == LOOPBACK:
            redirect_uri = "http://127.0.0.1:8765/callback"  # no listener: `visit` returns the redirect
        super().__init__(
            CodeGrant(
                own=own,
                issuer=issuer,
                metadata_url=None if client_metadata_url is None else check_metadata_url(client_metadata_url),
                metadata=ClientMetadata(client_name=client_name, client_uri=client_uri, extra=client_metadata or {}),
                scopes=_scopes(scopes),
                offline=offline_access,
                legacy=legacy,
            ),
            kind="tokens",
            named=(issuer,),
            sign_in=SignInSettings(
                redirect_uri=redirect_uri, visit=visit, open_browser=open_browser, timeout=sign_in_timeout
            ),
            **settings,
        )


class ClientCredentials(Authorization):
    """Sign-in of the program as itself, with a `client_secret` or a `private_key` (client credentials grant)."""

    def __init__(
        self,
        *,
        client_id: str,
        client_secret: str | None = None,
        private_key: PrivateKey | None = None,
        issuer: str | None = None,
        scopes: Iterable[str] | None = None,
        **settings: Unpack[AuthorizationSettings],
    ) -> None:
        _check(client_id=client_id, client_secret=client_secret, private_key=private_key, issuer=issuer, scopes=scopes)
        if (client_secret is None) == (private_key is None):
            raise DeclarationError("ClientCredentials takes either a client_secret or a private_key")
        if client_secret is not None:
            _need_issuer(issuer)
        own = Credentials(client_id=client_id, secret=client_secret, key=private_key)
        super().__init__(
            ClientCredentialsGrant(own=own, issuer=issuer, scopes=_scopes(scopes)),
            kind="client credentials tokens",
            named=(issuer,),
            **settings,
        )


class WorkloadIdentity(Authorization):
    """Sign-in with a signed JWT of the platform that the program runs on, the `assertion`.

    A function is called with the issuer that the assertion is for, each time one is needed, and may be async. An
    assertion is only sent to the authorization server in its audience, or to `issuer`.
    """

    def __init__(
        self,
        *,
        client_id: str,
        assertion: str | Callable[[str], str | Awaitable[str]],
        issuer: str | None = None,
        scopes: Iterable[str] | None = None,
        **settings: Unpack[AuthorizationSettings],
    ) -> None:
        _check(client_id=client_id, assertion=assertion, issuer=issuer, scopes=scopes)
        super().__init__(
            WorkloadGrant(
                own=Credentials(client_id=client_id), assertion=assertion, issuer=issuer, scopes=_scopes(scopes)
            ),
            kind="workload tokens",
            named=(issuer,),
            **settings,
        )


class EnterpriseManaged(Authorization):
    """Sign-in through the company's identity provider, which exchanges the `id_token` for a grant to this server.

    `client_id` and `client_secret` are those at the server's authorization server, `idp_client_id` and
    `idp_client_secret` those at the identity provider, which is found by `idp_issuer` or at `idp_token_endpoint`.
    A function in place of `id_token` is called each time one is needed, and may be async.
    """

    def __init__(
        self,
        *,
        client_id: str,
        client_secret: str | None = None,
        private_key: PrivateKey | None = None,
        idp_client_id: str,
        idp_client_secret: str | None = None,
        idp_issuer: str | None = None,
        idp_token_endpoint: str | None = None,
        id_token: str | Callable[[], str | Awaitable[str]],
        id_token_type: str = ID_TOKEN,
        issuer: str | None = None,
        scopes: Iterable[str] | None = None,
        **settings: Unpack[AuthorizationSettings],
    ) -> None:
        _check(client_id=client_id, client_secret=client_secret, private_key=private_key, issuer=issuer, scopes=scopes)
        _check(idp_client_id=idp_client_id, idp_client_secret=idp_client_secret, idp_issuer=idp_issuer)
        _check(idp_token_endpoint=idp_token_endpoint, id_token=id_token, id_token_type=id_token_type)
        if idp_issuer is None and idp_token_endpoint is None:
            raise DeclarationError("EnterpriseManaged needs idp_issuer or idp_token_endpoint")
        super().__init__(
            EnterpriseGrant(
                own=Credentials(client_id=client_id, secret=client_secret, key=private_key),
                idp=Credentials(client_id=idp_client_id, secret=idp_client_secret),
                idp_issuer=idp_issuer,
                idp_token_endpoint=idp_token_endpoint,
                subject_token=id_token,
                subject_token_type=id_token_type,
                issuer=issuer,
                scopes=_scopes(scopes),
            ),
            kind="enterprise tokens",
            named=(issuer, idp_issuer, idp_token_endpoint),
            **settings,
        )


def _scopes(scopes: Iterable[str] | None) -> tuple[str, ...] | None:
    if isinstance(scopes, str):
        raise DeclarationError('scopes is a list of names: scopes=["files:read"]')
    return None if scopes is None else tuple(scopes)


def _need_issuer(issuer: str | None) -> None:
    if issuer is None:
        raise DeclarationError(
            "a client_secret needs its issuer: pass issuer='https://…', the authorization server that issued it, "
            "or issuer=FIRST_SEEN to trust the first one that the server names"
        )
