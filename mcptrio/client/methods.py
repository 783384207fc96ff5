"""The routing table of a client: reading it top to bottom is reading what a server may ask and tell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from mcptrio._actors.router import Route

if TYPE_CHECKING:
    from mcptrio.client.connection import Asking

TOLD = (
    "notifications/message",
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/elicitation/complete",
    "notifications/subscriptions/acknowledged",
)


def ping(ctx: Asking, params: dict[str, Any]) -> dict[str, Any]:
    return {}


async def answer(ctx: Asking, params: dict[str, Any]) -> dict[str, Any]:
    with ctx.connection.service.patience.answering():
        return await ctx.host.answer(ctx.method, params)


def told(ctx: Asking, params: dict[str, Any]) -> None:
    ctx.connection.on_notification(ctx.method, params)


def custom(method: str, handler: Callable[..., Awaitable[Any]]) -> Route:
    """A row of the user's own."""
    if method.startswith("notifications/"):
        return Route(method, None, handler)

    async def answer(ctx: Asking, params: dict[str, Any]) -> Any:
        with ctx.connection.service.patience.answering():
            return await handler(ctx, params)

    return Route(method, None, answer)


METHODS = (
    Route("ping", None, ping, inline=True),
    Route("roots/list", None, answer),
    Route("sampling/createMessage", None, answer),
    Route("elicitation/create", None, answer),
    *(Route(method, None, told, inline=True) for method in TOLD),
)
