"""A client that speaks one revision well, so that a case has one thing wrong and no other."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .wire import Connection, Reply

MODERN = "2026-07-28"
STATEFUL = ("2025-03-26", "2025-06-18", "2025-11-25")
DATES = (*STATEFUL, MODERN)
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Speaker:
    """One client of one revision, with a connection for good requests."""

    def __init__(self, port: int, date: str) -> None:
        self.port = port
        self.date = date
        self.session: str | None = None
        self.authorization: str | None = None
        self._connection: Connection | None = None

    @property
    def modern(self) -> bool:
        return self.date == MODERN

    @property
    def connection(self) -> Connection:
        if self._connection is None:
            self._connection = Connection(self.port)
        return self._connection

    def params(self, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Parameters as this revision has them."""
        given = dict(params or {})
        if self.modern:
            given["_meta"] = {**META, **given.get("_meta", {})}
        return given

    def message(self, method: str, params: Mapping[str, Any] | None = None, request_id: Any = 1) -> bytes:
        frame: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": self.params(params)}
        if request_id is None:
            del frame["id"]
        return json.dumps(frame).encode()

    def initialize(self, **changes: Any) -> bytes:
        params = {
            "protocolVersion": self.date,
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "c", "version": "1"},
            **changes,
        }
        return json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).encode()

    def fields(self, body: bytes = b"") -> dict[str, str]:
        """The headers that belong to a body."""
        fields = {
            "host": f"127.0.0.1:{self.port}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "content-length": str(len(body)),
        }
        if self.authorization is not None:
            fields["authorization"] = self.authorization
        if self.session is not None:
            fields["mcp-session-id"] = self.session
        if self.modern or self.session is not None:
            fields["mcp-protocol-version"] = self.date
        if self.modern:
            method, name = "tools/call", "echo"
            try:
                frame = json.loads(body)
                method = frame["method"]
                name = frame["params"].get(_NAMED.get(method, ""), "")
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                pass
            fields["mcp-method"] = method if isinstance(method, str) and method.isprintable() else "x"
            if isinstance(name, str) and name.isascii() and name.isprintable() and name:
                fields["mcp-name"] = name
        return fields

    def head(
        self,
        method: str = "POST",
        body: bytes = b"",
        *,
        path: str = "/mcp",
        version: str = "1.1",
        headers: Mapping[str, str | bool | None] | None = None,
        lines: tuple[bytes, ...] = (),
    ) -> bytes:
        """A request's head; `headers` replace those that belong to it, None or False leaves one out."""
        fields: dict[str, Any] = {**self.fields(body), **{k.lower(): v for k, v in (headers or {}).items()}}
        shown = [f"{name}: {value}".encode() for name, value in fields.items() if value not in (None, False)]
        first = f"{method} {path} HTTP/{version}".encode()
        return b"\r\n".join([first, *shown, *lines]) + b"\r\n\r\n"

    def exchange(self, body: bytes, **options: Any) -> Reply:
        """A good request, on the connection for good requests."""
        self.connection.send(self.head("POST", body, **options) + body)
        return self.connection.read()

    def ask(self, method: str, params: Mapping[str, Any] | None = None, request_id: Any = 1) -> Reply:
        return self.exchange(self.message(method, params, request_id))

    def call(self, tool: str, request_id: Any = 1, **arguments: Any) -> Reply:
        return self.ask("tools/call", {"name": tool, "arguments": arguments}, request_id)

    def tell(self, method: str, params: Mapping[str, Any] | None = None) -> Reply:
        return self.exchange(self.message(method, params, None))

    def open_session(self) -> None:
        """`initialize` and `notifications/initialized`, where the revision has sessions."""
        if self.modern:
            return
        opened = self.exchange(self.initialize())
        assert opened.status == 200, opened
        assert opened.answer["result"]["protocolVersion"] == self.date
        self.session = opened.headers["mcp-session-id"]
        assert self.tell("notifications/initialized").status == 202

    def end_session(self) -> None:
        if self.session is not None:
            self.connection.send(self.head("DELETE", headers={"content-length": None}))
            assert self.connection.read("DELETE").status in (200, 404)
            self.session = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.socket.close()
            self._connection = None
