"""The routing table of a client: the requests and notifications that it takes from a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from mcptrio._actors.router import Route

if TYPE_CHECKING:
    from mcptrio.client.connection import ClientContext

NOTIFICATIONS = (
    "notifications/message",
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/elicitation/complete",
    "notifications/subscriptions/acknowledged",
)


def ping(ctx: ClientContext, params: dict[str, Any]) -> dict[str, Any]:
    return {}


async def answer(ctx: ClientContext, params: dict[str, Any]) -> dict[str, Any]:
    with ctx.connection.service.timeouts.answering():
        return await ctx.callbacks.answer(ctx.method, params)


def notified(ctx: ClientContext, params: dict[str, Any]) -> None:
    ctx.connection.on_notified(ctx.method, params)


def custom(method: str, handler: Callable[..., Awaitable[Any]]) -> Route:
    """Return the route of a custom method."""
    if method.startswith("notifications/"):
        return Route(method, None, handler)

    async def answer(ctx: ClientContext, params: dict[str, Any]) -> Any:
        with ctx.connection.service.timeouts.answering():
            return await handler(ctx, params)

    return Route(method, None, answer)


METHODS = (
    Route("ping", None, ping, inline=True),
    Route("roots/list", None, answer),
    Route("sampling/createMessage", None, answer),
    Route("elicitation/create", None, answer),
    *(Route(method, None, notified, inline=True) for method in NOTIFICATIONS),
)
