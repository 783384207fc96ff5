"""The settings of the ways to sign in: wrong ones are refused, and none of them prints a secret."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mcptrio.auth import FIRST_SEEN, ClientCredentials, EnterpriseManaged, MemoryStorage, OAuth
from mcptrio.errors import DeclarationError


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: OAuth(client_secret="s"), "client_id"),
        (lambda: OAuth(client_id="c", client_secret="s"), "issuer"),
        (lambda: ClientCredentials(client_id="c"), "either"),
        (lambda: ClientCredentials(client_id="c", client_secret="s"), "issuer"),
        (lambda: OAuth(scopes="read"), "list"),
        (lambda: OAuth(client_metadata_url="http://x.example/c"), "https"),
        (lambda: EnterpriseManaged(client_id="c", idp_client_id="i", id_token="t"), "idp_issuer"),
    ],
)
def test_a_wrong_declaration_says_how_to_correct_it(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(DeclarationError, match=text):
        make()


def test_nothing_printed_shows_a_secret() -> None:
    for auth in (
        OAuth(client_id="c", client_secret="hush", issuer=FIRST_SEEN),
        ClientCredentials(client_id="c", client_secret="hush", issuer="https://as.example"),
    ):
        assert "hush" not in repr(auth) + repr(auth._source)


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(TypeError, match="storge"):
        OAuth(storge=MemoryStorage())  # type: ignore[call-arg]
