"""Validation of settings: invalid or contradictory values are refused when a server is built, with a hint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from inspect import iscoroutinefunction, signature
from typing import TYPE_CHECKING, Any

import trio

from mcptrio._actors.limits import Limits
from mcptrio._settings import check_not_negative, check_value
from mcptrio._wire.jsonrpc import JsonLimits
from mcptrio.errors import DeclarationError
from mcptrio.server.features.options import check_count, check_icons, check_options, check_text
from mcptrio.server.features.tool_declaration import ToolDefaults

if TYPE_CHECKING:
    from mcptrio.cluster.config import ClusterConfig
    from mcptrio.stores import Store
    from mcptrio.transports.http_server.config import HttpConfig


def check_server(
    name: Any,
    threads: Any,
    max_reply: Any,
    limits: Any,
    icons: Any,
    experimental: Any,
    tool_defaults: Mapping[str, Any],
    **texts: Any,
) -> None:
    """Check the arguments of `Server`; `texts` are those that are a string if they are given.

    Raises:
        DeclarationError: one of them is invalid.
        TypeError: there is no such argument.
    """
    for argument in tool_defaults:
        if argument not in ToolDefaults.__annotations__:
            raise TypeError(f"Server() got an unexpected keyword argument {argument!r}{_server_hint(argument)}")
    check_options(tool_defaults, ToolDefaults.__annotations__, kind="server", name=str(name))
    if not isinstance(name, str) or not name:
        raise DeclarationError(f'a server needs a name, as in Server("orders"), not {name!r:.80}')
    for argument, text in texts.items():
        if text is not None:
            check_text(argument, text)
    check_count("threads", threads)
    check_count("max_reply", max_reply)
    check_value("limits", limits, Limits | None)
    check_value("experimental", experimental, Mapping[str, Mapping[str, Any]] | None)
    if icons is not None:
        check_icons("icons", icons)


def _server_hint(argument: str) -> str:
    from mcptrio._hints import hint
    from mcptrio.server.server import Server

    known = signature(Server).parameters.keys() | ToolDefaults.__annotations__.keys()
    found = hint("server option", argument, known)
    return f"; {found}" if found else ""


def require_async(fn: object, otherwise: str) -> None:
    """Raise `DeclarationError` with this text unless `fn` is an async function."""
    if not iscoroutinefunction(fn):
        raise DeclarationError(otherwise)


def chosen_store(store: Store | str | None) -> Store | None:
    """Return the store that `store=` chooses: the object, or the one that a text names.

    Raises:
        DeclarationError: the text names no store, or the object is none.
    """
    if isinstance(store, str):
        from mcptrio.stores import open_store

        return open_store(store)
    given: Any = store
    # A path has a method open() too.
    if given is not None and (isinstance(given, type | os.PathLike) or not callable(getattr(given, "open", None))):
        got = f"not a {type(given).__name__}"  # its text may be a password
        raise DeclarationError(f"store is a store or its URL, as in store='sqlite:///sessions.db', {got}")
    return store


def check_pipe(stop: Any, drain_timeout: Any, json_limits: Any) -> float:
    """Check the settings of a server on a pipe, and return `drain_timeout` as a number.

    Raises:
        DeclarationError: one of them is invalid.
    """
    check_value("stop", stop, trio.Event | None)
    check_value("json_limits", json_limits, JsonLimits)
    seconds: float = check_value("drain_timeout", drain_timeout, float)
    check_not_negative("drain_timeout", seconds)
    return seconds


def check_cluster(cluster: ClusterConfig | None, store: Store | None) -> None:
    """Refuse the settings of a cluster where there is none.

    Raises:
        DeclarationError: they are no `ClusterConfig`, or the store is not shared.
    """
    if cluster is None:
        return
    from mcptrio.cluster.config import ClusterConfig

    check_value("cluster", cluster, ClusterConfig)
    if store is None or not store.shared:
        raise DeclarationError(
            "cluster= needs a store that several processes share: pass store=RedisStore.from_url('redis://HOST')"
        )


def check_http(http: HttpConfig, limits: Limits, store: Store | None, auth: Any) -> None:
    """Check the settings of an HTTP server together with those of its store and its authentication.

    Raises:
        DeclarationError: two contradict each other.
    """
    from mcptrio.auth.server import BearerAuth
    from mcptrio.stores import StoreLimits

    kept = StoreLimits() if store is None else getattr(store, "limits", None)
    if isinstance(kept, StoreLimits):
        for name, what in (("events", "events"), ("bytes", "bytes")):
            have, need = getattr(kept, f"stream_{name}"), getattr(http, f"outbox_{name}")
            if have < need:
                # Queued events are read from the store: it must not drop them before they were sent.
                raise DeclarationError(
                    f"the store keeps {have} {what} of a stream (StoreLimits.stream_{name}), and {need} may wait for "
                    f"a client (outbox_{name}): lower outbox_{name}, or pass "
                    f"store=MemoryStore(StoreLimits(stream_{name}={need}))"
                )
        if store is not None and store.durable and kept.sessions < limits.max_sessions:
            raise DeclarationError(
                f"the store has room for {kept.sessions} sessions (StoreLimits.sessions), and there may be "
                f"{limits.max_sessions} (Limits.max_sessions): raise the one or lower the other"
            )
    if http.rate is not None and http.rate_burst < 1:
        raise DeclarationError(
            f"rate_burst={http.rate_burst:g} would let no request through: it must be 1 or more where rate is set"
        )
    if isinstance(auth, BearerAuth) and auth.max_token >= http.max_header_bytes:
        raise DeclarationError(
            f"BearerAuth.max_token ({auth.max_token} bytes) does not fit into a request's headers "
            f"(max_header_bytes={http.max_header_bytes}): lower max_token or raise max_header_bytes"
        )
