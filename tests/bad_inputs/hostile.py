"""Cases of the client: a server on a real socket or a pipe that answers with what the catalogue says.

The server introduces itself well. The one request of the case (`tools/call`, unless it names another) is answered with
its bytes; `$ANSWER` stands for the good answer, `$ID` for the id of the request. What the caller gets is compared: a
value, or the name of an exception of ours. Then a second server must be served by the same program as if nothing was.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import h11
import trio

from mcptrio import Client, MCPTrioError, Reconnect, Server, connect
from mcptrio.transports.http_client import HttpClientConfig

from .catalogue import Case
from .speaker import MODERN

JSON_HEAD = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%s\r\n"
EVENTS = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
TOOL = {"name": "echo", "inputSchema": {"type": "object"}}


def result_of(method: str, request_id: Any, date: str, extra: dict[str, Any] | None = None) -> dict[str, Any]:
    """A good answer."""
    results: dict[str, dict[str, Any]] = {
        "initialize": {
            "protocolVersion": date,
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "hostile", "version": "1"},
        },
        "server/discover": {
            "supportedVersions": [date],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "hostile", "version": "1"},
        },
        "tools/list": {"tools": [TOOL]},
        "tools/call": {"content": [{"type": "text", "text": "good"}]},
    }
    result = results.get(method, {})
    if date == MODERN:
        result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}
    return {"jsonrpc": "2.0", "id": request_id, "result": {**result, **(extra or {})}}


class HostileServer:
    """Answers one method as the case says, and every other one well."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.data: dict[str, Any] = case.data[case.kind]
        self.method = self.data.get("method", "tools/call")
        self.requests = 0
        """The number of bad answers, and of resumed streams."""
        self.garbled = 0
        """Connections that brought something else than HTTP."""

    async def serve(self, stream: trio.SocketStream) -> None:
        parser = h11.Connection(h11.SERVER)
        async with stream:
            try:
                while True:
                    head, body = await self._read(stream, parser)
                    if head is None or not await self._answer(stream, head, body):
                        return
                    parser.start_next_cycle()
            except h11.RemoteProtocolError:
                self.garbled += 1
            except (trio.BrokenResourceError, trio.ClosedResourceError, h11.LocalProtocolError):
                return

    async def _read(self, stream: trio.SocketStream, parser: h11.Connection) -> tuple[h11.Request | None, bytes]:
        head, body = None, b""
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                parser.receive_data(await stream.receive_some())
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                # h11 wants to have answered before it reads on
                parser.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                parser.send(h11.EndOfMessage())
                return head, body
            else:
                return None, b""

    async def _answer(self, stream: trio.SocketStream, head: h11.Request, body: bytes) -> bool:
        if head.method == b"GET":
            if "resumed" in self.data and b"last-event-id" in dict(head.headers):
                self.requests += 1
                await self._send(stream, self.data["resumed"], {"id": self.data.get("resumed_id", 1), "method": ""})
                return False
            await stream.send_all(b"HTTP/1.1 405 No\r\nallow: POST\r\ncontent-length: 0\r\n\r\n")
            return True
        if head.method == b"DELETE":
            await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            return True
        message = json.loads(body)
        if "id" not in message:
            await stream.send_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
            return True
        if message["method"] == self.method:
            self.requests += 1
            self.data.setdefault("resumed_id", message["id"])
            await self._send(stream, self.data["reply"], message)
            if self.data.get("hold"):
                await trio.sleep_forever()
            return False
        good = json.dumps(result_of(message["method"], message["id"], self.case.date, self.data.get("extra"))).encode()
        session = "mcp-session-id: s\r\n" if message["method"] == "initialize" else ""
        await stream.send_all((JSON_HEAD % (len(good), session)).encode() + good)
        return True

    async def _send(self, stream: trio.SocketStream, parts: Any, message: dict[str, Any]) -> None:
        for part in parts if isinstance(parts, list) else [parts]:
            text = part if isinstance(part, str) else part.get("text", "")
            data = bytes.fromhex(part["hex"]) if isinstance(part, dict) and "hex" in part else self._fill(text, message)
            if isinstance(part, dict) and "drip" in part:
                while True:
                    await stream.send_all(part["drip"].encode())
                    await trio.sleep(0.02)
            elif isinstance(part, dict) and "times" in part:
                block = data * max(1, min(part["times"], 65536 // max(1, len(data))))
                left = part["times"] * len(data)
                while left > 0:
                    await stream.send_all(block[:left])
                    left -= len(block)
            else:
                await stream.send_all(data)

    def _fill(self, text: str, message: dict[str, Any]) -> bytes:
        good = json.dumps(result_of(message["method"] or "tools/call", message["id"], self.case.date))
        values = {"$EVENTS": EVENTS, "$ANSWER": good, "$ID": json.dumps(message["id"]), "$LENGTH": str(len(good))}
        for name, value in values.items():
            text = text.replace(name, value)
        return text.encode()


async def run(case: Case) -> None:
    hostile = HostileServer(case)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            serve = partial(trio.serve_tcp, hostile.serve, 0, host="127.0.0.1")
            listeners = await nursery.start(serve)
            port = listeners[0].socket.getsockname()[1]
            await _compare(case, connect_to(case, f"http://127.0.0.1:{port}/mcp"), hostile)
            nursery.cancel_scope.cancel()
    if "requests" in case.expect:
        assert hostile.requests <= case.expect["requests"], hostile.requests
    await check_undisturbed()


def connect_to(case: Case, target: Any, **more: Any) -> Client:
    small = HttpClientConfig(max_reply=65536, listen_timeout=0.1)
    reconnect = Reconnect(tries=3, first=0.01, most=0.02) if isinstance(target, str) else Reconnect(tries=0)
    http = {} if isinstance(target, list) else {"http": small}
    settings: dict[str, Any] = case.data.get("settings", {})
    return connect(target, protocol=case.date, timeout=5.0, reconnect=reconnect, **http, **settings, **more)


async def _compare(case: Case, client: Client, hostile: HostileServer | None = None) -> None:
    what = case.data.get("do", "call")
    got: str = ""
    try:
        async with client:
            got = await ACTS[what](client)
    except (MCPTrioError, TimeoutError) as error:
        got = "! " + " ".join(cls.__name__ for cls in type(error).__mro__)
    if "error" in case.expect:
        assert got.startswith("! "), got
        assert case.expect["error"] in got.split(), got
    else:
        assert got == case.expect["value"]


async def call_echo(client: Client) -> str:
    result = await client.call_tool("echo", {})
    return "".join(block.text for block in result.content)


async def _list(client: Client) -> str:
    return ",".join(tool.name for tool in await client.list_tools())


async def _check(client: Client) -> str:
    """List the tools, then make a call whose result is checked against the output schema."""
    names = await _list(client)
    return f"{names}: {await call_echo(client)}"


ACTS: dict[str, Callable[[Client], Awaitable[str]]] = {"call": call_echo, "list": _list, "check": _check}


async def check_undisturbed() -> None:
    """Check that a client in this program still works with a good server."""
    server = Server("good")

    @server.tool
    async def echo() -> str:
        """Say it."""
        return "good"

    async with connect(server) as client:
        assert await call_echo(client) == "good"


# -- on a pipe

CHILD = """
import json, os, sys, time, subprocess
script, date = sys.argv[1], sys.argv[2]
def say(message): sys.stdout.write(json.dumps(message) + "\\n"); sys.stdout.flush()
if script == "banner": print("welcome to this server\\n\\n* * *", flush=True)
if script == "grandchild": subprocess.Popen([sys.executable, "-c", "import time; time.sleep(20)"])
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message: continue
    modern = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if date == "2026-07-28" else {}
    info = {"capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
    method = message["method"]
    if method == "initialize": result = {"protocolVersion": date, **info}
    elif method == "server/discover": result = {"supportedVersions": [date], **info, **modern}
    else: result = {"content": [{"type": "text", "text": "good"}], **modern}
    if method == "tools/call":
        if script == "stderr":
            for _ in range(40): sys.stderr.write("x" * 65536 + "\\n")
            sys.stderr.flush()
        if script == "garbage": print("{ this is no JSON", flush=True)
        if script == "long": sys.stdout.write("x" * 11_000_000 + "\\n"); sys.stdout.flush()
        if script == "request": say({"jsonrpc": "2.0", "id": 5, "method": "sampling/createMessage", "params": {}})
        if script == "ping": say({"jsonrpc": "2.0", "id": 5, "method": "ping"})
        if script == "exits": os._exit(3)
        if script == "utf8": sys.stdout.buffer.write(b'{"x":"\\xff\\xfe"}\\n'); sys.stdout.flush()
    say({"jsonrpc": "2.0", "id": message["id"], "result": result})
"""


async def run_child(case: Case) -> None:
    script = case.data["client"]["child"]
    with trio.fail_after(15):
        await _compare(case, connect_to(case, [sys.executable, "-c", CHILD, script, case.date]))
    await check_undisturbed()
