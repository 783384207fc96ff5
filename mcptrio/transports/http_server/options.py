"""The keywords of `serve_http`, `asgi` and `run`, for type checkers; nothing imports this module to serve."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal, TypedDict

from mcptrio._wire.jsonrpc import JsonLimits


class HttpOptions(TypedDict, total=False):
    """The fields of `HttpConfig`, which documents them, as keywords."""

    path: str
    engine: Literal["hypercorn", "direct"]
    host: str | None
    port: int
    unix_path: str | os.PathLike[str] | None
    unix_mode: int
    reuse_port: bool
    backlog: int
    max_connections: int
    header_timeout: float
    keep_alive_timeout: float
    keep_alive_max_requests: int
    write_timeout: float
    max_header_bytes: int
    max_headers: int
    websocket_max_message: int
    websocket_ping_interval: float | None
    certfile: str | os.PathLike[str] | None
    keyfile: str | os.PathLike[str] | None
    keyfile_password: str | None
    client_ca: str | os.PathLike[str] | None
    handshake_timeout: float
    allowed_hosts: Iterable[str] | None
    allowed_origins: Iterable[str] | None
    allowed_headers: Iterable[str]
    server_card: str | None
    access_log: bool
    max_body: int
    max_body_memory: int
    body_timeout: float
    min_body_rate: int
    json_limits: JsonLimits
    max_calls: int
    max_waiting: int
    max_calls_per_principal: int
    rate: float | None
    rate_burst: float
    max_listeners: int
    max_sessions_per_principal: int
    stream_after: float
    json_only: bool
    sse_only: bool
    heartbeat: float
    retry_ms: int
    resume_grace: float
    outbox_events: int
    outbox_bytes: int
    max_outbox_memory: int
    drain_timeout: float
    legacy_sse: bool
    sse_path: str
    messages_path: str
    health: bool
    open_metrics: bool
