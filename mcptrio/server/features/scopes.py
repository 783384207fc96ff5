"""Access to tools, resources and prompts: the scopes of the caller, and the predicates given as `visible=`.

Without authentication (stdio, or by explicit choice) scopes are not checked. A caller that lacks a scope does not see
the entry in a list; a request that uses it by name gets an error with the required scopes, so that the client can ask
for a better token. An entry that is not visible does not exist for the caller.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from mcptrio._actors.exchange import Exchange
from mcptrio.errors import INVALID_REQUEST, DeclarationError, RemoteProtocolError
from mcptrio.server.context import Context
from mcptrio.server.registry import Registry

UNSET: Final[Any] = object()
"""`auth=` was not given, unlike `auth=None`."""

logger = logging.getLogger("mcptrio.access")


_SIGNS: Final = frozenset(' "\\')


class ScopedEntry(Protocol):
    """An entry with access rules: a tool, resource, template or prompt."""

    visible: Callable[[Context], bool] | None
    scopes: tuple[str, ...]


def declared_scopes(scopes: str | Sequence[str]) -> tuple[str, ...]:
    """Return the scopes of a declaration, each once."""
    listed = (scopes,) if isinstance(scopes, str) else tuple(scopes)
    for scope in listed:
        if type(scope) is not str or not scope or not scope.isascii() or not scope.isprintable() or set(scope) & _SIGNS:
            raise DeclarationError(
                f'{scope!r} is not a scope; scopes look like "orders:write" (RFC 6749 section 3.3); '
                "write a list of several"
            )
    return tuple(dict.fromkeys(listed))


def check_visible(visible: Any) -> None:
    """Check the predicate of a declaration.

    Raises:
        DeclarationError: it is not a function, or an async one, whose result would always count as true.
    """
    plain = visible
    while isinstance(plain, partial):
        plain = plain.func
    if isinstance(plain, type) or not callable(plain):
        raise DeclarationError(f"visible= is a function that gets the context, not {visible!r:.80}: lambda ctx: ...")
    for function in (plain, plain.__call__):
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise DeclarationError(
                "visible= must not be async: it is called while a list is made. Load what it needs beforehand, for "
                "example in the session function, and read it from ctx.state"
            )
        if inspect.isgeneratorfunction(function):
            raise DeclarationError("visible= must return True or False, not yield")


def is_visible(entry: ScopedEntry, ctx: Context) -> bool:
    """Call the predicate of an entry. One that fails hides its entry, and the log says why."""
    if entry.visible is None:
        return True
    try:
        verdict: Any = entry.visible(ctx)
        if inspect.isawaitable(verdict):
            if inspect.iscoroutine(verdict):
                verdict.close()
            raise TypeError("visible= returned an awaitable; it must return True or False")
        return bool(verdict)
    except Exception:
        logger.exception("visible= of %r failed; the entry is hidden from this request", _name(entry))
        return False


def _name(entry: Any) -> str:
    wire = entry.wire
    return str(wire.get("uri") or wire.get("uriTemplate") or wire.get("name"))


def granted(ctx: Context) -> frozenset[str] | None:
    """Return the scopes of the caller, or None if callers are not authenticated."""
    head = ctx._call.start.head
    return None if head is None else head.scopes


def shown_to(ctx: Context) -> Callable[[Any], bool]:
    """Return the predicate of the entries that this caller sees."""
    scopes = granted(ctx)

    def shown(entry: ScopedEntry) -> bool:
        if scopes is not None and entry.scopes and not scopes.issuperset(entry.scopes):
            return False
        return is_visible(entry, ctx)

    return shown


def page_key(ctx: Context, registry: Registry[Any]) -> frozenset[str] | bool | None:
    """Return the caller's scopes that any entry requires, as the cache key of list pages; None if there are none.

    False means that the list is made for each request, because an entry has a `visible=` predicate.
    """
    asked = registry.find_once("scopes", _asked)
    if asked is None:
        return False
    scopes = granted(ctx) if asked else None
    return None if scopes is None else scopes & asked


def _asked(entries: Iterable[ScopedEntry]) -> frozenset[str] | None:
    """Return every scope that an entry requires, or None if one has a `visible=` predicate."""
    asked: set[str] = set()
    for entry in entries:
        if entry.visible is not None:
            return None
        asked.update(entry.scopes)
    return frozenset(asked)


def require_scopes(ctx: Context, scopes: Sequence[str]) -> None:
    """Raise the error for a 403 unless the caller holds all of these scopes."""
    if holds_scopes(ctx, scopes):
        return
    needed = sorted(scopes)
    raise RemoteProtocolError(
        f"insufficient scope; required: {' '.join(needed)}",
        code=INVALID_REQUEST,
        http_status=403,
        data={"error": "insufficient_scope", "scopes": needed},
    )


def holds_scopes(ctx: Context, scopes: Sequence[str]) -> bool:
    """Return whether the caller holds all of these scopes, or scopes are not checked."""
    held = granted(ctx) if scopes else None
    return held is None or held.issuperset(scopes)


def session_of(ctx: Context) -> str | None:
    """Return the id of the session that a request belongs to; None where requests have no session."""
    session = ctx._session
    if isinstance(session, Exchange) and session.origin is not None:
        session = session.origin  # a task belongs to the session that started it
    return None if isinstance(session, Exchange) else session.id


def caller_of(ctx: Context) -> str:
    """Return the key of a caller for limits: the principal, the session, or the remote address."""
    principal = ctx.principal
    if principal is not None:
        return str(principal.key)
    if ctx._call.start.era.stateful:
        return ctx._session.id
    head = ctx._call.start.head
    return str(head.client[0]) if head is not None and head.client else ""
