"""An issuer that the test controls: its keys, the tokens it makes, and the settings that trust it."""

from __future__ import annotations

import functools
import hashlib
import json
from base64 import urlsafe_b64encode
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, RSAKey

from mcptrio.auth.server import BearerAuth
from mcptrio.auth.server.credentials import Presented
from mcptrio.auth.server.keys import Key, read_keys

NOW = 1_800_000_000.0
ISSUER = "https://login.example.org"
RESOURCE = "https://api.example.org/mcp"


@functools.cache
def rsa(name: str = "one") -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": name})


@functools.cache
def ec(name: str = "two") -> ECKey:
    return ECKey.generate_key("P-256", {"kid": name})


def jwks(*keys: Any) -> dict[str, Any]:
    return {"keys": [{**key.as_dict(private=False), "kid": key.kid} for key in keys or (rsa(), ec())]}


def keys(*which: Any) -> tuple[Key, ...]:
    return read_keys(jwks(*which))


def settings(**changes: Any) -> BearerAuth:
    return BearerAuth(**{"resource": RESOURCE, "issuers": [ISSUER], "jwks": jwks(), **changes})


def claims(**changes: Any) -> dict[str, Any]:
    """Return the claims of a valid token; a change to None leaves a claim out."""
    said = {
        "iss": ISSUER,
        "aud": RESOURCE,
        "sub": "ada",
        "client_id": "desk",
        "scope": "orders:read",
        "iat": NOW - 10,
        "exp": NOW + 300,
        **changes,
    }
    return {name: value for name, value in said.items() if value is not None}


def sign(payload: dict[str, Any], key: Any = None, **header: Any) -> str:
    key = rsa() if key is None else key
    alg = "ES256" if isinstance(key, ECKey) else "RS256"
    full = {"alg": alg, "kid": key.kid, "typ": "at+jwt", **header}
    full = {name: value for name, value in full.items() if value is not None}
    signed = b64(json.dumps(full).encode()) + "." + b64(json.dumps(payload).encode())
    return signed + "." + b64(raw_signature(signed, key, alg))


def raw_signature(signed: str, key: Any, alg: str) -> bytes:
    return jws.JWSRegistry.algorithms[alg].sign(signed.encode(), key)


def b64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def token(key: Any = None, **changes: Any) -> str:
    return sign(claims(**changes), key)


def shown(text: str, **changes: Any) -> Presented:
    return Presented(**{"scheme": "bearer", "token": text, **changes})


def proof(text: str, key: ECKey, **changes: Any) -> str:
    """A DPoP proof for a token; `header_…` changes the header."""
    header = {"alg": "ES256", "typ": "dpop+jwt", "kid": None, "jwk": key.as_dict(private=False)}
    header |= {name.removeprefix("header_"): changes.pop(name) for name in list(changes) if name.startswith("header_")}
    said = {
        "jti": "first",
        "htm": "POST",
        "htu": RESOURCE,
        "iat": NOW,
        "ath": b64(hashlib.sha256(text.encode()).digest()),
        **changes,
    }
    return sign({name: value for name, value in said.items() if value is not None}, key, **header)
