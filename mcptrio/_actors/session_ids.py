"""Session ids: random, and with a MAC over the identity of the client.

An id that was made up, or that belongs to another client, is refused without a look into the store.
"""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

_RANDOM: Final = 24
"""Characters before the MAC: 18 random bytes."""


def new_session_id(secret: bytes, identity: str = "") -> str:
    """Return a new id in visible ASCII (basic/transports: 0x21 to 0x7E), made with the secret of the store.

    `identity` is the key of the principal that the session belongs to; empty without authentication.
    """
    return _with_mac(secrets.token_urlsafe(_RANDOM * 3 // 4), secret, identity)


def is_session_id(text: str, secret: bytes, identity: str = "") -> bool:
    """Return whether an id was made with this secret, for this client."""
    return text.isascii() and compare_digest(_with_mac(text[:_RANDOM], secret, identity), text)


def _with_mac(text: str, secret: bytes, identity: str) -> str:
    mac = blake2b((text + identity).encode(), key=secret[:64], digest_size=12, person=b"mcptrio.session")
    return text + urlsafe_b64encode(mac.digest()).decode()
