"""Settings that contradict each other: refused when a server is built, with a text that says how to mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcptrio.errors import DeclarationError

if TYPE_CHECKING:
    from mcptrio._actors.call import Limits
    from mcptrio._actors.supervisor import SupervisorLimits
    from mcptrio.stores import Store
    from mcptrio.transports.http_server.config import HttpConfig
    from mcptrio.transports.http_server.serve import ListenerConfig


def check_limits(limits: Limits, sessions: SupervisorLimits) -> None:
    """The bounds of a server.

    Raises:
        DeclarationError: one of them is of no use, or two contradict each other.
    """
    for name in ("inbox", "running", "waiting", "call_timeout", "call_timeout_hard", "ask_timeout", "zombies"):
        if not getattr(limits, name) > 0:
            raise DeclarationError(f"Limits.{name} must be positive, got {getattr(limits, name)!r}")
    if limits.call_timeout > limits.call_timeout_hard:
        raise DeclarationError(
            f"Limits.call_timeout ({limits.call_timeout:g} s without progress) is more than call_timeout_hard "
            f"({limits.call_timeout_hard:g} s in all), so it would never count: raise call_timeout_hard too"
        )
    for name in ("max_sessions", "idle_timeout", "confirm_timeout", "check_every"):
        if not getattr(sessions, name) > 0:
            raise DeclarationError(f"SupervisorLimits.{name} must be positive, got {getattr(sessions, name)!r}")


def check_http(
    http: HttpConfig, listening: ListenerConfig, sessions: SupervisorLimits, store: Store | None, auth: Any
) -> None:
    """The settings of an HTTP endpoint, of its listener, its store and its authorization.

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
                # What waits for a connection is read from the store: it must not be gone before it was sent.
                raise DeclarationError(
                    f"the store keeps {have} {what} of a stream (StoreLimits.stream_{name}), and {need} may wait for "
                    f"a client (outbox_{name}): lower outbox_{name}, or pass "
                    f"store=MemoryStore(StoreLimits(stream_{name}={need}))"
                )
        if store is not None and store.durable and kept.sessions < sessions.max_sessions:
            raise DeclarationError(
                f"the store has room for {kept.sessions} sessions (StoreLimits.sessions), and there may be "
                f"{sessions.max_sessions} (SupervisorLimits.max_sessions): raise the one or lower the other"
            )
    if http.rate is not None and http.rate_burst < 1:
        raise DeclarationError(
            f"rate_burst={http.rate_burst:g} would let no request through: it must be 1 or more where rate is set"
        )
    if http.max_body != listening.max_body:
        raise DeclarationError(
            f"max_body is {http.max_body} for the endpoint and {listening.max_body} for its listener: "
            "set it once, in HttpConfig or as max_body="
        )
    if isinstance(auth, BearerAuth) and auth.max_token >= listening.max_header_bytes:
        raise DeclarationError(
            f"BearerAuth.max_token ({auth.max_token} bytes) does not fit into a request's headers "
            f"(max_header_bytes={listening.max_header_bytes}): lower max_token or raise max_header_bytes"
        )
