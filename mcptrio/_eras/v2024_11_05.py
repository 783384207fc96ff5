"""2024-11-05: the first date. HTTP+SSE is its own transport; it is served over Streamable HTTP as well."""

from __future__ import annotations

from functools import partial

from mcptrio._eras.stateful import TO_CLIENT, TO_SERVER, by_method
from mcptrio._peer.era import Era, Features, HttpRules, Method
from mcptrio.errors import RESOURCE_NOT_FOUND

REQUESTS = {
    "initialize": Method(TO_SERVER),
    "ping": Method(None),
    "tools/list": Method(TO_SERVER, ("tools",)),
    "tools/call": Method(TO_SERVER, ("tools",)),
    "resources/list": Method(TO_SERVER, ("resources",)),
    "resources/templates/list": Method(TO_SERVER, ("resources",)),
    "resources/read": Method(TO_SERVER, ("resources",)),
    "resources/subscribe": Method(TO_SERVER, ("resources", "subscribe")),
    "resources/unsubscribe": Method(TO_SERVER, ("resources", "subscribe")),
    "prompts/list": Method(TO_SERVER, ("prompts",)),
    "prompts/get": Method(TO_SERVER, ("prompts",)),
    "completion/complete": Method(TO_SERVER),  # its capability was added in 2025-03-26
    "logging/setLevel": Method(TO_SERVER, ("logging",)),
    "sampling/createMessage": Method(TO_CLIENT, ("sampling",)),
    "roots/list": Method(TO_CLIENT, ("roots",)),
}


ERA = Era(
    date="2024-11-05",
    stateful=True,
    batching=False,
    requests=REQUESTS,
    notifications=frozenset(
        {
            "notifications/initialized",
            "notifications/cancelled",
            "notifications/progress",
            "notifications/message",
            "notifications/roots/list_changed",
            "notifications/tools/list_changed",
            "notifications/prompts/list_changed",
            "notifications/resources/list_changed",
            "notifications/resources/updated",
        }
    ),
    shapes={
        "implementation": frozenset({"name", "version"}),
        "capabilities": frozenset({"experimental", "logging", "prompts", "resources", "tools"}),
        # Annotations are newer; older clients ignore them, and some hosts show them at any revision.
        "tool": frozenset({"name", "description", "inputSchema", "annotations"}),
        "resource": frozenset({"uri", "name", "description", "mimeType", "annotations", "size"}),
        "template": frozenset({"uriTemplate", "name", "description", "mimeType", "annotations"}),
        "prompt": frozenset({"name", "description", "arguments"}),
        "argument": frozenset({"name", "description", "required"}),
        "contents": frozenset({"uri", "mimeType", "text", "blob"}),
        "progress": frozenset({"progressToken", "progress", "total"}),
        "sampling": frozenset(
            {
                "messages",
                "modelPreferences",
                "systemPrompt",
                "includeContext",
                "temperature",
                "maxTokens",
                "stopSequences",
                "metadata",
            }
        ),
    },
    content=frozenset({"text", "image", "resource"}),
    features=Features(),
    http=HttpRules(),
    missing=partial(by_method, REQUESTS),
    resource_not_found=RESOURCE_NOT_FOUND,
)
