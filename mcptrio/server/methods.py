"""The routing table of a server: all its methods and their handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcptrio._actors.router import Route
from mcptrio.server.features import lifecycle
from mcptrio.server.features.tools import failed, usual_call

if TYPE_CHECKING:
    from mcptrio.server.app import App


def methods(app: App) -> tuple[Route, ...]:
    """Return the built-in routes. Parameter classes are given by name, so that unused ones are never imported."""
    return (
        Route("initialize", "InitializeParams", app.lifecycle.initialize, inline=True),
        Route("server/discover", "Params", app.lifecycle.discover, inline=True),
        Route("ping", "Params", lifecycle.ping, inline=True),
        Route("logging/setLevel", "SetLevelParams", lifecycle.set_level, inline=True),
        Route("tools/list", "PaginatedParams", app.tools.list_all, inline=True),
        Route(
            "tools/call",
            "CallToolParams",
            app.tools.call,
            quick=usual_call,
            named_by="name",
            entries=app.tools.registry.entries,
            timed_out=app.tools.timed_out,
            failed=failed,
        ),
        Route("resources/list", "PaginatedParams", app.resources.list_all, inline=True),
        Route("resources/templates/list", "PaginatedParams", app.resources.list_templates, inline=True),
        Route("resources/read", "ReadResourceParams", app.resources.read, named_by="uri"),
        Route("resources/subscribe", "SubscribeParams", app.subscriptions.subscribe),
        Route("resources/unsubscribe", "SubscribeParams", app.subscriptions.unsubscribe, inline=True),
        Route("subscriptions/listen", "SubscriptionsListenParams", app.listen_requests.listen, long=True),
        Route("prompts/list", "PaginatedParams", app.prompts.list_all, inline=True),
        Route(
            "prompts/get",
            "GetPromptParams",
            app.prompts.get,
            named_by="name",
            entries=app.prompts.registry.entries,
        ),
        Route("completion/complete", "CompleteParams", app.completions.complete, named_by="ref"),
        Route("notifications/roots/list_changed", "Params", app.on_roots_changed),
    )
