"""A table of clients that others wrote, by what is odd about them. Each is served all the same.

Frames and requests are written byte by byte, to a real process over a pipe, or to a real socket.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import h11
import pytest
import trio
from attrs import define, frozen

from tests.tiers import sample

from .server_process import PROGRAMS, ServerProcess, running

Json = dict[str, Any]
STATEFUL: Final = "2025-11-25"


def initialize(request_id: Any = 0, date: str = STATEFUL, **capabilities: Any) -> Json:
    params = {"protocolVersion": date, "capabilities": capabilities, "clientInfo": {"name": "odd", "version": "1"}}
    return {"jsonrpc": "2.0", "id": request_id, "method": "initialize", "params": params}


def ask(request_id: Any, method: str, /, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def call(request_id: Any, tool: str = "add", /, **arguments: Any) -> Json:
    return ask(request_id, "tools/call", name=tool, arguments=arguments or {"a": 2, "b": 3})


READY: Final[Json] = {"jsonrpc": "2.0", "method": "notifications/initialized"}

CANCEL: Final[Json] = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}}
SURROGATE: Final = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\\ud800"}}'


def line(frame: Any) -> bytes:
    return json.dumps(frame).encode() + b"\n"


BEGIN: Final = line(initialize()) + line(READY)


@frozen
class Row:
    """Bytes for a pipe, and what the answers must hold: by id, a text that is somewhere in the answer."""

    sent: bytes
    answers: dict[Any, str]


def row(*frames: Any, begin: bytes = BEGIN, **answers: str) -> Row:
    """Rows whose answers have whole numbers as ids: `_1="5"`."""
    sent = b"".join(frame if isinstance(frame, bytes) else line(frame) for frame in frames)
    return Row(begin + sent, {int(name[1:]): text for name, text in answers.items()})


OLD: Final = {date: line(initialize(0, date)) + line(READY) for date in ("2024-11-05", "2025-03-26", "2025-06-18")}

PIPE: Final[dict[str, Row]] = {
    "ordinary": row(call(1), _1="5"),
    "second initialize": row(initialize(1), READY, call(2), _1="protocolVersion", _2="5"),
    "initialize with another revision": row(initialize(1, "2025-03-26"), READY, call(2), _1="2025-03-26", _2="5"),
    "second initialize with the same id": row(initialize(0), READY, call(2), _0="protocolVersion", _2="5"),
    "no initialized notification": row(call(1), begin=line(initialize()), _1="5"),
    "initialized twice": row(READY, READY, call(1), _1="5"),
    "initialized with an id": row({**READY, "id": 7}, call(1), _1="5", _7=""),
    "old name of initialized": row({"jsonrpc": "2.0", "method": "initialized"}, call(1), _1="5"),
    "unknown revision": row(call(1), begin=line(initialize(0, "2031-01-01")) + line(READY), _0="2025-11-25", _1="5"),
    "unknown capabilities": row(
        call(1), begin=line(initialize(0, roots={}, other={"x": None}, more=1)) + line(READY), _1="5"
    ),
    "null capabilities": row(
        call(1), begin=line(initialize(0, roots=None, sampling=None, elicitation=None)) + line(READY), _1="5"
    ),
    "no params": row({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, _1="add"),
    "null params": row({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": None}, _1="add"),
    "null arguments": row(ask(1, "tools/call", name="hello", arguments=None), _1="hello"),
    "no arguments": row(ask(1, "tools/call", name="hello"), _1="hello"),
    "null meta": row(ask(1, "tools/call", name="hello", arguments={}, _meta=None), _1="hello"),
    "empty cursor": row(ask(1, "tools/list", cursor=""), _1="add"),
    "null cursor": row(ask(1, "tools/list", cursor=None), _1="add"),
    "lone surrogate": row(SURROGATE + b"\n", call(2), _1="error", _2="5"),
    "byte order mark": row(call(1), begin=b"\xef\xbb\xbf" + BEGIN, _1="5"),
    "CRLF": row(line(call(1)).replace(b"\n", b"\r\n"), begin=BEGIN.replace(b"\n", b"\r\n"), _1="5"),
    "empty lines": row(b"\n\n  \n", call(1), b"\n", _1="5"),
    "content-length framing": row(b"Content-Length: 10\r\n\r\n", call(1), _1="5"),
    "text between": row(b"Debugger attached.\n", call(1), _1="5"),
    "id as a float": row(call(1.0), _1="5"),
    "large id": row(call(2**53 + 1), call(1), _1="5"),
    "negative id": row(call(-1), call(1), _1="5"),
    "whole float": row(call(1, a=2.0, b=3.0), _1="5"),
    "arguments as JSON text": row(ask(1, "tools/call", name="add", arguments='{"a":2,"b":3}'), call(2), _1="", _2="5"),
    "extra members": row({**call(1), "extra": 1, "sessionId": "x"}, _1="5"),
    "extra params": row({**call(1), "params": {**call(1)["params"], "task": None, "extra": 1}}, _1="5"),
    "number as a progress token": row(ask(1, "tools/call", name="hello", _meta={"progressToken": 0}), _1="hello"),
    "null progress token": row(ask(1, "tools/call", name="hello", _meta={"progressToken": None}), _1="hello"),
    "cancel of nothing": row(CANCEL, call(1), _1="5"),
    "cancel without params": row({"jsonrpc": "2.0", "method": "notifications/cancelled"}, call(1), _1="5"),
    "cancel with an id": row({**CANCEL, "id": 9}, call(1), _1="5"),
    "old cancel": row({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 99}}, call(1), _1="5"),
    "answer to nothing": row({"jsonrpc": "2.0", "id": 77, "result": {}}, call(1), _1="5"),
    "error to nothing": row({"jsonrpc": "2.0", "id": None, "error": {"code": -1, "message": "x"}}, call(1), _1="5"),
    "unknown notification": row({"jsonrpc": "2.0", "method": "notifications/other"}, call(1), _1="5"),
    "unknown method": row(ask(1, "other/method"), call(2), _1="-32601", _2="5"),
    "ping before initialize": row(call(2), begin=line(ask(1, "ping")) + BEGIN, _1="result", _2="5"),
    "tools before initialize": row(call(2), begin=line(ask(1, "tools/list")) + BEGIN, _1="", _2="5"),
    "same id one after the other": row(call(1), call(1), call(2), _1="5", _2="5"),
    "batch at 2025-03-26": row([call(1), call(2), READY], begin=OLD["2025-03-26"], _1="5", _2="5"),
    "batch at 2025-11-25": row([call(1)], call(2), _2="5"),
    "batch at 2024-11-05": row([call(1)], call(2), begin=OLD["2024-11-05"], _2="5"),
    "empty batch": row([], call(2), begin=OLD["2025-03-26"], _2="5"),
    "no jsonrpc": row({"id": 1, "method": "ping"}, call(2), _1="", _2="5"),
    "log level in capitals": row(ask(1, "logging/setLevel", level="INFO"), call(2), _1="", _2="5"),
    "no last line end": Row(BEGIN + line(call(1))[:-1], {1: "5"}),
}  # fmt: skip


@pytest.mark.parametrize("name", sample(PIPE, *list(PIPE)[::3]))
async def test_an_odd_client_on_a_pipe_is_served(name: str) -> None:
    odd = PIPE[name]
    command = [sys.executable, "-m", "mcptrio", "run", str(PROGRAMS / "for_odd_clients.py")]
    with trio.fail_after(20):
        done = await trio.run_process(command, stdin=odd.sent, capture_stdout=True, capture_stderr=True, check=False)
    lines = [json.loads(each) for each in done.stdout.splitlines()]
    lines = [frame for each in lines for frame in (each if isinstance(each, list) else [each])]
    assert done.returncode == 0, done.stderr.decode()
    answers = {each.get("id"): json.dumps(each) for each in lines if "method" not in each}
    for request_id, text in odd.answers.items():
        assert text in answers.get(request_id, "nothing"), (answers, done.stderr.decode())
        assert request_id in answers, (answers, done.stderr.decode())


async def test_elicitation_that_only_says_how_defaults_are_used_means_forms() -> None:
    command = [sys.executable, "-m", "mcptrio", "run", str(PROGRAMS / "for_odd_clients.py")]
    async with trio.open_nursery() as nursery:
        start = partial(trio.run_process, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process: trio.Process = await nursery.start(start)
        assert process.stdin is not None
        assert process.stdout is not None
        begin = line(initialize(0, elicitation={"applyDefaults": True})) + line(READY)
        await process.stdin.send_all(begin + line(call(1, "ask", text="size")))
        data = b""
        with trio.fail_after(30):
            while b"elicitation/create" not in data:
                data += await process.stdout.receive_some()
            asked = json.loads(data.splitlines()[-1])
            answer = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"word": "L"}}}
            await process.stdin.send_all(line(answer))
            while b"size L" not in data:
                data += await process.stdout.receive_some()
        await process.stdin.aclose()


# -- HTTP


@frozen
class Post:
    """One HTTP request with odd headers or an odd body."""

    frame: Any
    text: str
    """Somewhere in the answer."""
    path: str = "/mcp"
    status: int = 200
    headers: tuple[tuple[str, str | None], ...] = ()
    """Added to the usual ones, or instead of them; None leaves one out."""
    session: bool = True
    raw: bytes | None = None


def post(frame: Any, text: str = "5", /, *, path: str = "/mcp", status: int = 200, session: bool = True,
         raw: bytes | None = None, **headers: str | None) -> Post:  # fmt: skip
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Post(frame, text, path, status, named, session, raw)


HTTP: Final[dict[str, Post]] = {
    "ordinary": post(call(1)),
    "path with a slash": post(call(1), path="/mcp/"),
    "path with a query": post(call(1), path="/mcp?x=1"),
    "no Accept": post(call(1), accept=None),
    "Accept of everything": post(call(1), accept="*/*"),
    # The specification demands both, and the official servers refuse it too.
    "Accept without streams": post(call(1), "text/event-stream", status=406, accept="application/json"),
    "Accept with parameters": post(call(1), accept="application/json;q=0.9, text/event-stream;q=0.8, */*;q=0.1"),
    "Accept in capitals": post(call(1), accept="Application/JSON, Text/Event-Stream"),
    "content type with a charset": post(call(1), content_type="application/json; charset=utf-8"),
    "content type in capitals": post(call(1), content_type="APPLICATION/JSON"),
    "no version header": post(call(1), mcp_protocol_version=None),
    "another version header": post(call(1), mcp_protocol_version="2025-06-18"),
    "byte order mark": post(None, raw=b"\xef\xbb\xbf" + json.dumps(call(1)).encode()),
    "spaces around": post(None, raw=b"\r\n  " + json.dumps(call(1)).encode() + b"\r\n"),
    "id as a float": post(call(1.0)),
    "id as text": post(call("a")),
    "empty cursor": post(ask(1, "tools/list", cursor=""), "add"),
    "old session": post(call(1), "", status=404, mcp_session_id="no-such-session"),
    "second initialize without a session": post(initialize(1), "protocolVersion", session=False),
    "initialize with a version header": post(
        initialize(1), "protocolVersion", session=False, mcp_protocol_version="2025-03-26"
    ),
    "lone surrogate": post(None, '"id":1', status=400, raw=SURROGATE),
}  # fmt: skip


@define
class Web:
    """A connection that sends one request after the other."""

    server: ServerProcess

    async def post(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], str]:
        connection = h11.Connection(h11.CLIENT)
        async with await trio.open_tcp_stream("127.0.0.1", self.server.port) as stream:
            head = {"Host": f"127.0.0.1:{self.server.port}", "Content-Length": str(len(body)), **headers}
            request = h11.Request(method="POST", target=path, headers=list(head.items()))
            data = (connection.send(request) or b"") + (connection.send(h11.Data(body)) or b"")
            await stream.send_all(data + (connection.send(h11.EndOfMessage()) or b""))
            status, got, text = 0, {}, b""
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    connection.receive_data(await stream.receive_some())
                elif isinstance(event, h11.Response):
                    status = event.status_code
                    got = {name.decode(): value.decode() for name, value in event.headers}
                elif isinstance(event, h11.Data):
                    text += bytes(event.data)
                else:
                    return status, got, text.decode()


@asynccontextmanager
async def opened(server: ServerProcess) -> AsyncIterator[tuple[Web, dict[str, str]]]:
    web = Web(server)
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    _, got, _ = await web.post("/mcp", headers, json.dumps(initialize()).encode())
    headers |= {"mcp-session-id": got["mcp-session-id"], "mcp-protocol-version": STATEFUL}
    await web.post("/mcp", headers, json.dumps(READY).encode())
    yield web, headers


async def test_odd_clients_over_http_are_served(engine: str, tmp_path: Path) -> None:
    wrong = []
    with running("for_odd_clients.py", tmp_path / "log") as server, trio.fail_after(60):
        await server.wait_ready()
        for name, odd in HTTP.items():
            async with opened(server) as (web, usual):
                session = usual["mcp-session-id"]
                sent = {**usual, **{key: value and value.format(session=session) for key, value in odd.headers}}
                if not odd.session:
                    del sent["mcp-session-id"]
                body = json.dumps(odd.frame).encode() if odd.raw is None else odd.raw
                kept = {key: value for key, value in sent.items() if value is not None}
                status, _, text = await web.post(odd.path, kept, body)
                if status != odd.status or odd.text not in text:
                    wrong.append((name, status, text))
    assert wrong == [], "\n".join(map(str, wrong))
