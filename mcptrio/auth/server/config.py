"""How tokens are checked: `BearerAuth`, its parts, and the rules that no setting can turn off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from attrs import field, frozen

from mcptrio.auth.server.principal import scope_set
from mcptrio.errors import DeclarationError

ASYMMETRIC: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"}
)
"""What a token may be signed with. A shared secret is none of them: whoever can check with it can also sign."""
DEFAULT_ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA", "Ed25519")
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


def _names(value: str | Iterable[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


@frozen(kw_only=True)
class Introspection:
    """Ask the authorization server about each token (RFC 7662) instead of reading it."""

    url: str
    """The introspection endpoint of the authorization server."""
    client_id: str
    """What this server calls itself there."""
    client_secret: str = field(repr=False)
    """What this server proves it with; taken from the environment rather than from the code."""

    def __attrs_post_init__(self) -> None:
        check_url("Introspection.url", self.url)
        if not self.client_id or not self.client_secret:
            raise DeclarationError("Introspection needs the client_id and client_secret of this server (RFC 7662, 2.1)")


@frozen(kw_only=True)
class BearerAuth:
    """Let in whoever has an access token of one of `issuers`, made for this server.

    Signatures are checked with the issuer's published keys, or the issuer is asked (`introspection`).
    Times are seconds.
    """

    resource: str
    """The URL of the endpoint as clients know it; also its name in OAuth (RFC 8707)."""
    issuers: tuple[str, ...] = field(converter=_names)
    """The authorization servers whose tokens are accepted, each exactly as it names itself."""
    audience: tuple[str, ...] = field(default=None, converter=_names)
    """Whom a token must be made for; one is enough. Without it: `resource`."""
    jwks_uri: str | Mapping[str, str] | None = None
    """Where the keys are, for one issuer or by issuer; without it the issuer's metadata says so."""
    jwks: Mapping[str, Any] | None = field(default=None, repr=False)
    """The keys themselves (a JWK Set): then nothing is fetched."""
    introspection: Introspection | None = None
    """Ask the issuer about each token (RFC 7662), for issuers whose tokens cannot be read; None: tokens are JWTs
    and checked with the issuer's keys."""
    required_scopes: frozenset[str] = field(default=frozenset(), converter=scope_set)
    """The scopes that every request needs; those of one tool are its option `scopes`."""
    implies: Mapping[str, Iterable[str]] = field(factory=dict)
    """Which scopes contain others: `{"orders:write": ["orders:read"]}`."""
    algorithms: tuple[str, ...] = field(default=DEFAULT_ALGORITHMS, converter=_names)
    """Signatures that are accepted; narrow it to what the issuer uses. Only those with a public key may be
    named."""
    clock_skew: float = 60
    """Seconds by which the issuer's clock may differ from ours, 0 to 300."""
    dpop: Literal[False, True, "required"] = False
    """Take tokens that are bound to a key (RFC 9449); `"required"` takes no others."""
    dpop_nonce: bool = False
    """Also ask for a nonce of this server in each proof, against proofs made in advance."""
    metadata_url: str | None = None
    """Where clients find the metadata, if not at the well-known place on the host of `resource`."""
    documentation: str | None = None
    """A page for developers, told to clients with the metadata."""
    max_token: int = 8192
    """Bytes of the longest token that is looked at; raise it, with `max_header_bytes`, for issuers that put much
    into one."""
    cache: float = 30
    """Seconds for which a token that was found good is not checked again; 0 checks each request, so that a revoked
    one ends at once."""
    fetch_timeout: float = 1.8
    """Seconds that the issuer may take; past that a request is answered with 503."""
    keys_ttl: float = 300
    """Seconds after which the issuer's keys are fetched again in passing; a token with an unknown key has them
    fetched sooner."""
    keys_max_age: float = 3600
    """Seconds for which keys are used while the issuer cannot be reached; raise it to outlive its longer
    outages."""
    keys_pause: float = 10
    """The least seconds between two fetches of keys, whatever tokens come."""

    def __attrs_post_init__(self) -> None:
        check_url("BearerAuth.resource", self.resource)
        if not self.issuers:
            raise DeclarationError("BearerAuth.issuers is empty: name the authorization servers to trust")
        for issuer in self.issuers:
            check_url("BearerAuth.issuers", issuer)
        if self.audience == ():
            object.__setattr__(self, "audience", (self.resource,))
        if not all(self.audience):
            raise DeclarationError("BearerAuth.audience has an empty name: then tokens for anybody would be accepted")
        if isinstance(self.jwks_uri, str) and len(self.issuers) > 1:
            raise DeclarationError("BearerAuth.jwks_uri must say which issuer it is of: {issuer: url, ...}")
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
        if self.dpop not in (False, True, "required"):
            raise DeclarationError(f'BearerAuth.dpop is False, True or "required", not {self.dpop!r}')
        if not 0 <= self.clock_skew <= 300:
            raise DeclarationError("BearerAuth.clock_skew must be 0 to 300 seconds")
        for name in ("max_token", "fetch_timeout", "keys_ttl", "keys_max_age", "keys_pause"):
            if not getattr(self, name) > 0:
                raise DeclarationError(f"BearerAuth.{name} must be positive")
        if self.keys_ttl > self.keys_max_age:
            raise DeclarationError(
                f"BearerAuth.keys_ttl ({self.keys_ttl:g} s) is more than keys_max_age ({self.keys_max_age:g} s), "
                "after which keys are not used at all: raise keys_max_age too"
            )
        if self.cache < 0:
            raise DeclarationError("BearerAuth.cache must not be negative")

    @property
    def key_urls(self) -> Mapping[str, str]:
        if isinstance(self.jwks_uri, str):
            return {self.issuers[0]: self.jwks_uri}
        return self.jwks_uri or {}

    def widen(self, scopes: Iterable[str]) -> frozenset[str]:
        """Scopes with all that they imply (basic/authorization: servers MUST account for scope hierarchies)."""
        found: set[str] = set()
        left = list(scopes)
        while left:
            scope = left.pop()
            if scope not in found:
                found.add(scope)
                left.extend(_names(self.implies.get(scope)))
        return frozenset(found)


def check_url(name: str, url: str) -> None:
    """Plain HTTP only to this very machine; no fragment, no user name, nothing that two programs read differently."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https") or not url.isascii() or url != url.strip():
        raise DeclarationError(f"{name}: {url!r:.200} is not a URL as in https://example.org/mcp")
    if parts.fragment or "#" in url or parts.username is not None or parts.password is not None:
        raise DeclarationError(f"{name}: {url!r:.200} must have no fragment and no user name")
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise DeclarationError(f"{name}: {url!r:.200} must be https; plain http is only for this machine (127.0.0.1)")
