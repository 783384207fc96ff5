"""The setting `verify` of clients: the certificate authorities that they trust."""

from __future__ import annotations

import os
import ssl
from typing import Any

from mcptrio.errors import DeclarationError


def as_verification(verify: ssl.SSLContext | str | os.PathLike[str] | bool) -> ssl.SSLContext | bool:
    """Read the authorities if `verify` is a path; leave another value to the check of settings.

    Raises:
        DeclarationError: the file cannot be read.
    """
    if not isinstance(verify, str | os.PathLike):
        return verify
    path: Any = os.fspath(verify)
    try:
        return ssl.create_default_context(**{"capath" if os.path.isdir(path) else "cafile": path})
    except OSError as error:  # also those of ssl
        raise DeclarationError(f"verify: {path} cannot be read: {error.strerror or error}") from error
