"""Acquisition of tokens: adopt those of another client, renew, or start a new grant. Stores what it obtained.

Several clients, in one process or in many, may share a storage. A refresh token may be used once, so a client locks the
record, reads it again and renews only the tokens that it read. If another client has replaced them, those are used.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from attrs import evolve

from mcptrio.auth.client.credentials import Credentials
from mcptrio.auth.client.errors import AuthorizationFailed, FetchFailed
from mcptrio.auth.client.steps import Flow, Lock, Save, Unlock, load
from mcptrio.auth.client.token_request import Need
from mcptrio.auth.client.tokens import Tokens, restore


class Grant(Protocol):
    """The interface of a grant: obtains and renews tokens."""

    @property
    def own(self) -> Credentials | None: ...
    def obtain(self, need: Need) -> Flow[Tokens]: ...
    def renew(self, need: Need) -> Flow[Tokens | None]: ...


def stored_tokens(grant: Grant, key: str, dpop: bool | None) -> Flow[Tokens | None]:
    """Load the stored tokens; None if there are none for this client and its settings."""
    tokens = restore((yield from load(key)))
    if tokens is None or (grant.own is not None and grant.own.client_id != tokens.client_id):
        return None
    return None if dpop is True and tokens.dpop_key is None else tokens


def adopt(grant: Grant, need: Need) -> Flow[Tokens | None]:
    """Return the tokens that another client has stored since; None if the stored ones are the current ones."""
    stored = yield from stored_tokens(grant, need.key, need.dpop)
    return None if stored is None or stored.same_as(need.tokens) else stored


def renew(grant: Grant, need: Need) -> Flow[Tokens | None]:
    """Replace the tokens without the user; None if that is not possible.

    Raises:
        FetchFailed: it failed for now. The tokens are kept.
    """
    yield Lock(key=need.key)
    stored = yield from stored_tokens(grant, need.key, need.dpop)
    if stored is None or stored.same_as(need.tokens):
        # The stored form decides: an earlier flow may have discarded the refresh token.
        stored = yield from _renew_locked(grant, evolve(need, tokens=stored or need.tokens))
    yield Unlock(key=need.key)
    return stored


def _renew_locked(grant: Grant, need: Need) -> Flow[Tokens | None]:
    try:
        tokens = yield from grant.renew(need)
    except FetchFailed:
        raise
    except AuthorizationFailed as error:
        if error.error is None or need.tokens is None or need.tokens.refresh_token is None:
            raise  # not an answer about a refresh token: a new grant would fail too
        if error.error == "invalid_grant":
            # A storage without locks: another client may have used the refresh token and stored its successor.
            other = yield from adopt(grant, need)
            if other is not None:
                return other
            yield Save(key=need.key, record=evolve(need.tokens, refresh_token=None).record())
        return None
    if tokens is not None:
        yield Save(key=need.key, record=tokens.record())
    return tokens


def acquire(grant: Grant, need: Need) -> Flow[Tokens]:
    """Obtain new tokens; involves the user only if they cannot be renewed.

    Raises:
        AuthorizationFailed: no tokens could be obtained.
    """
    if need.may_refresh and not need.step_up:
        renewed = yield from renew(grant, need)
        if renewed is not None:
            return renewed
    tokens = yield from grant.obtain(need)
    with suppress(FetchFailed):  # what the user has granted is stored in any case
        yield Lock(key=need.key)  # after a renewal by another client, which would overwrite the new tokens
    yield Save(key=need.key, record=tokens.record())
    yield Unlock(key=need.key)
    return tokens
