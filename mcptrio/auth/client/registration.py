"""Becoming known to an authorization server (2026-07-28 client-registration): four ways, tried in this order.

Credentials that the user has; a client id that is the address of a document about us; what we registered there
before; registering now. Whatever is kept is kept under the issuer, and never shown to another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import frozen

from mcptrio.auth.client.credentials import Credentials
from mcptrio.auth.client.errors import AuthorizationFailed, refusal
from mcptrio.auth.client.metadata import ServerMetadata
from mcptrio.auth.client.steps import Fetch, Flow, Listen, Save, fetch, load
from mcptrio.auth.ssrf import UrlRefused, is_loopback_url, split_origin
from mcptrio.errors import DeclarationError

_PREFERRED: Final = ("none", "client_secret_basic", "client_secret_post")


@frozen(kw_only=True)
class About:
    """What a client says about itself when it registers."""

    client_name: str
    client_uri: str | None = None
    extra: Mapping[str, Any] = {}


@frozen(kw_only=True)
class Known:
    """Credentials, and the redirect URI that goes with them."""

    credentials: Credentials
    redirect_uri: str
    registered: bool = False
    """We registered it ourselves, so we may do so again."""


def check_metadata_url(url: str) -> str:
    """A client id that is a URL: https, with a path, nothing that a reader would normalise.

    Raises:
        DeclarationError: it is not like that.
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


def become_known(
    server: ServerMetadata,
    *,
    own: Credentials | None,
    metadata_url: str | None,
    about: About,
    scopes: tuple[str, ...],
    again: bool = False,
) -> Flow[Known]:
    """Who we are at this authorization server. `again`: what was registered before is no longer known there.

    Raises:
        AuthorizationFailed: it takes neither of the ways.
    """
    if own is not None:
        redirect_uri = yield Listen()
        return Known(credentials=own, redirect_uri=redirect_uri)
    if metadata_url is not None and server.client_id_metadata_documents:
        redirect_uri = yield Listen()
        return Known(credentials=Credentials(client_id=metadata_url), redirect_uri=redirect_uri)
    kept = None if again else _restore((yield from load(registration_key(server.issuer))))
    redirect_uri = yield Listen(preferred=kept.redirect_uri if kept else None)
    if kept is not None and kept.redirect_uri == redirect_uri:
        return kept
    known = yield from _register(server, redirect_uri, about, scopes)
    yield Save(key=registration_key(server.issuer), record=_record(known))
    return known


def _register(server: ServerMetadata, redirect_uri: str, about: About, scopes: tuple[str, ...]) -> Flow[Known]:
    if server.registration_endpoint is None:
        raise AuthorizationFailed(
            "the authorization server registers nobody by itself: give client_id= (and client_secret=, issuer=)"
        )
    method = next((one for one in _PREFERRED if one in server.auth_methods), None)
    if method is None:
        raise AuthorizationFailed(f"the authorization server offers none of {', '.join(_PREFERRED)}")
    wish: dict[str, Any] = {
        "client_name": about.client_name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        # left out it means "web", which may refuse loopback redirects
        "application_type": "native" if is_loopback_url(redirect_uri) else "web",
        **({"client_uri": about.client_uri} if about.client_uri else {}),
        **({"scope": " ".join(scopes)} if scopes else {}),
        **about.extra,
    }
    step = Fetch(what="the registration", method="POST", url=server.registration_endpoint, json=wish)
    reply = yield from fetch(step)
    document = reply.document()
    if reply.status not in (200, 201) or document is None:
        raise refusal("the registration", document)
    client_id, secret = document.get("client_id"), document.get("client_secret")
    if not isinstance(client_id, str) or not client_id:
        raise AuthorizationFailed("the registration was answered without a client id")
    given = document.get("token_endpoint_auth_method")
    secret = secret if isinstance(secret, str) and secret else None
    if given not in _PREFERRED:
        given = method if secret or method == "none" else "none"
    if given != "none" and secret is None:
        raise AuthorizationFailed(f"the registration was answered with {given} but without a secret")
    credentials = Credentials(client_id=client_id, secret=secret, method=str(given))
    return Known(credentials=credentials, redirect_uri=redirect_uri, registered=True)


def _record(known: Known) -> dict[str, Any]:
    one = known.credentials
    return {
        "client_id": one.client_id,
        "client_secret": one.secret,
        "token_endpoint_auth_method": one.method,
        "redirect_uri": known.redirect_uri,
    }


def _restore(record: Mapping[str, Any] | None) -> Known | None:
    if record is None:
        return None
    client_id, redirect_uri = record.get("client_id"), record.get("redirect_uri")
    secret, method = record.get("client_secret"), record.get("token_endpoint_auth_method")
    if not isinstance(client_id, str) or not isinstance(redirect_uri, str) or method not in _PREFERRED:
        return None
    credentials = Credentials(client_id=client_id, secret=secret if isinstance(secret, str) else None, method=method)
    return Known(credentials=credentials, redirect_uri=redirect_uri, registered=True)


def stored_credentials(issuer: str) -> Flow[Credentials | None]:
    """What we registered at this authorization server before."""
    known = _restore((yield from load(registration_key(issuer))))
    return known.credentials if known is not None else None
