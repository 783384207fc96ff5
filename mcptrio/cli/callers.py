"""Who may call a server that the command line serves: holders of tokens from a file, or of client certificates."""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING, Any

from mcptrio.errors import DeclarationError

if TYPE_CHECKING:
    import argparse

    from mcptrio.auth.server import Principal, StaticTokens
    from mcptrio.auth.server.small import Certificate
    from mcptrio.server.server import Server

_LARGEST = 1024 * 1024


def caller_settings(arguments: argparse.Namespace, server: Server) -> dict[str, Any]:
    """What `Server.run` is told about callers.

    Raises:
        DeclarationError: it cannot be told; the text is one line that says why.
    """
    token_file, client_ca = arguments.token_file, arguments.client_ca
    if arguments.transport == "stdio":
        if token_file or client_ca:
            option = "--token-file" if token_file else "--client-ca"
            raise DeclarationError(f"{option} is for HTTP: add --transport http")
        return {}
    token_file = token_file or os.environ.get("MCPTRIO_TOKEN_FILE")
    settings: dict[str, Any] = {}
    if client_ca:
        if not arguments.certfile:
            raise DeclarationError("--client-ca needs --certfile: certificates are shown where TLS is spoken")
        _read(client_ca, "--client-ca")
        settings["client_ca"] = client_ca
    if token_file:
        settings["auth"] = _tokens(token_file)
    elif client_ca:
        from mcptrio.auth.server import ClientCertificates

        if scopes := sorted(server.all_scopes()):
            raise DeclarationError(
                f"the server declares scopes ({', '.join(scopes)}), which certificates do not have: "
                "say who has them with --token-file too, or with ClientCertificates in the program"
            )
        settings["auth"] = ClientCertificates(_by_name)
    return settings


def _tokens(path: str) -> StaticTokens:
    from mcptrio.auth.server import StaticTokens

    text = _read(path, "--token-file")
    if not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines()):
        raise DeclarationError(f"--token-file {path} has no token: each line is TOKEN NAME [SCOPE ...]")
    if os.name == "posix" and os.stat(path).st_mode & stat.S_IROTH:
        print(f"mcptrio: everybody on this machine can read {path}: chmod 600 {path}", file=sys.stderr)
    try:
        return StaticTokens.read(text)
    except DeclarationError as error:
        raise DeclarationError(f"--token-file {path}: {error}") from None


def _read(path: str, option: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_LARGEST + 1)
    except OSError as error:
        raise DeclarationError(f"{option} {path}: {error.strerror or type(error).__name__}") from None
    except UnicodeDecodeError:
        raise DeclarationError(f"{option} {path}: this is no text") from None
    if len(text) > _LARGEST:
        raise DeclarationError(f"{option} {path}: more than {_LARGEST} characters")
    return text


def _by_name(certificate: Certificate) -> Principal:
    """Whoever has a certificate of the authority is let in, under the name that it certifies."""
    from mcptrio.auth.server import Principal

    name = certificate.common_name or next(iter(certificate.names), None) or certificate.subject
    return Principal(subject=name or certificate.fingerprint)
