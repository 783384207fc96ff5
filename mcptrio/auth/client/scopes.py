"""Which scopes to ask for (2026-07-28 authorization, "Scope Selection Strategy" and "Step-Up Authorization Flow")."""

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
    """The scopes of a request; empty means to leave the parameter out.

    What the challenge names decides, otherwise what the server's metadata lists. Scopes that the user configured, and
    those asked for before, are kept: a server names only what the operation at hand needs. `offline` says that the
    authorization server knows `offline_access`; alone it would replace the server's default, so it only ever joins.
    """
    base = challenged or (() if configured else supported or ())
    chosen = union(before, configured or (), base)
    return union(chosen, (OFFLINE,)) if offline and chosen else chosen


def union(*parts: Iterable[str]) -> tuple[str, ...]:
    """All of them in order, each once."""
    return tuple(dict.fromkeys(scope for part in parts for scope in part))
