"""The requests that are sent, byte by byte the same for every contender."""

from __future__ import annotations

import json
from typing import Any

STATEFUL = "2025-11-25"
STATELESS = "2026-07-28"
BOTH = "application/json, text/event-stream"
CLIENT = {"name": "bench", "version": "1"}


def frame(method: str, params: dict[str, Any] | None = None, id: int | None = None) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if id is not None:
        message["id"] = id
    if params is not None:
        message["params"] = params
    return json.dumps(message, separators=(",", ":")).encode()


def initialize(capabilities: dict[str, Any] | None = None) -> bytes:
    params = {"protocolVersion": STATEFUL, "capabilities": capabilities or {}, "clientInfo": CLIENT}
    return frame("initialize", params, 0)


INITIALIZED = frame("notifications/initialized")


def call(tool: str, arguments: dict[str, Any], id: int = 1, token: int | None = None) -> bytes:
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    if token is not None:
        params["_meta"] = {"progressToken": token}
    return frame("tools/call", params, id)


def stateless(body: bytes) -> bytes:
    """Turn a request into a stateless one, which carries in `_meta` what a session would know."""
    message = json.loads(body)
    meta = message["params"].setdefault("_meta", {})
    meta["io.modelcontextprotocol/protocolVersion"] = STATELESS
    meta["io.modelcontextprotocol/clientCapabilities"] = {}
    meta["io.modelcontextprotocol/clientInfo"] = CLIENT
    return json.dumps(message, separators=(",", ":")).encode()


def post(port: int, body: bytes, session: str | None = None, **headers: str) -> bytes:
    """Return the bytes of a POST; without `session` it is stateless, or it opens a session."""
    fields = {
        "Host": f"127.0.0.1:{port}",
        "Accept": BOTH,
        "Accept-Encoding": "gzip, deflate",
        "User-Agent": "bench/1",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **({"Mcp-Session-Id": session, "MCP-Protocol-Version": STATEFUL} if session else {}),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    return b"POST /mcp HTTP/1.1\r\n" + lines(fields) + body


def post_stateless(port: int, body: bytes) -> bytes:
    """Return the bytes of a stateless POST, whose headers repeat parts of the body."""
    message = json.loads(body)
    named = {"Mcp_Name": message["params"]["name"]} if message["method"] == "tools/call" else {}
    return post(port, stateless(body), MCP_Protocol_Version=STATELESS, Mcp_Method=message["method"], **named)


def get(port: int, session: str, cursor: str | None = None) -> bytes:
    fields = {
        "Host": f"127.0.0.1:{port}",
        "Accept": "text/event-stream",
        "Mcp-Session-Id": session,
        "MCP-Protocol-Version": STATEFUL,
        **({"Last-Event-ID": cursor} if cursor else {}),
    }
    return b"GET /mcp HTTP/1.1\r\n" + lines(fields)


def lines(fields: dict[str, str]) -> bytes:
    return "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode() + b"\r\n"
