"""Log messages of a server, sent to the client."""

from __future__ import annotations

from typing import Any

from .base import Params, frozen
from .levels import LoggingLevel


@frozen(kw_only=True)
class SetLevelParams(Params):
    """The least severe level that the client wants to see."""

    level: LoggingLevel


@frozen(kw_only=True)
class LoggingMessageParams(Params):
    """One log message; `data` is any JSON value and always present, so `None` is a null here."""

    level: LoggingLevel
    logger: str | None = None
    data: Any
