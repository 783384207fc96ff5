"""Static bearer tokens that the operator hands out, for servers without an authorization server."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Mapping

from attrs import define

from mcptrio._settings import check_value
from mcptrio.auth.server.principal import Principal, scope_set
from mcptrio.errors import DeclarationError

_MIN_LENGTH = 16


@define(eq=False, repr=False, init=False)
class StaticTokens:
    """Authentication by fixed tokens: `StaticTokens({"<token>": Principal(subject="ada", scopes="read")})`.

    Only keyed digests are stored, so neither a memory dump nor the timing of a lookup reveals a token.
    """

    required_scopes: frozenset[str]
    _secret: bytes
    _by_digest: dict[bytes, Principal]

    def __init__(self, tokens: Mapping[str, Principal | str], *, required_scopes: str | Iterable[str] = ()) -> None:
        check_value("StaticTokens(tokens)", tokens, Mapping[str, Principal | str])
        if not tokens:
            raise DeclarationError("StaticTokens needs at least one token")
        self.required_scopes = scope_set(required_scopes)
        check_value("required_scopes", self.required_scopes, frozenset[str])
        self._secret = secrets.token_bytes(32)
        self._by_digest = {}
        for token, principal in tokens.items():
            if len(token) < _MIN_LENGTH or not token.isascii() or any(character.isspace() for character in token):
                raise DeclarationError(
                    f"a static token needs {_MIN_LENGTH} or more visible ASCII characters; create one with "
                    "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
                )
            named = Principal(subject=principal) if isinstance(principal, str) else principal
            self._by_digest[self._digest(token)] = named

    def __repr__(self) -> str:
        return f"<StaticTokens of {len(self._by_digest)}>"

    @classmethod
    def read(cls, text: str, *, required_scopes: str | Iterable[str] = ()) -> StaticTokens:
        """Read lines of `TOKEN NAME [SCOPE ...]`; empty lines and lines that start with # are ignored."""
        tokens: dict[str, Principal | str] = {}
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) < 2:
                raise DeclarationError(f"line {number}: expected TOKEN NAME [SCOPE ...]")
            if words[0] in tokens:
                raise DeclarationError(f"line {number}: duplicate token")
            tokens[words[0]] = Principal(subject=words[1], scopes=words[2:])
        return cls(tokens, required_scopes=required_scopes)

    def find(self, token: str) -> Principal | None:
        """Return the principal of a token, None if the token is unknown."""
        return self._by_digest.get(self._digest(token))

    def _digest(self, token: str) -> bytes:
        return hmac.digest(self._secret, token.encode(), "sha256")
