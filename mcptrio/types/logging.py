"""Log messages of a server, sent to the client."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from .base import Params, frozen

LoggingLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LOGGING_LEVELS: Final[tuple[LoggingLevel, ...]] = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
"""The levels of RFC 5424, least severe first."""


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
