"""Settings of token checks: `BearerAuth`, `Introspection`, and the rules that no setting can disable."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from attrs import field, frozen

from mcptrio._settings import as_tuple, check_fields
from mcptrio.auth.server.principal import scope_set
from mcptrio.errors import DeclarationError

ASYMMETRIC: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"}
)
"""Algorithms that may be allowed. None uses a shared secret, because a server that can verify with it can also sign."""
DEFAULT_ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA", "Ed25519")
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


def _names(value: str | Iterable[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    names: tuple[str, ...] = (value,) if isinstance(value, str) else as_tuple(value)
    return names


@frozen(kw_only=True)
class Introspection:
    """Token introspection (RFC 7662): ask the authorization server about each token instead of verifying it locally."""

    url: str
    """The introspection endpoint of the authorization server."""
    client_id: str
    """The client ID of this server at the authorization server."""
    client_secret: str = field(repr=False)
    """The secret of `client_id`; read it from the environment, do not put it into the code."""
    max_concurrent: int = 16
    """Requests to the endpoint at the same time; others wait, and get status 503 after `fetch_timeout`."""

    def __attrs_post_init__(self) -> None:
        check_fields(self, positive=("max_concurrent",))
        check_url("Introspection.url", self.url)
        if not self.client_id or not self.client_secret:
            raise DeclarationError("Introspection needs the client_id and client_secret of this server (RFC 7662, 2.1)")


@frozen(kw_only=True)
class BearerAuth:
    """Authentication by access tokens that one of `issuers` issued for this server.

    Signatures are verified with the issuer's published keys, or the issuer is asked (`introspection`).
    Times are in seconds.
    """

    resource: str
    """The URL of the endpoint as clients use it; also its resource identifier in OAuth (RFC 8707)."""
    issuers: tuple[str, ...] = field(converter=_names)
    """The authorization servers whose tokens are accepted, each exactly as in its `issuer` metadata."""
    audience: tuple[str, ...] = field(default=None, converter=_names)
    """Accepted audiences; a token must have one of them. Default: `resource`."""
    jwks_uri: str | Mapping[str, str] | None = None
    """The URL of the keys, for a single issuer or by issuer; default: from the issuer's metadata."""
    jwks: Mapping[str, Any] | None = field(default=None, repr=False)
    """The keys themselves (a JWK Set); then nothing is fetched."""
    introspection: Introspection | None = None
    """Ask the issuer about each token (RFC 7662), for issuers with opaque tokens; None: tokens are JWTs, verified with
    the issuer's keys."""
    required_scopes: frozenset[str] = field(default=frozenset(), converter=scope_set)
    """The scopes that every request needs; for those of a single tool use its option `scopes`."""
    implies: Mapping[str, Iterable[str]] = field(factory=dict)
    """Scopes that imply others: `{"orders:write": ["orders:read"]}`."""
    algorithms: tuple[str, ...] = field(default=DEFAULT_ALGORITHMS, converter=_names)
    """Accepted signature algorithms; narrow them to those that the issuer uses. Only asymmetric ones are allowed."""
    clock_skew: float = 60
    """Seconds by which the issuer's clock may differ from this server's, 0 to 300."""
    dpop: Literal[False, True, "required"] = False
    """Accept tokens that are bound to a key (DPoP, RFC 9449); `"required"` accepts no others."""
    dpop_nonce: bool = False
    """Also require a nonce of this server in each DPoP proof, which prevents proofs made in advance."""
    metadata_url: str | None = None
    """The URL of the metadata, if it is not at the well-known path on the host of `resource`."""
    documentation: str | None = None
    """The URL of a page for developers, listed in the metadata."""
    max_token: int = 8192
    """Maximum length of a token in bytes; raise it, with `max_header_bytes`, for issuers with large tokens."""
    cache: float = 30
    """Seconds for which the result of a check is reused; 0 checks every request, so that a revoked token is refused
    at once."""
    fetch_timeout: float = 1.8
    """Timeout for requests to the issuer; after it the client gets status 503."""
    proxy: str | None = field(default=None, repr=False)
    """The URL of an HTTP proxy for requests to the issuer. Proxy variables of the environment are not used."""
    keys_ttl: float = 300
    """Seconds after which the issuer's keys are refreshed; a token with an unknown key refreshes them sooner."""
    keys_max_age: float = 3600
    """Seconds for which keys are used while the issuer is unreachable; raise it to survive longer outages."""
    keys_pause: float = 10
    """Minimum seconds between two fetches of keys."""

    def __attrs_post_init__(self) -> None:
        positive = ("max_token", "fetch_timeout", "keys_ttl", "keys_max_age", "keys_pause")
        check_fields(self, positive=positive, not_negative=("cache",))
        check_url("BearerAuth.resource", self.resource)
        if not self.issuers:
            raise DeclarationError("BearerAuth.issuers is empty: name the authorization servers to trust")
        for issuer in self.issuers:
            check_url("BearerAuth.issuers", issuer)
        if self.audience == ():
            object.__setattr__(self, "audience", (self.resource,))
        if not all(self.audience):
            raise DeclarationError(
                "BearerAuth.audience contains an empty name, which would accept tokens of any audience"
            )
        if isinstance(self.jwks_uri, str) and len(self.issuers) > 1:
            raise DeclarationError(
                "BearerAuth.jwks_uri must be a mapping if there are several issuers: {issuer: url, ...}"
            )
        for uri in self.key_urls.values():
            check_url("BearerAuth.jwks_uri", uri)
        unknown = set(self.key_urls) - set(self.issuers)
        if unknown:
            raise DeclarationError(f"BearerAuth.jwks_uri has {', '.join(sorted(unknown))}, which is not in issuers")
        if self.jwks is not None and (self.jwks_uri is not None or len(self.issuers) > 1):
            raise DeclarationError("BearerAuth.jwks are the keys of one issuer; use jwks_uri for several")
        weak = sorted(set(self.algorithms) - ASYMMETRIC)
        if weak or not self.algorithms:
            raise DeclarationError(
                f"BearerAuth.algorithms: {', '.join(weak) or 'nothing'} cannot be allowed; use some of "
                f"{', '.join(sorted(ASYMMETRIC))}"
            )
        if not 0 <= self.clock_skew <= 300:
            raise DeclarationError("BearerAuth.clock_skew must be 0 to 300 seconds")
        if self.keys_ttl > self.keys_max_age:
            raise DeclarationError(
                f"BearerAuth.keys_ttl ({self.keys_ttl:g} s) is more than keys_max_age ({self.keys_max_age:g} s), "
                "after which keys are not used at all: raise keys_max_age too"
            )
        if self.proxy is not None and not re.fullmatch(r"https?://[^/?#\s]+/?", self.proxy):
            raise DeclarationError("BearerAuth.proxy is not the URL of a proxy such as http://proxy.example.org:3128")

    @property
    def key_urls(self) -> Mapping[str, str]:
        if isinstance(self.jwks_uri, str):
            return {self.issuers[0]: self.jwks_uri}
        return self.jwks_uri or {}

    def widen(self, scopes: Iterable[str]) -> frozenset[str]:
        """Add all implied scopes (basic/authorization: servers MUST account for scope hierarchies)."""
        found: set[str] = set()
        left = list(scopes)
        while left:
            scope = left.pop()
            if scope not in found:
                found.add(scope)
                left.extend(_names(self.implies.get(scope)))
        return frozenset(found)


def check_url(name: str, url: str) -> None:
    """Check a URL in the settings: https, or http on loopback; no fragment, no user name, no ambiguous form.

    Raises:
        DeclarationError: it is not such a URL.
    """
    shown = "a URL with @" if "@" in url else f"{url!r:.200}"  # not its password
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https") or not url.isascii() or url != url.strip():
        raise DeclarationError(f"{name}: {shown} is not a valid URL such as https://example.org/mcp")
    if parts.fragment or "#" in url or parts.username is not None or parts.password is not None:
        raise DeclarationError(f"{name}: {shown} must have no fragment and no user name")
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise DeclarationError(
            f"{name}: {url!r:.200} must be https; plain http is only allowed on this machine (127.0.0.1)"
        )
