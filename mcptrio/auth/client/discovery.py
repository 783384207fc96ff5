"""Discovery of the authorization server of an MCP server, in the order of the specification.

First the protected resource metadata: at the URL in the challenge, otherwise at the well-known URLs for the path and
the root of the server. Then the metadata of an authorization server named there: OAuth, then the two URLs of OpenID
Connect. Servers of 2025-03-26 have no protected resource metadata and are their own authorization server.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from attrs import frozen

from mcptrio.auth.client.challenge import Challenge
from mcptrio.auth.client.errors import AuthorizationFailed, FetchFailed
from mcptrio.auth.client.metadata import (
    ResourceMetadata,
    ServerMetadata,
    assumed_server,
    canonical,
    read_resource,
    read_server,
    root_of,
    well_known_of,
)
from mcptrio.auth.client.steps import Fetch, Flow, fetch
from mcptrio.auth.identifiers import same_identifier
from mcptrio.auth.ssrf import UrlRefused

MAX_SERVERS = 5  # authorization servers of one document that are tried


@frozen(kw_only=True)
class Discovered:
    """The authorization server of an MCP server, and the resource to request tokens for."""

    resource: str
    """The resource identifier for token requests (RFC 8707)."""
    server: ServerMetadata
    metadata: ResourceMetadata | None = None
    """None for a server without metadata."""

    @property
    def scopes_supported(self) -> tuple[str, ...] | None:
        return self.metadata.scopes_supported if self.metadata is not None else None


def resource_candidates(endpoint: str) -> tuple[str, ...]:
    """Return the well-known URLs of a server's metadata, in order."""
    return tuple(dict.fromkeys((well_known_of(endpoint), well_known_of(root_of(endpoint)))))


def server_candidates(issuer: str) -> tuple[str, ...]:
    """Return the well-known URLs of an authorization server's metadata, in order.

    Raises:
        UrlRefused: the issuer is not a URL, or has a query or a fragment.
    """
    parts = urlsplit(issuer)
    if parts.query or parts.fragment:
        raise UrlRefused("an issuer with a query or a fragment")
    path = parts.path.rstrip("/")
    oauth = well_known_of(issuer, "oauth-authorization-server")
    openid = well_known_of(issuer, "openid-configuration")
    return (oauth, openid, f"{root_of(issuer)}{path}/.well-known/openid-configuration") if path else (oauth, openid)


def discover(
    endpoint: str, challenge: Challenge | None, *, issuer: str | None = None, legacy: bool = True
) -> Flow[Discovered]:
    """Find the authorization server of the server at `endpoint`.

    `issuer` is the only acceptable authorization server, if the user configured one. `legacy` allows a server without
    any metadata to be its own authorization server.

    Raises:
        AuthorizationFailed: there is none that may be used.
    """
    metadata = yield from _find_resource(endpoint, challenge)
    if metadata is None:
        server = yield from _without_resource(endpoint, issuer, legacy)
        return Discovered(resource=canonical(endpoint), server=server)
    names = metadata.authorization_servers[:MAX_SERVERS]
    if issuer is not None:
        names = tuple(name for name in metadata.authorization_servers if same_identifier(name, issuer))
        if not names:
            # 2026-07-28 client-registration: credentials belong to one authorization server
            raise AuthorizationFailed(
                "the server names other authorization servers than the one that was configured: "
                f"{', '.join(metadata.authorization_servers)!r:.200}, expected {issuer!r:.200}"
            )
    reasons: list[str] = []
    for name in names:
        try:
            server = yield from find_server(name)
        except AuthorizationFailed as error:
            reasons.append(str(error))
        else:
            return Discovered(resource=metadata.resource, server=server, metadata=metadata)
    raise AuthorizationFailed(f"no authorization server can be used: {'; '.join(dict.fromkeys(reasons))}")


def _find_resource(endpoint: str, challenge: Challenge | None) -> Flow[ResourceMetadata | None]:
    """Fetch the protected resource metadata; None if the server certainly has none."""
    announced = challenge.resource_metadata if challenge is not None else None
    failure: AuthorizationFailed | None = None
    for url in dict.fromkeys(((announced,) if announced else ()) + resource_candidates(endpoint)):
        try:
            reply = yield from fetch(Fetch(what="the protected resource metadata", url=url))
        except FetchFailed as error:
            failure = failure or error
            continue
        document = reply.document() if reply.status == 200 else None
        if document is not None:
            return read_resource(document, endpoint=endpoint, fetched_from=url)
        if reply.status >= 500 or url == announced:
            failure = failure or FetchFailed(f"the protected resource metadata was answered with HTTP {reply.status}")
    if failure is not None:
        raise failure  # it may have metadata: treating it as a legacy server would ask the wrong authorization server
    return None


def _without_resource(endpoint: str, issuer: str | None, legacy: bool) -> Flow[ServerMetadata]:
    """Find the authorization server of a server without metadata: the configured one, or itself."""
    if issuer is not None and not same_identifier(issuer, root_of(endpoint)):
        server = yield from find_server(issuer)
        return server
    if not legacy:
        raise AuthorizationFailed("the server publishes no protected resource metadata")
    own = root_of(endpoint)
    url = server_candidates(own)[0]
    reply = yield from fetch(Fetch(what="the authorization server metadata", url=url))
    document = reply.document() if reply.status == 200 else None
    if document is not None:
        return read_server(document, issuer=own)
    if reply.status >= 500:
        raise FetchFailed(f"the authorization server metadata was answered with HTTP {reply.status}")
    return assumed_server(endpoint)


def find_server(issuer: str) -> Flow[ServerMetadata]:
    """Fetch the metadata of an authorization server.

    Raises:
        AuthorizationFailed: there is none, or it belongs to another issuer.
    """
    try:
        candidates = server_candidates(issuer)
    except UrlRefused as error:
        raise AuthorizationFailed(f"not an authorization server: {error}") from None
    failure = AuthorizationFailed("the authorization server publishes no metadata")
    for url in candidates:
        try:
            reply = yield from fetch(Fetch(what="the authorization server metadata", url=url))
            document = reply.document() if reply.status == 200 else None
            if document is not None:
                return read_server(document, issuer=issuer)
        except AuthorizationFailed as error:
            failure = error
    raise failure
