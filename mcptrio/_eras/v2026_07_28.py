"""2026-07-28: no sessions, no handshake; servers ask inside results and report changes on a listen stream."""

from __future__ import annotations

from msgspec.structs import replace

from mcptrio._eras import v2025_11_25 as before
from mcptrio._eras.stateful import TO_SERVER
from mcptrio._eras.stateless import MAY_ASK
from mcptrio._peer.era import HttpRules, Method
from mcptrio.errors import INVALID_PARAMS

REMOVED = {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
REMOVED_NOTIFICATIONS = {
    "notifications/initialized",
    "notifications/roots/list_changed",
    "notifications/elicitation/complete",
}
REQUESTS = {
    **{name: method for name, method in before.REQUESTS.items() if name not in REMOVED},
    "server/discover": Method(TO_SERVER),
    "subscriptions/listen": Method(TO_SERVER),
}
SHAPES = before.ERA.shapes


ERA = replace(
    before.ERA,
    date="2026-07-28",
    stateful=False,
    requests=REQUESTS,
    notifications=(before.ERA.notifications - REMOVED_NOTIFICATIONS) | {"notifications/subscriptions/acknowledged"},
    shapes={
        **SHAPES,
        "capabilities": SHAPES["capabilities"] | {"extensions"},
        "tool": SHAPES["tool"] - {"execution"},
    },
    features=replace(
        before.ERA.features,
        elicitation_error=False,
        asks_in_results=True,
        cache_hints=True,
        any_structured_content=True,
    ),
    http=HttpRules(
        sessions=False,
        resumable=False,
        primes=False,
        version_header=True,
        unknown_method_status=404,
        missing_capability_status=400,
        disconnect_cancels=True,
    ),
    resource_not_found=INVALID_PARAMS,
    may_ask=MAY_ASK,
)
