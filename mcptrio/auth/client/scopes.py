"""Selection of scopes (2026-07-28 authorization, "Scope Selection Strategy" and "Step-Up Authorization Flow")."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

OFFLINE: Final = "offline_access"


def select(
    *,
    challenged: tuple[str, ...] | None,
    configured: tuple[str, ...] | None,
    supported: tuple[str, ...] | None,
    before: tuple[str, ...] = (),
    offline: bool = False,
) -> tuple[str, ...]:
    """Select the scopes of a request; empty means to omit the parameter.

    The scopes of the challenge are used, otherwise those in the server's metadata. Scopes that the user configured or
    that were requested before are kept, because a server names only those that the current operation needs. `offline`
    adds `offline_access`, but never alone: alone it would replace the server's default scopes.
    """
    base = challenged or (() if configured else supported or ())
    chosen = union(before, configured or (), base)
    return union(chosen, (OFFLINE,)) if offline and chosen else chosen


def union(*parts: Iterable[str]) -> tuple[str, ...]:
    """Concatenate scopes in order, without duplicates."""
    return tuple(dict.fromkeys(scope for part in parts for scope in part))
