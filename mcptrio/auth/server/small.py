"""For small set-ups without an authorization server: tokens that the operator hands out, and client certificates."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterable, Mapping

from attrs import define, field, frozen

from mcptrio.auth.server.principal import Principal, scope_set
from mcptrio.errors import DeclarationError

_SHORTEST = 16


@define(eq=False, repr=False, init=False)
class StaticTokens:
    """Let in whoever has one of these tokens: `StaticTokens({"<token>": Principal(subject="ada", scopes="read")})`.

    Only keyed digests are kept, so neither a dump nor the time that a look-up takes tells anything of a token.
    """

    required_scopes: frozenset[str]
    _secret: bytes
    _by_digest: dict[bytes, Principal]

    def __init__(self, tokens: Mapping[str, Principal | str], *, required_scopes: str | Iterable[str] = ()) -> None:
        if not tokens:
            raise DeclarationError("StaticTokens without a token would let nobody in")
        self.required_scopes = scope_set(required_scopes)
        self._secret = secrets.token_bytes(32)
        self._by_digest = {}
        for token, principal in tokens.items():
            if len(token) < _SHORTEST or not token.isascii() or any(sign.isspace() for sign in token):
                raise DeclarationError(
                    f"a static token needs {_SHORTEST} or more visible ASCII characters; make one with "
                    "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
                )
            who = Principal(subject=principal) if isinstance(principal, str) else principal
            self._by_digest[self._digest(token)] = who

    def __repr__(self) -> str:
        return f"<StaticTokens of {len(self._by_digest)}>"

    @classmethod
    def read(cls, text: str, *, required_scopes: str | Iterable[str] = ()) -> StaticTokens:
        """From lines of `TOKEN NAME [SCOPE ...]`; empty lines and those with # in front are left out."""
        tokens: dict[str, Principal | str] = {}
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) < 2:
                raise DeclarationError(f"line {number}: TOKEN NAME [SCOPE ...] is needed")
            if words[0] in tokens:
                raise DeclarationError(f"line {number}: this token is there already")
            tokens[words[0]] = Principal(subject=words[1], scopes=words[2:])
        return cls(tokens, required_scopes=required_scopes)

    def find(self, token: str) -> Principal | None:
        return self._by_digest.get(self._digest(token))

    def _digest(self, token: str) -> bytes:
        return hmac.digest(self._secret, token.encode(), "sha256")


@frozen(kw_only=True)
class Certificate:
    """A client's TLS certificate, which the listener has checked against `client_ca`."""

    common_name: str | None
    names: tuple[str, ...]
    """The alternative names: DNS names, URIs and e-mail addresses."""
    subject: str
    """The whole distinguished name (RFC 4514)."""
    fingerprint: str
    """SHA-256 of the certificate, in lower-case hexadecimal."""


def read_certificate(der: bytes) -> Certificate:
    """What a certificate says. Raises `ValueError` if it is none."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    found = x509.load_der_x509_certificate(der)
    common = found.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    try:
        alternative = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = tuple(
            str(name.value)
            for name in alternative
            if isinstance(name, x509.DNSName | x509.UniformResourceIdentifier | x509.RFC822Name)
        )
    except x509.ExtensionNotFound:
        names = ()
    return Certificate(
        common_name=str(common[0].value) if len(common) == 1 else None,
        names=names,
        subject=found.subject.rfc4514_string(),
        fingerprint=found.fingerprint(SHA256()).hex(),
    )


@frozen
class ClientCertificates:
    """Let in whoever has a certificate of `client_ca` (a setting of the listener) that is known here.

    `principals` says who: by common name, or a function that is given the `Certificate` and returns None for strangers.
    """

    principals: Mapping[str, Principal] | Callable[[Certificate], Principal | None]
    required_scopes: frozenset[str] = field(default=frozenset(), converter=scope_set, kw_only=True)

    def find(self, certificate: Certificate) -> Principal | None:
        if isinstance(self.principals, Mapping):
            return self.principals.get(certificate.common_name) if certificate.common_name else None
        return self.principals(certificate)
