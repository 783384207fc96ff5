"""Parsing of untrusted metadata: of a protected resource (RFC 9728) and of an authorization server (RFC 8414)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from attrs import frozen

from mcptrio.auth.client.errors import AuthorizationFailed
from mcptrio.auth.identifiers import same_identifier
from mcptrio.auth.ssrf import UrlRefused, origin_of, split_origin

_MOST = 1000  # items that are looked at in a list of a document


@frozen(kw_only=True)
class ResourceMetadata:
    """Protected resource metadata: the identifier of a server and its authorization servers."""

    resource: str
    authorization_servers: tuple[str, ...]
    scopes_supported: tuple[str, ...] | None = None
    dpop_required: bool = False


@frozen(kw_only=True)
class ServerMetadata:
    """Authorization server metadata."""

    issuer: str
    authorization_endpoint: str | None = None
    token_endpoint: str
    registration_endpoint: str | None = None
    scopes_supported: tuple[str, ...] | None = None
    auth_methods: tuple[str, ...] = ("client_secret_basic",)  # RFC 8414 section 2: the default
    code_challenge_methods: tuple[str, ...] = ()
    iss_in_response: bool = False
    client_id_metadata_documents: bool = False
    dpop_algorithms: tuple[str, ...] | None = None
    assumed: bool = False
    """No metadata was published: these are the default paths of 2025-03-26."""


def read_resource(document: Mapping[str, Any], *, endpoint: str, fetched_from: str) -> ResourceMetadata:
    """Parse protected resource metadata, and check that it belongs to the server at `endpoint`.

    Raises:
        AuthorizationFailed: it belongs to another server, or names no authorization server.
    """
    resource = document.get("resource")
    # RFC 9728 section 3.3: identical to the URL that was asked, or to the identifier that the document's own
    # well-known address was made from. The latter must be a parent of the endpoint, or it would be another server.
    if not isinstance(resource, str) or not (
        same_resource(resource, endpoint) or (is_above(resource, endpoint) and well_known_of(resource) == fetched_from)
    ):
        raise AuthorizationFailed(
            f"the protected resource metadata is about another server: its resource is {resource!r:.200}, "
            f"expected {canonical(endpoint)!r:.200}"
        )
    servers = _texts(document, "authorization_servers")
    if not servers:  # 2026-07-28 authorization-server-discovery: at least one
        raise AuthorizationFailed("the protected resource metadata names no authorization server")
    return ResourceMetadata(
        resource=resource,
        authorization_servers=servers,
        scopes_supported=_texts(document, "scopes_supported"),
        dpop_required=document.get("dpop_bound_access_tokens_required") is True,
    )


def read_server(document: Mapping[str, Any], *, issuer: str) -> ServerMetadata:
    """Parse authorization server metadata, and check that it belongs to the issuer.

    Raises:
        AuthorizationFailed: it belongs to another issuer, or has no token endpoint.
    """
    named = document.get("issuer")
    if not isinstance(named, str) or not same_identifier(named, issuer):  # RFC 8414 section 3.3
        raise AuthorizationFailed(
            f"the authorization server metadata has another issuer than the one asked for: {named!r:.200}, "
            f"expected {issuer!r:.200}"
        )
    token_endpoint = _text(document, "token_endpoint")
    if token_endpoint is None:
        raise AuthorizationFailed("the authorization server metadata has no token endpoint")
    return ServerMetadata(
        issuer=named,  # as the authorization server writes it, which compares it in assertions
        authorization_endpoint=_text(document, "authorization_endpoint"),
        token_endpoint=token_endpoint,
        registration_endpoint=_text(document, "registration_endpoint"),
        scopes_supported=_texts(document, "scopes_supported"),
        auth_methods=_texts(document, "token_endpoint_auth_methods_supported") or ("client_secret_basic",),
        code_challenge_methods=_texts(document, "code_challenge_methods_supported") or (),
        iss_in_response=document.get("authorization_response_iss_parameter_supported") is True,
        client_id_metadata_documents=document.get("client_id_metadata_document_supported") is True,
        dpop_algorithms=_texts(document, "dpop_signing_alg_values_supported"),
    )


def assumed_server(endpoint: str) -> ServerMetadata:
    """Return the default endpoints of a server without metadata, on its own origin (2025-03-26 authorization)."""
    base = root_of(endpoint)
    return ServerMetadata(
        issuer=base,
        authorization_endpoint=f"{base}/authorize",
        token_endpoint=f"{base}/token",
        registration_endpoint=f"{base}/register",
        auth_methods=("none", "client_secret_basic", "client_secret_post"),
        code_challenge_methods=("S256",),  # required of every server of that date
        assumed=True,
    )


# -- identifiers


def canonical(url: str) -> str:
    """Return the identifier of the server at a URL: lower-case scheme and host, no query, fragment or lone slash.

    Raises:
        UrlRefused: it is not an http or https URL.
    """
    scheme, host, port = split_origin(url)
    parts = urlsplit(url)
    shown = f"[{host}]" if ":" in host else host
    authority = shown if port == {"http": 80, "https": 443}[scheme] else f"{shown}:{port}"
    return urlunsplit((scheme, authority, "" if parts.path == "/" else parts.path, "", ""))


def root_of(url: str) -> str:
    """Return the origin of a URL as an identifier."""
    parts = urlsplit(canonical(url))
    return f"{parts.scheme}://{parts.netloc}"


def same_resource(one: str, other: str) -> bool:
    try:
        return canonical(one) == canonical(other) and not urlsplit(one).query and not urlsplit(one).fragment
    except UrlRefused:
        return False


def is_above(resource: str, endpoint: str) -> bool:
    """Return whether an identifier has the same origin and its path is a parent of the endpoint's."""
    try:
        if origin_of(resource) != origin_of(endpoint) or urlsplit(resource).query or urlsplit(resource).fragment:
            return False
    except UrlRefused:
        return False
    folder = urlsplit(resource).path.rstrip("/") + "/"
    return urlsplit(endpoint).path.startswith(folder)


def well_known_of(resource: str, suffix: str = "oauth-protected-resource") -> str:
    """Return the well-known URL of an identifier: the suffix goes between host and path (RFC 9728 section 3.1)."""
    return f"{root_of(resource)}/.well-known/{suffix}{urlsplit(resource).path.rstrip('/')}"


def _text(document: Mapping[str, Any], name: str) -> str | None:
    value = document.get(name)
    return value if isinstance(value, str) and value else None


def _texts(document: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    value = document.get(name)
    if not isinstance(value, list):
        return None
    return tuple(dict.fromkeys(one for one in value[:_MOST] if isinstance(one, str)))
