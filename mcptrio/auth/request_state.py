"""Sealing of the `requestState` of a multi round-trip request: encrypted when sent, verified when it returns.

The state passes through the client, so it is encrypted and authenticated (AES-256-GCM). The audience, method, target,
arguments and principal of the request are its associated data: they are not stored in the state, but must be identical
for it to open. Any input either opens or raises `StateRefused`, and the peer gets the same error in every case.
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

from mcptrio._settings import check_value
from mcptrio._struct import Entity
from mcptrio.errors import DeclarationError, MCPTrioError

MAX_STATE: Final = 256 * 1024
_KEY_ID: Final = 4
_NONCE: Final = 12
_VERSION: Final = b"\x02"


class StateRefused(MCPTrioError):
    """A state that is forged, expired or bound to another request. Its text is for the log only."""


class Recorded(msgspec.Struct, frozen=True, array_like=True):
    """The journal of a call, for a process that does not hold the call."""

    chain: str
    """Identifies the call across its runs."""
    answers: dict[str, list[Any]]
    """Question id -> a list with the answer; an empty list if the question timed out."""
    done: dict[str, tuple[str, str]]
    """Key -> the name of the function that `once` ran, and its result as JSON text; empty if it has not finished."""
    asked: dict[str, str]
    """Key -> id of each question of the round."""


class RequestState(msgspec.Struct, frozen=True, array_like=True):
    """The content of a sealed state."""

    id: bytes
    """Identifies this state; each one is accepted once."""
    expires: float
    """Seconds since 1970."""
    parked: str
    """The parked call that waits for it, if the request reaches the process that holds the call."""
    journal: Recorded | None
    """None if the handler may not run again."""
    worker: str = ""
    """The worker that holds the call, if several workers serve one endpoint."""


def derive_id(key: bytes) -> bytes:
    """Derive the public identifier of a key, sent with each state that it sealed."""
    return blake2b(key, digest_size=_KEY_ID, person=b"mcptrio key id").digest()


class KeyRing(Entity):
    """The keys that seal states: the first one seals, all of them open."""

    _keys: list[bytes]
    _ciphers: dict[bytes, Any] = field(default_factory=dict)
    configured: bool = True
    """Whether the keys were given by the user."""

    @classmethod
    def random(cls) -> KeyRing:
        """Create a key for this process only; no other process can open its states."""
        return cls([secrets.token_bytes(32)], configured=False)

    @classmethod
    def derived(cls, secret: bytes) -> KeyRing:
        """Derive a key from the secret of a store, for all processes that share the store."""
        return cls([blake2b(secret, digest_size=32, person=b"mcptrio states").digest()], configured=False)

    @classmethod
    def from_texts(cls, texts: Iterable[str]) -> KeyRing:
        """Read keys from the lines of a file: 32 bytes each, in base64 or hexadecimal; the first one seals.

        Raises:
            DeclarationError: there is no key, or a line is not one.
        """
        if isinstance(texts, str) or not isinstance(texts, Iterable):
            raise DeclarationError("state_keys must be a list of keys; write state_keys=[key]")
        texts = tuple(texts)
        check_value("state_keys", texts, tuple[str, ...])
        keys = [_read_key(text.strip()) for text in texts if text.strip() and not text.strip().startswith("#")]
        if not keys:
            raise DeclarationError("no key found; create one with `openssl rand -base64 32`")
        return cls(keys)

    def _cipher_for(self, key_id: bytes) -> Any:
        if not self._ciphers:
            # Imported on first use: most servers never seal a state.
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._ciphers = {derive_id(key): AESGCM(key) for key in self._keys}
        return self._ciphers.get(key_id)

    def seal(self, state: RequestState, binding: bytes) -> str:
        """Encrypt a state for the request that `binding` identifies (see `bind_to`)."""
        key_id = derive_id(self._keys[0])
        nonce = os.urandom(_NONCE)
        sealed = self._cipher_for(key_id).encrypt(nonce, msgspec.json.encode(state), _VERSION + binding)
        return urlsafe_b64encode(_VERSION + key_id + nonce + sealed).decode("ascii").rstrip("=")

    def open(self, text: str, binding: bytes, *, now: float) -> RequestState:
        """Decrypt a state.

        Raises:
            StateRefused: it was not sealed with one of these keys, is bound to another request, or has expired.
        """
        if len(text) > MAX_STATE:
            raise StateRefused("too long")
        try:
            data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        except ValueError as error:
            raise StateRefused("not base64") from error
        if urlsafe_b64encode(data).decode("ascii").rstrip("=") != text:
            raise StateRefused("not canonical base64")
        if data[:1] != _VERSION or len(data) < 1 + _KEY_ID + _NONCE + 16:
            raise StateRefused("unknown format")
        cipher = self._cipher_for(data[1 : 1 + _KEY_ID])
        if cipher is None:
            raise StateRefused("sealed with an unknown key")
        from cryptography.exceptions import InvalidTag

        at = 1 + _KEY_ID
        try:
            plain = cipher.decrypt(data[at : at + _NONCE], data[at + _NONCE :], _VERSION + binding)
            state = msgspec.json.decode(plain, type=RequestState)
        except InvalidTag:
            raise StateRefused("modified, or bound to another request, principal or server") from None
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:  # sealed by another version
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
    raise DeclarationError("a key must be 32 bytes in base64 or hexadecimal; create one with `openssl rand -base64 32`")


def _from_base64(text: str) -> bytes:
    return urlsafe_b64decode(text.replace("+", "-").replace("/", "_") + "=" * (-len(text) % 4))


_FORMS: Final[tuple[Callable[[str], bytes], ...]] = (bytes.fromhex, _from_base64)


def digest(value: Any) -> str:
    """Hash a JSON value; the order of keys does not matter."""
    return blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=16).hexdigest()


def bind_to(audience: str, method: str, params: Mapping[str, Any], principal: str) -> bytes:
    """Encode what a state is bound to: the request without its metadata and input responses."""
    rest = {key: value for key, value in params.items() if key not in ("_meta", "inputResponses", "requestState")}
    return msgspec.json.encode([audience, method, digest(rest), principal])
