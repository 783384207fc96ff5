"""Finding out who gives tokens for a server, in the specification's order.

First the server's own metadata: at the address in its challenge, or else at the well-known addresses for its path and
for its root. Then that of an authorization server named there: OAuth's form, then OpenID Connect's two. Servers of
2025-03-26 have none of the first, and are their own authorization server.
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
from mcptrio.auth.ssrf import UrlRefused

MOST_SERVERS = 5  # of the authorization servers that a document names, so many are tried


@frozen(kw_only=True)
class Discovered:
    """Who gives tokens for a server, and for what they are asked."""

    resource: str
    """The identifier to put into requests (RFC 8707)."""
    server: ServerMetadata
    metadata: ResourceMetadata | None = None
    """None for a server that publishes nothing about itself."""

    @property
    def scopes_supported(self) -> tuple[str, ...] | None:
        return self.metadata.scopes_supported if self.metadata is not None else None


def resource_candidates(endpoint: str) -> tuple[str, ...]:
    """The well-known addresses of a server's metadata, in order."""
    return tuple(dict.fromkeys((well_known_of(endpoint), well_known_of(root_of(endpoint)))))


def server_candidates(issuer: str) -> tuple[str, ...]:
    """The well-known addresses of an authorization server's metadata, in order.

    Raises:
        UrlRefused: the issuer is no URL, or has a query or a fragment.
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
    """Who gives tokens for the server at `endpoint`.

    `issuer` is the only authorization server that will do, if the user named one. `legacy` allows a server without
    any metadata to be its own authorization server.

    Raises:
        AuthorizationFailed: nobody that we would ask.
    """
    metadata = yield from _find_resource(endpoint, challenge)
    if metadata is None:
        server = yield from _without_resource(endpoint, issuer, legacy)
        return Discovered(resource=canonical(endpoint), server=server)
    names = metadata.authorization_servers[:MOST_SERVERS]
    if issuer is not None:
        if issuer not in metadata.authorization_servers:
            # 2026-07-28 client-registration: credentials belong to one authorization server
            raise AuthorizationFailed("the server names other authorization servers than the one that was configured")
        names = (issuer,)
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
    """The server's metadata; None if it plainly has none."""
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
        raise failure  # it may well have some: taking it for an old server would ask the wrong one
    return None


def _without_resource(endpoint: str, issuer: str | None, legacy: bool) -> Flow[ServerMetadata]:
    """For a server that says nothing: the configured authorization server, or itself."""
    if issuer is not None and issuer != root_of(endpoint):
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
    """The metadata of an authorization server.

    Raises:
        AuthorizationFailed: there is none, or none that is of this issuer.
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
