"""Client authentication at a token endpoint."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote_plus

from attrs import field, frozen

from mcptrio.auth.client.errors import AuthorizationFailed
from mcptrio.auth.client.steps import FlowInputs

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
SECRET_METHODS: Final = ("none", "client_secret_basic", "client_secret_post")
"""The methods of registered clients, in order of preference."""
_ASSERTION_LIFE: Final = 60.0


@frozen(kw_only=True)
class PrivateKey:
    """A private key for client authentication: PEM text, algorithm, and key ID at the server."""

    pem: str = field(repr=False)
    algorithm: str = "ES256"
    key_id: str | None = None


@frozen(kw_only=True)
class Credentials:
    """The credentials of a client at one authorization server."""

    client_id: str
    secret: str | None = field(default=None, repr=False)
    key: PrivateKey | None = None
    method: str | None = None
    """The authentication method; None: selected from those that the server offers."""

    def secrets(self) -> tuple[str, ...]:
        return (self.secret,) if self.secret else ()

    def record(self) -> dict[str, Any]:
        """Return the stored form of registered credentials, which have no key."""
        return {
            "client_id": self.client_id,
            "client_secret": self.secret,
            "token_endpoint_auth_method": self.method,
        }


def restore_credentials(record: object) -> Credentials | None:
    """Read the stored form; None if it is unreadable."""
    if not isinstance(record, dict):
        return None
    client_id, secret = record.get("client_id"), record.get("client_secret")
    method = record.get("token_endpoint_auth_method")
    if not isinstance(client_id, str) or method not in SECRET_METHODS:
        return None
    return Credentials(client_id=client_id, secret=secret if isinstance(secret, str) else None, method=method)


def choose_method(credentials: Credentials, offered: tuple[str, ...]) -> str:
    """Select an authentication method that client and server support.

    Raises:
        AuthorizationFailed: there is none.
    """
    if credentials.method is not None:
        return credentials.method
    if credentials.key is not None:
        able: tuple[str, ...] = ("private_key_jwt",)
    elif credentials.secret is not None:
        able = ("client_secret_basic", "client_secret_post", "none")
    else:
        return "none"  # the only method of a public client; servers often fail to list it
    for method in able:
        if method in offered:
            return method
    raise AuthorizationFailed(f"the authorization server offers none of the ways to authenticate: {', '.join(able)}")


def authenticate(
    credentials: Credentials, *, offered: tuple[str, ...], issuer: str, inputs: FlowInputs
) -> tuple[dict[str, str], dict[str, str]]:
    """Build the headers and form fields that authenticate the client."""
    method = choose_method(credentials, offered)
    if method == "client_secret_basic":
        # RFC 6749 section 2.3.1: both are form-encoded first
        pair = f"{quote_plus(credentials.client_id)}:{quote_plus(credentials.secret or '')}"
        return {"Authorization": f"Basic {b64encode(pair.encode()).decode()}"}, {}
    if method == "client_secret_post":
        return {}, {"client_id": credentials.client_id, "client_secret": credentials.secret or ""}
    if method == "private_key_jwt":
        signed = assertion(credentials, audience=issuer, inputs=inputs)
        return {}, {"client_assertion_type": ASSERTION_TYPE, "client_assertion": signed}
    return {}, {"client_id": credentials.client_id}


def assertion(credentials: Credentials, *, audience: str, inputs: FlowInputs) -> str:
    """Sign a client assertion for one authorization server (RFC 7523 section 2.2)."""
    if credentials.key is None:
        raise AuthorizationFailed("private_key_jwt needs a private key")
    now = int(inputs.now())
    claims: dict[str, Any] = {
        "iss": credentials.client_id,
        "sub": credentials.client_id,
        "aud": audience,
        "iat": now,
        "exp": now + int(_ASSERTION_LIFE),
        "jti": inputs.secret(),
    }
    return _sign(claims, credentials.key)


def _sign(claims: Mapping[str, Any], key: PrivateKey) -> str:
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    kind = {"ES": "EC", "RS": "RSA", "PS": "RSA", "Ed": "OKP"}.get(key.algorithm[:2])
    if kind is None:
        raise AuthorizationFailed("the algorithm is not one for a private key: ES256, RS256, PS256, EdDSA and the like")
    header = {"alg": key.algorithm, **({"kid": key.key_id} if key.key_id else {})}
    try:
        signer = import_key(key.pem, kind)  # type: ignore[call-overload]  # the overloads want a literal
        return str(jwt.encode(header, dict(claims), signer, algorithms=[key.algorithm]))
    except (JoseError, ValueError, TypeError):
        # the library's text may quote the key
        raise AuthorizationFailed("the private key cannot be used with its algorithm") from None
