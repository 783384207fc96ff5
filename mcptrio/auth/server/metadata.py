"""Protected resource metadata (RFC 9728) and `WWW-Authenticate` challenges of a server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from mcptrio.auth.server.config import ASYMMETRIC, BearerAuth

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
PROOF_ALGORITHMS: Final = ("ES256", "EdDSA", "Ed25519", "RS256", "PS256")
assert set(PROOF_ALGORITHMS) <= ASYMMETRIC
_NO_RESOURCE_SCOPES: Final = frozenset({"offline_access"})


def metadata_url(auth: BearerAuth) -> str:
    """Return the URL of the metadata (RFC 9728 section 3.1: the well-known path, then the path of the resource)."""
    if auth.metadata_url is not None:
        return auth.metadata_url
    parts = urlsplit(auth.resource)
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path.rstrip('/')}{query}"


def metadata_paths(auth: BearerAuth) -> frozenset[str]:
    """Return the paths that serve the metadata: that of the resource, and the root."""
    return frozenset({WELL_KNOWN, WELL_KNOWN + urlsplit(auth.resource).path.rstrip("/")})


def metadata(auth: BearerAuth, scopes: Iterable[str], *, name: str | None = None) -> dict[str, Any]:
    """Build the metadata document; `scopes` are all scopes that any feature of this server requires."""
    document: dict[str, Any] = {
        "resource": auth.resource,
        "authorization_servers": list(auth.issuers),
        "bearer_methods_supported": ["header"],
    }
    # basic/authorization: offline_access SHOULD NOT be listed, it does not concern the resource
    listed = sorted((set(scopes) | auth.required_scopes) - _NO_RESOURCE_SCOPES)
    if listed:
        document["scopes_supported"] = listed
    if name:
        document["resource_name"] = name
    if auth.documentation:
        document["resource_documentation"] = auth.documentation
    if auth.dpop:
        document["dpop_signing_alg_values_supported"] = list(PROOF_ALGORITHMS)
        document["dpop_bound_access_tokens_required"] = auth.dpop == "required"
    return document


def challenge(scheme: str, **parameters: str | None) -> str:
    """Format one challenge: `Bearer error="invalid_token", …` (RFC 9110 section 11.6.1). None omits a parameter."""
    written = [f'{name}="{_quoted(value)}"' for name, value in parameters.items() if value]
    return f"{scheme} {', '.join(written)}" if written else scheme


def challenges(
    auth: BearerAuth, *, error: str | None = None, description: str | None = None, scopes: Iterable[str] = ()
) -> tuple[str, ...]:
    """Build the challenges of a refusal, one for each scheme that is accepted."""
    said = {
        "error": error,
        "error_description": description if error else None,
        "scope": " ".join(sorted(set(scopes) - _NO_RESOURCE_SCOPES)),
        "resource_metadata": metadata_url(auth),
    }
    bearer = challenge("Bearer", **said)
    if not auth.dpop:
        return (bearer,)
    dpop = challenge("DPoP", **said, algs=" ".join(PROOF_ALGORITHMS))
    return (dpop,) if auth.dpop == "required" else (bearer, dpop)


def _quoted(value: str) -> str:
    kept = "".join(sign if " " <= sign <= "~" else "?" for sign in value)
    return kept.replace("\\", "\\\\").replace('"', '\\"')
