"""TLS for the listener."""

from __future__ import annotations

import ssl

from mcptrio.errors import DeclarationError
from mcptrio.transports.http_server.config import HttpConfig


def tls_context(config: HttpConfig) -> ssl.SSLContext | None:
    """Read the certificate files and return the context for new connections; None for plain HTTP.

    Raises:
        DeclarationError: the files cannot be read, or do not belong together.
    """
    if config.certfile is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without a password OpenSSL would ask for one on the terminal, and wait.
        context.load_cert_chain(config.certfile, config.keyfile, config.keyfile_password or _no_password)
    except (OSError, ssl.SSLError) as error:
        key = config.keyfile or config.certfile
        raise DeclarationError(f"cannot use certificate {config.certfile} with key {key}: {error}") from error
    if config.client_ca is not None:
        try:
            context.load_verify_locations(config.client_ca)
        except (OSError, ssl.SSLError) as error:
            raise DeclarationError(f"cannot use client_ca {config.client_ca}: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _no_password() -> str:
    raise ssl.SSLError("the key is encrypted; set keyfile_password")
