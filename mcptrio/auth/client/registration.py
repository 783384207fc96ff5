"""Client registration at an authorization server (2026-07-28 client-registration): four ways, tried in this order.

Configured credentials; a client ID that is the URL of a metadata document; an earlier registration from the storage;
dynamic registration. Stored registrations belong to one issuer and are never sent to another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from attrs import frozen

from mcptrio.auth.client.credentials import SECRET_METHODS, Credentials, restore_credentials
from mcptrio.auth.client.errors import AuthorizationFailed, refusal
from mcptrio.auth.client.metadata import ServerMetadata
from mcptrio.auth.client.steps import Fetch, Flow, Listen, Lock, Save, Unlock, fetch, load
from mcptrio.auth.ssrf import UrlRefused, is_loopback_url, split_origin
from mcptrio.errors import DeclarationError


@frozen(kw_only=True)
class ClientMetadata:
    """The description of a client in its registration (RFC 7591 section 2)."""

    client_name: str
    client_uri: str | None = None
    extra: Mapping[str, Any] = {}


@frozen(kw_only=True)
class ClientIdentity:
    """The identity of the client at one authorization server: credentials and their redirect URI."""

    credentials: Credentials
    redirect_uri: str
    registered: bool = False
    """From dynamic registration, so registering again is possible."""


def check_metadata_url(url: str) -> str:
    """Check a client ID that is a URL: https, with a path, in normal form.

    Raises:
        DeclarationError: it is not such a URL.
    """
    try:
        scheme, _, _ = split_origin(url)
    except UrlRefused as error:
        raise DeclarationError(f"client_metadata_url: {error}") from None
    parts = urlsplit(url)
    if scheme != "https" or parts.path in ("", "/") or parts.fragment or {".", ".."} & set(parts.path.split("/")):
        raise DeclarationError("client_metadata_url has to be https, with a path and without dot segments or fragment")
    return url


def registration_key(issuer: str) -> str:
    return f"client of {issuer}"


def identify_client(
    server: ServerMetadata,
    *,
    own: Credentials | None,
    metadata_url: str | None,
    metadata: ClientMetadata,
    scopes: tuple[str, ...],
    again: bool = False,
) -> Flow[ClientIdentity]:
    """Find the identity of the client at an authorization server. `again` ignores an earlier registration.

    Raises:
        AuthorizationFailed: the server supports none of the ways.
    """
    if own is not None:
        redirect_uri = yield Listen()
        return ClientIdentity(credentials=own, redirect_uri=redirect_uri)
    if metadata_url is not None and server.client_id_metadata_documents:
        redirect_uri = yield Listen()
        return ClientIdentity(credentials=Credentials(client_id=metadata_url), redirect_uri=redirect_uri)
    key = registration_key(server.issuer)
    yield Lock(key=key)  # one registration per issuer at a time: clients of several servers may share it
    kept = None if again else _restore((yield from load(key)))
    redirect_uri = yield Listen(preferred=kept.redirect_uri if kept else None)
    if kept is None or kept.redirect_uri != redirect_uri:
        kept = yield from _register(server, redirect_uri, metadata, scopes)
        yield Save(key=key, record={**kept.credentials.record(), "redirect_uri": redirect_uri})
    yield Unlock(key=key)
    return kept


def _register(
    server: ServerMetadata, redirect_uri: str, metadata: ClientMetadata, scopes: tuple[str, ...]
) -> Flow[ClientIdentity]:
    if server.registration_endpoint is None:
        raise AuthorizationFailed(
            "the authorization server has no dynamic registration: pass client_id= (and client_secret=, issuer=)"
        )
    method = next((one for one in SECRET_METHODS if one in server.auth_methods), None)
    if method is None:
        raise AuthorizationFailed(f"the authorization server offers none of {', '.join(SECRET_METHODS)}")
    wish: dict[str, Any] = {
        "client_name": metadata.client_name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        # the default is "web", for which servers may refuse loopback redirects
        "application_type": "native" if is_loopback_url(redirect_uri) else "web",
        **({"client_uri": metadata.client_uri} if metadata.client_uri else {}),
        **({"scope": " ".join(scopes)} if scopes else {}),
        **metadata.extra,
    }
    step = Fetch(what="the registration", method="POST", url=server.registration_endpoint, json=wish)
    reply = yield from fetch(step)
    document = reply.document()
    if reply.status not in (200, 201) or document is None:
        if server.assumed:
            raise AuthorizationFailed(
                "the server requires a token and names no authorization server that issues one",
                error="no_authorization_server",
            )
        raise refusal("the registration", document)
    client_id, secret = document.get("client_id"), document.get("client_secret")
    if not isinstance(client_id, str) or not client_id:
        raise AuthorizationFailed("the registration response has no client_id")
    given = document.get("token_endpoint_auth_method")
    secret = secret if isinstance(secret, str) and secret else None
    if given not in SECRET_METHODS:
        given = method if secret or method == "none" else "none"
    if given != "none" and secret is None:
        raise AuthorizationFailed(f"the registration response selects {given} but has no client_secret")
    credentials = Credentials(client_id=client_id, secret=secret, method=str(given))
    return ClientIdentity(credentials=credentials, redirect_uri=redirect_uri, registered=True)


def _restore(record: Mapping[str, Any] | None) -> ClientIdentity | None:
    credentials = restore_credentials(record)
    redirect_uri = None if record is None else record.get("redirect_uri")
    if credentials is None or not isinstance(redirect_uri, str):
        return None
    return ClientIdentity(credentials=credentials, redirect_uri=redirect_uri, registered=True)
