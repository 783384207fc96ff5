"""Notifications about a request under way: its progress, and that nobody waits for it any more."""

from __future__ import annotations

from .base import Params, ProgressToken, RequestId, frozen


@frozen(kw_only=True)
class ProgressParams(Params):
    """How far a request has come; the token is the one that the request carried."""

    progress_token: ProgressToken
    progress: float
    total: float | None = None
    message: str | None = None


@frozen(kw_only=True)
class CancelledParams(Params):
    """Which request is cancelled, and why."""

    request_id: RequestId | None = None
    reason: str | None = None
