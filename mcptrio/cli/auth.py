"""Authentication options of `mcptrio run`: tokens from a file, or TLS client certificates."""

from __future__ import annotations

import os
import stat
import sys
from typing import TYPE_CHECKING, Any

from mcptrio.errors import DeclarationError

if TYPE_CHECKING:
    from mcptrio.auth.server import Principal, StaticTokens
    from mcptrio.auth.server.certificates import Certificate
    from mcptrio.cli.settings import RunSettings
    from mcptrio.server.server import Server

_MAX_FILE = 1024 * 1024


def auth_settings(arguments: RunSettings, server: Server, *, warn: bool = True) -> dict[str, Any]:
    """Return the authentication settings for `Server.run`; with `warn`, report files that others can read.

    Raises:
        DeclarationError: the options cannot be used; the text says why in one line.
    """
    token_file, client_ca = arguments.token_file, arguments.client_ca
    if warn and arguments.state_key_file:
        warn_if_readable(arguments.state_key_file)
    if warn and arguments.store:
        warn_of_password_file()
    if arguments.transport == "stdio":
        if given := arguments.given & {"token_file", "client_ca"}:
            option = "--token-file" if "token_file" in given else "--client-ca"
            raise DeclarationError(f"{option} is an HTTP option: add --transport http")
        return {}
    settings: dict[str, Any] = {}
    key = arguments.keyfile or arguments.certfile  # without a key file, the key is in the certificate's file
    if warn and key:
        warn_if_readable(key)
    if client_ca:
        if not arguments.certfile:
            raise DeclarationError("--client-ca needs --certfile: client certificates require TLS")
        read_secret(client_ca, "--client-ca")
        settings["client_ca"] = client_ca
    if token_file:
        settings["auth"] = _tokens(token_file, warn)
    elif client_ca:
        from mcptrio.auth.server import ClientCertificates

        if scopes := sorted(server._app.all_scopes()):
            raise DeclarationError(
                f"the server declares scopes ({', '.join(scopes)}), which client certificates do not carry: "
                "assign them with --token-file as well, or with ClientCertificates in the program"
            )
        settings["auth"] = ClientCertificates(_principal)
    return settings


def _tokens(path: str, warn: bool) -> StaticTokens:
    from mcptrio.auth.server import StaticTokens

    text = read_secret(path, "--token-file")
    if not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines()):
        raise DeclarationError(f"--token-file {path} has no token: write one line TOKEN NAME [SCOPE ...] per caller")
    if warn:
        warn_if_readable(path)
    try:
        return StaticTokens.read(text)
    except DeclarationError as error:
        raise DeclarationError(f"--token-file {path}: {error}") from None


def warn_of_password_file() -> None:
    """Print the same warning for the file with the password of a store, if the environment names one."""
    if password_file := os.environ.get("MCPTRIO_STORE_PASSWORD_FILE"):
        warn_if_readable(password_file)


def warn_if_readable(path: str) -> None:
    """Print a warning if other users can read or replace a file with secrets. A missing file is reported elsewhere."""
    try:
        mode = os.stat(path).st_mode if os.name == "posix" else 0
    except OSError:
        return
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        print(f"mcptrio: other users of this machine can read {path}: chmod 600 {path}", file=sys.stderr)


def read_secret(path: str, option: str) -> str:
    """Return the text of a file that an option or a variable names.

    Raises:
        DeclarationError: it cannot be read; the text says why in one line.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(_MAX_FILE + 1)
    except OSError as error:
        raise DeclarationError(f"{option} {path}: {error.strerror or type(error).__name__}") from None
    except UnicodeDecodeError:
        raise DeclarationError(f"{option} {path}: not a text file in UTF-8") from None
    if len(text) > _MAX_FILE:
        raise DeclarationError(f"{option} {path}: more than {_MAX_FILE} characters")
    return text


def _principal(certificate: Certificate) -> Principal:
    """Identify a caller by the name in its certificate, which TLS has verified."""
    from mcptrio.auth.server import Principal

    name = certificate.common_name or next(iter(certificate.names), None) or certificate.subject
    return Principal(subject=name or certificate.fingerprint)
