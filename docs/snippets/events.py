"""A listener for events, and log messages of your own."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

from mcptrio import Context, Server, telemetry
from mcptrio.telemetry.log import LogListener

logger = logging.getLogger("shop")
server = Server("observed")
server.on_event(LogListener())  # `mcptrio run` does this by itself
outcomes: Counter[str] = Counter()


@server.on_event
def count(event: Any) -> None:
    """Count outcomes. A listener must not wait; an exception in it is logged and affects no other listener."""
    match event:
        case telemetry.CallEnded(method=method, outcome=outcome):
            outcomes[f"{method} {outcome}"] += 1
        case telemetry.LoopStalled(seconds=seconds, culprit=culprit):
            logger.warning("%s blocked the event loop for %.1f s", culprit, seconds)


@server.tool
async def greet(name: str, ctx: Context) -> str:
    """Say hello."""
    logger.info("greeting %s", name)  # to our own log
    await ctx.info({"greeted": name})  # to the client's, if it wants messages of this level
    return f"Hello, {name}."
