"""The `requestState` of a multi round-trip request: sealed when it leaves, opened when it comes back.

It passes through the client, so it is encrypted and authenticated (AES-256-GCM), and bound to what it belongs to: the
binding (audience, method, target, arguments, principal) is not inside but must be the same again for it to open. Any
bytes either open or raise `StateRefused`, and the peer is told the same thing in every case.
"""

from __future__ import annotations

import os
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import field

from mcptrio._struct import Entity
from mcptrio.errors import DeclarationError, MCPTrioException

MAX_STATE: Final = 256 * 1024
_KEY_ID: Final = 4
_NONCE: Final = 12
_VERSION: Final = b"\x01"


class StateRefused(MCPTrioException):
    """A state that was not sealed by us, for this, or that is too old; the text is for the log only."""


class State(msgspec.Struct, frozen=True, array_like=True):
    """What a state says: a few fields, short on the wire."""

    id: bytes
    """Names this state; it is accepted once."""
    expires: float
    """By the wall clock."""
    parked: str
    """The call that waits for it, if the process that holds it is asked."""
    journal: dict[str, Any]
    """Answers given and results recorded so far, for a process that does not hold the call."""


def derive_id(key: bytes) -> bytes:
    return blake2b(key, digest_size=_KEY_ID, person=b"mcptrio key id").digest()


class KeyRing(Entity):
    """The keys that states are sealed with: the first one seals, every one opens."""

    _keys: list[bytes]
    _ciphers: dict[bytes, Any] = field(default_factory=dict)

    @classmethod
    def random(cls) -> KeyRing:
        """A key of this process alone: its states mean nothing to any other."""
        return cls([secrets.token_bytes(32)])

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> KeyRing:
        """Keys as they stand in a file, one per line: 32 bytes in base64 or hexadecimal; the first one seals."""
        keys = [_read_key(text.strip()) for text in texts if text.strip() and not text.strip().startswith("#")]
        if not keys:
            raise DeclarationError("there is no key; make one with `openssl rand -base64 32`")
        return cls(keys)

    def _cipher(self, key: bytes) -> Any:
        # Imported when the first question is asked: most servers never seal anything.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(key)

    def _cipher_for(self, key_id: bytes) -> Any:
        if not self._ciphers:
            self._ciphers = {derive_id(key): self._cipher(key) for key in self._keys}
        return self._ciphers.get(key_id)

    def seal(self, state: State, binding: bytes) -> str:
        key_id = derive_id(self._keys[0])
        nonce = os.urandom(_NONCE)
        sealed = self._cipher_for(key_id).encrypt(nonce, msgspec.msgpack.encode(state), _VERSION + binding)
        return urlsafe_b64encode(_VERSION + key_id + nonce + sealed).decode("ascii").rstrip("=")

    def open(self, text: str, binding: bytes, *, now: float) -> State:
        """Raises `StateRefused` if it is not one of ours, belongs elsewhere, or has expired."""
        if len(text) > MAX_STATE:
            raise StateRefused("too long")
        try:
            data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        except ValueError as error:
            raise StateRefused("not base64") from error
        if urlsafe_b64encode(data).decode("ascii").rstrip("=") != text:
            raise StateRefused("not in the one form that we write")
        if data[:1] != _VERSION or len(data) < 1 + _KEY_ID + _NONCE + 16:
            raise StateRefused("not a state of ours")
        cipher = self._cipher_for(data[1 : 1 + _KEY_ID])
        if cipher is None:
            raise StateRefused("sealed with a key that is not in the ring")
        from cryptography.exceptions import InvalidTag

        at = 1 + _KEY_ID
        try:
            plain = cipher.decrypt(data[at : at + _NONCE], data[at + _NONCE :], _VERSION + binding)
            state = msgspec.msgpack.decode(plain, type=State)
        except InvalidTag:
            raise StateRefused("it was changed, or belongs to another request, principal or server") from None
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:  # sealed by a version that we do not know
            raise StateRefused("unreadable") from error
        if state.expires < now:
            raise StateRefused("expired")
        return state


def _read_key(text: str) -> bytes:
    for decode in _FORMS:
        try:
            key = decode(text)
        except ValueError:
            continue
        if len(key) == 32:
            return key
    raise DeclarationError("a key is 32 bytes in base64 or hexadecimal; make one with `openssl rand -base64 32`")


def _from_base64(text: str) -> bytes:
    return urlsafe_b64decode(text.replace("+", "-").replace("/", "_") + "=" * (-len(text) % 4))


_FORMS: Final[tuple[Callable[[str], bytes], ...]] = (bytes.fromhex, _from_base64)


def digest(value: Any) -> str:
    """A short name for a JSON value: the same for the same value, whatever the order of its keys."""
    return blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=16).hexdigest()


def bind_to(audience: str, method: str, params: Mapping[str, Any], principal: str) -> bytes:
    """What a state belongs to: everything of the request but its metadata and the answers."""
    rest = {key: value for key, value in params.items() if key not in ("_meta", "inputResponses", "requestState")}
    return msgspec.json.encode([audience, method, digest(rest), principal])
