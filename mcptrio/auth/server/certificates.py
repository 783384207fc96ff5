"""Principals of TLS client certificates."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from attrs import field, frozen

from mcptrio._settings import check_fields
from mcptrio.auth.server.principal import Principal, scope_set


@frozen(kw_only=True)
class Certificate:
    """A client's TLS certificate, verified by the listener against `client_ca`."""

    common_name: str | None
    names: tuple[str, ...]
    """The alternative names: DNS names, URIs and e-mail addresses."""
    subject: str
    """The distinguished name (RFC 4514)."""
    fingerprint: str
    """SHA-256 of the certificate, in lower-case hexadecimal."""


def read_certificate(der: bytes) -> Certificate:
    """Parse a certificate.

    Raises:
        ValueError: it is not a DER certificate.
    """
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
    """Authentication by TLS client certificates that are signed by `client_ca` (a setting of the listener).

    `principals` maps common names to principals, or is a function that takes the `Certificate` and returns its
    principal, None to refuse it.
    """

    principals: Mapping[str, Principal] | Callable[[Certificate], Principal | None]
    required_scopes: frozenset[str] = field(default=frozenset(), converter=scope_set, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_fields(self)

    def find(self, certificate: Certificate) -> Principal | None:
        """Return the principal of a certificate, None if the certificate is unknown."""
        if isinstance(self.principals, Mapping):
            return self.principals.get(certificate.common_name) if certificate.common_name else None
        return self.principals(certificate)
