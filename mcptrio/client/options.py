"""The keywords of `connect`, `connect_all` and `Client`, for type checkers; nothing imports this module to connect."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypedDict

import httpx2

from mcptrio import telemetry
from mcptrio._wire.jsonrpc import JsonLimits
from mcptrio.client.callbacks import (
    ElicitCallback,
    LogCallback,
    NotificationCallback,
    RootsCallback,
    SampleCallback,
)
from mcptrio.client.features.roots import RootLike
from mcptrio.client.features.url_elicitation import VisitedCallback
from mcptrio.transports.http_client import HttpAuth, HttpClientConfig
from mcptrio.transports.retry import Reconnect
from mcptrio.types import Implementation, LoggingLevel


class ClientSettings(TypedDict, total=False):
    """The fields of `ClientConfig`, which documents them, that are not parameters of `Client` with a name."""

    open_timeout: float
    probe_timeout: float
    callback_timeout: float
    visit_timeout: float
    max_rounds: int
    max_pages: int
    max_items: int
    json_limits: JsonLimits
    cache_entries: int
    check_results: bool


class ClientOptions(ClientSettings, total=False):
    """The options of a client, which `Client` documents."""

    elicit: ElicitCallback | None
    elicit_modes: Iterable[str]
    visited: VisitedCallback | None
    sample: SampleCallback | None
    sample_tools: bool
    roots: Iterable[RootLike] | RootsCallback | None
    log: LogCallback | None
    log_level: LoggingLevel | None
    on_notification: NotificationCallback | None
    routes: Mapping[str, Callable[..., Awaitable[Any]]] | None
    extensions: Mapping[str, Mapping[str, Any]] | None
    auth: HttpAuth | None
    headers: Mapping[str, str] | None
    http_client: httpx2.AsyncClient | None
    http: HttpClientConfig | None
    env: Mapping[str, str | os.PathLike[str]] | None
    cwd: str | os.PathLike[str] | None
    on_stderr: Callable[[str], None] | None
    protocol: str | Iterable[str] | None
    info: Implementation | None
    timeout: float
    total_timeout: float
    reconnect: Reconnect | None
    on_event: telemetry.Listener | None
