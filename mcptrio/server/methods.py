"""The routing table of a server: all its methods and their handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcptrio._actors.router import Route
from mcptrio.server.features import lifecycle
from mcptrio.server.features.tools import usual_call

if TYPE_CHECKING:
    from mcptrio.server.server import Server


def methods(server: Server) -> tuple[Route, ...]:
    """Return the built-in routes. Parameter classes are given by name, so that unused ones are never imported."""
    return (
        Route("initialize", "InitializeParams", server.lifecycle.initialize),
        Route("server/discover", "Params", server.lifecycle.discover, inline=True),
        Route("ping", "Params", lifecycle.ping, inline=True),
        Route("logging/setLevel", "SetLevelParams", lifecycle.set_level, inline=True),
        Route("tools/list", "PaginatedParams", server.tools.list_all, inline=True),
        Route(
            "tools/call",
            "CallToolParams",
            server.tools.call,
            quick=usual_call,
            named_by="name",
            entries=server.tools.registry.entries,
            timed_out=server.tools.timed_out,
        ),
        Route("resources/list", "PaginatedParams", server.resources.list_all, inline=True),
        Route("resources/templates/list", "PaginatedParams", server.resources.list_templates, inline=True),
        Route("resources/read", "ReadResourceParams", server.resources.read, named_by="uri"),
        Route("resources/subscribe", "SubscribeParams", server.subscriptions.subscribe),
        Route("resources/unsubscribe", "SubscribeParams", server.subscriptions.unsubscribe, inline=True),
        Route("subscriptions/listen", "SubscriptionsListenParams", server.listen_requests.listen, long=True),
        Route("prompts/list", "PaginatedParams", server.prompts.list_all, inline=True),
        Route(
            "prompts/get",
            "GetPromptParams",
            server.prompts.get,
            named_by="name",
            entries=server.prompts.registry.entries,
        ),
        Route("completion/complete", "CompleteParams", server.completions.complete),
        Route("notifications/roots/list_changed", "Params", server.roots_changed),
    )
