"""OAuth 2.1 for the HTTP client: what is given to `mcptrio.connect(url, auth=…)`.

    async with mcptrio.connect("https://example.org/mcp", auth=OAuth(client_name="My app")) as client: ...

Each object signs in to one server and may be used for any number of connections to it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from mcptrio.auth.client.binding import FIRST_SEEN
from mcptrio.auth.client.code_grant import CodeGrant
from mcptrio.auth.client.credentials import Credentials, PrivateKey
from mcptrio.auth.client.errors import AuthorizationFailed
from mcptrio.auth.client.machine_grants import ID_TOKEN, ClientCredentialsGrant, EnterpriseGrant, WorkloadGrant
from mcptrio.auth.client.registration import About, check_metadata_url
from mcptrio.auth.client.storage import FileStorage, KeyringStorage, MemoryStorage, TokenStorage
from mcptrio.errors import DeclarationError
from mcptrio.transports.oauth.browser import open_page
from mcptrio.transports.oauth.running import LOOPBACK, Desk, Visitor
from mcptrio.transports.oauth.signer import Plan, Signer

if TYPE_CHECKING:
    import ssl

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
    "MemoryStorage",
    "OAuth",
    "PrivateKey",
    "TokenStorage",
    "WorkloadIdentity",
]


class AuthorizationSettings(TypedDict, total=False):
    """What can be said of every way to get tokens."""

    storage: TokenStorage | None
    """What keeps tokens and registrations; without it they live as long as the object. `FileStorage` spares a person
    the next sign-in."""
    dpop: bool | None
    """True binds tokens to a key and proves possession with every request, False never does; without it that is done
    where the server asks for it."""
    trusted_hosts: Iterable[str]
    """Names that may lie in a private network, for authorization servers inside a company; without it none but those
    of this machine, for a server on this machine."""
    verify: ssl.SSLContext | bool
    """How certificates are checked: by the usual authorities unless an `ssl.SSLContext` says otherwise."""
    http_client: httpx2.AsyncClient | None
    """What makes the requests of the flow in place of a client of our own, for instance through a proxy."""


class Authorization:
    """What the four ways to get tokens have in common: the role that the HTTP transport asks for."""

    def __init__(
        self,
        plan: Plan,
        *,
        kind: str,
        named: Iterable[str | None],
        desk: Desk | None = None,
        storage: TokenStorage | None = None,
        dpop: bool | None = None,
        trusted_hosts: Iterable[str] = (),
        verify: ssl.SSLContext | bool = True,
        http_client: httpx2.AsyncClient | None = None,
    ) -> None:
        self._signer = Signer(
            plan,
            kind,
            storage if storage is not None else MemoryStorage(),
            desk or Desk(),
            dpop,
            tuple(url for url in named if url is not None and url != FIRST_SEEN),
            frozenset(host.lower() for host in trusted_hosts),
            verify,
            http_client,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} for {self._signer.endpoint or 'no server yet'}>"

    async def authorize(self, request: AuthRequest) -> Mapping[str, str]:
        """The headers to add to a request."""
        return await self._signer.authorize(request)

    async def on_response(self, response: AuthResponse) -> bool:
        """Sign in if the answer asks for that; says whether the request is worth repeating."""
        return await self._signer.on_response(response)


class OAuth(Authorization):
    """A person signs in, in a browser.

    Without `client_id` the client makes itself known: by `client_metadata_url`, where the authorization server takes
    that, otherwise by registering.
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
            client_name: What the person reads on the page that asks them.
            client_uri: Where they learn more about the application.
            client_id: Under which name the authorization server knows the application, if it does.
            client_secret: What belongs to `client_id`, for applications that can keep a secret; needs `issuer`.
            private_key: The same as a key, which never leaves the program.
            issuer: The one authorization server that gets these; `FIRST_SEEN` takes the first that the server names.
            client_metadata_url: The https address of a document about the application, in place of `client_id`.
            client_metadata: Further fields of the registration, or what that document says.
            scopes: Asked for beside those that the server wants.
            offline_access: Ask for a refresh token where the authorization server has a scope for it.
            redirect_uri: Where the answer comes back to, and a listener waits; port 0 takes any.
            visit: Replaces browser and listener: it is called with the page's URL, and returns the URL that it
                redirected to.
            open_browser: Opens the page; it says whether it could.
            sign_in_timeout: Seconds that the person may take.
            legacy: Also sign in to servers of 2025-03-26, which have no metadata of their own.
            settings: See `AuthorizationSettings`.
        """
        own = None
        if client_id is not None:
            own = Credentials(client_id=client_id, secret=client_secret, key=private_key)
        elif client_secret is not None or private_key is not None:
            raise DeclarationError("client_secret and private_key belong to a client_id: give that too")
        if client_secret is not None:
            _need_issuer(issuer)
        named = (client_metadata or {}).get("client_id", client_metadata_url)
        if named != client_metadata_url:  # 2026-07-28 client-registration: MUST match the document's URL exactly
            raise DeclarationError("client_metadata names another client_id than client_metadata_url")
        if visit is not None and redirect_uri == LOOPBACK:
            redirect_uri = "http://127.0.0.1:8765/callback"  # nobody listens there: the visitor sees the redirect
        super().__init__(
            CodeGrant(
                own=own,
                issuer=issuer,
                metadata_url=None if client_metadata_url is None else check_metadata_url(client_metadata_url),
                about=About(client_name=client_name, client_uri=client_uri, extra=client_metadata or {}),
                scopes=_scopes(scopes),
                offline=offline_access,
                legacy=legacy,
            ),
            kind="tokens",
            named=(issuer,),
            desk=Desk(redirect_uri=redirect_uri, visit=visit, open_browser=open_browser, patience=sign_in_timeout),
            **settings,
        )


class ClientCredentials(Authorization):
    """The program signs in as itself, with a `client_secret` or a `private_key`; no person is needed."""

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
    """The platform that the program runs on vouches for it: `assertion` is its signed JWT.

    A function is called with the issuer that the assertion is for, each time one is needed, and may be async. An
    assertion only goes to the authorization server that it names as its audience, or to `issuer`.
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
        super().__init__(
            WorkloadGrant(
                own=Credentials(client_id=client_id), assertion=assertion, issuer=issuer, scopes=_scopes(scopes)
            ),
            kind="workload tokens",
            named=(issuer,),
            **settings,
        )


class EnterpriseManaged(Authorization):
    """The company's identity provider decides: the user's `id_token` is exchanged there for a grant to this server.

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
            "say whom the client_secret belongs to: issuer='https://…', the authorization server that gave it; "
            "or issuer=FIRST_SEEN to trust the first one that the server names"
        )
