"""Scopes: what a caller may see and use. Where nobody is authenticated (stdio, or by explicit choice) all may.

A caller that lacks a scope does not see the thing in a list; one that uses it by name is told which scopes it needs, so
that it can get a better token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from mcptrio.errors import INVALID_REQUEST, DeclarationError, RemoteProtocolError
from mcptrio.server.context import Context
from mcptrio.server.registry import Registry

UNSET: Final[Any] = object()
"""Nothing was said about who may come in, which is not the same as `auth=None`."""


class Entry(Protocol):
    """What scopes can be declared for."""

    visible: Callable[[Context], bool] | None
    scopes: tuple[str, ...]


def declared_scopes(scopes: str | Sequence[str]) -> tuple[str, ...]:
    """The scopes of a declaration, each once."""
    listed = (scopes,) if isinstance(scopes, str) else tuple(scopes)
    for scope in listed:
        if not scope or any(sign in scope for sign in ' "\\') or not scope.isascii() or not scope.isprintable():
            raise DeclarationError(f'{scope!r} is not a scope; scopes look like "orders:write" (RFC 6749 section 3.3)')
    return tuple(dict.fromkeys(listed))


def granted(ctx: Context) -> frozenset[str] | None:
    """The scopes of the caller; None where they do not matter."""
    head = getattr(ctx._call.start.link, "head", None)
    return None if head is None else head.scopes


def shown_to(ctx: Context) -> Callable[[Any], bool]:
    """Which entries this caller sees."""
    scopes = granted(ctx)

    def shown(entry: Entry) -> bool:
        if scopes is not None and entry.scopes and not scopes.issuperset(entry.scopes):
            return False
        return entry.visible is None or entry.visible(ctx)

    return shown


def page_key(ctx: Context, registry: Registry[Any]) -> frozenset[str] | bool | None:
    """What a list differs by: the caller's scopes as far as anything asks for them, None if it is the same for all.

    False if it is decided anew for each request.
    """
    asked = registry.find_once("scopes", _asked)
    if asked is None:
        return False
    scopes = granted(ctx) if asked else None
    return None if scopes is None else scopes & asked


def _asked(entries: Iterable[Entry]) -> frozenset[str] | None:
    """Every scope that any of them asks for; None if some decide for themselves who sees them."""
    asked: set[str] = set()
    for entry in entries:
        if entry.visible is not None:
            return None
        asked.update(entry.scopes)
    return frozenset(asked)


def require(ctx: Context, entry: Entry) -> None:
    """Raises what is answered with 403 unless the caller has every scope that the entry asks for."""
    if entry.scopes:
        scopes = granted(ctx)
        if scopes is not None and not scopes.issuperset(entry.scopes):
            raise insufficient(entry.scopes)


def insufficient(scopes: Iterable[str]) -> RemoteProtocolError:
    needed = sorted(scopes)
    return RemoteProtocolError(
        f"more is needed to do this: {' '.join(needed)}",
        code=INVALID_REQUEST,
        http_status=403,
        data={"error": "insufficient_scope", "scopes": needed},
    )


def caller_of(ctx: Context) -> str:
    """What tells callers apart for limits: the principal, the session, or where the request comes from."""
    principal = ctx.principal
    if principal is not None:
        return str(getattr(principal, "key", principal))
    if ctx._call.start.era.stateful:
        return ctx._session.id
    client = getattr(getattr(ctx._call.start.link, "head", None), "client", None)
    return str(client[0]) if client else ""
