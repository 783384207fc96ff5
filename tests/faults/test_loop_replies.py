"""No reply of a server keeps the event loop of a client busy for long, however large or odd it is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, Final

import msgspec
import pytest
import trio
from attrs import frozen

from mcptrio import Client, MCPTrioError, Reconnect
from tests.client.kit import BOTH
from tests.tiers import sample
from tests.transports.scripted_http import Answer, Asked, Web, stateful, stateless
from tests.transports.test_http_client import to

from .loop_probe import at_most, open_probe
from .test_loop import LIMIT

Json = dict[str, Any]
Pieces = list[bytes]
REPLY: Final = 16_000_000
"""Just below the largest reply."""
PIECE: Final = 65_536
JSON_TYPE: Final = {"content-type": "application/json"}
EVENTS_TYPE: Final = {"content-type": "text/event-stream"}
OLD, NEW = BOTH


def cut(data: bytes) -> Pieces:
    """As a network delivers it."""
    return [data[at : at + PIECE] for at in range(0, len(data), PIECE)]


def frame(result: Any) -> Callable[[bytes], Pieces]:
    """Return the pieces of a response, given the id of its request."""
    pieces = cut(msgspec.json.encode(result))
    return lambda request_id: [b'{"jsonrpc":"2.0","id":' + request_id + b',"result":', *pieces, b"}"]


def events(before: bytes, result: Any) -> Callable[[bytes], Pieces]:
    """Return the pieces of a stream that ends with a response."""
    pieces, last = cut(before), msgspec.json.encode(result)
    return lambda request_id: [
        *pieces, b'data: {"jsonrpc":"2.0","id":' + request_id + b',"result":' + last + b"}\n\n",
    ]  # fmt: skip


def text(content: str) -> Json:
    return {"content": [{"type": "text", "text": content}]}


def tools(count: int, schema: Json) -> Json:
    return {"tools": [{"name": f"tool{number}", "inputSchema": schema} for number in range(count)]}


def chain(length: int) -> Json:
    """A schema whose definitions refer to the next one twice."""
    defs = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(length)}
    return {"type": "object", "$ref": "#/$defs/d0", "$defs": {**defs, f"d{length}": {"type": "integer"}}}


def nested(depth: int) -> Json:
    schema: Json = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def notification(method: str, **params: Any) -> bytes:
    return b"data: " + json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n\n"


LOG: Final = notification("notifications/message", level="info", data="x")
PROGRESS: Final = notification("notifications/progress", progressToken=1, progress=1)
DONE: Final = text("done")


async def call(client: Client) -> Any:
    return await client.call_tool("t", {})


async def list_tools(client: Client) -> Any:
    return await client.list_tools()


@frozen
class Reply:
    """One reply of a hostile server."""

    make: Callable[[], Callable[[bytes], Pieces]]
    """Makes the body, outside of what is measured."""
    headers: Json = JSON_TYPE
    status: int = 200
    ask: Callable[[Client], Any] = call


REPLIES: Final[dict[str, Reply]] = {
    "text": Reply(lambda: frame(text("x" * REPLY))),
    "text of quotes": Reply(lambda: frame(text('"' * (REPLY // 2)))),
    "text of escapes": Reply(lambda: frame(text("\x01" * (REPLY // 6)))),
    "non-ASCII text": Reply(lambda: frame(text("é" * (REPLY // 2)))),
    "quotes and an escaped colon": Reply(lambda: cut_text(b"\\u003a" + b'\\"' * (REPLY // 2 - 100))),
    "many blocks": Reply(lambda: frame({"content": [{"type": "text", "text": "x"}] * 30_000})),
    "structured": Reply(lambda: frame({**DONE, "structuredContent": {f"k{n}": [n] for n in range(30_000)}})),
    "unknown members": Reply(lambda: frame({**DONE, **{f"k{n}": n for n in range(90_000)}})),
    "long list": Reply(lambda: frame(tools(20_000, {"type": "object"})), ask=list_tools),
    "deep schemas": Reply(lambda: frame(tools(1500, nested(25))), ask=list_tools),
    "chains of references": Reply(lambda: frame(tools(250, chain(60))), ask=list_tools),
    "huge schema": Reply(
        lambda: frame(tools(1, {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(40_000)}})),
        ask=list_tools,
    ),
    "too deep": Reply(lambda: lambda request_id: cut(b"[" * REPLY)),
    "no JSON": Reply(lambda: lambda request_id: cut(b"\xff" * REPLY)),
    "huge event": Reply(lambda: events(b"", text("x" * REPLY)), EVENTS_TYPE),
    "event of many lines": Reply(lambda: lines(b"data: \n" * (REPLY // 7)), EVENTS_TYPE),
    "many events": Reply(lambda: events(LOG * 100_000, DONE), EVENTS_TYPE),
    "many progress events": Reply(lambda: events(PROGRESS * 100_000, DONE), EVENTS_TYPE),
    "many comments": Reply(lambda: events(b":\n\n" * 2_000_000, DONE), EVENTS_TYPE),
    "many ids": Reply(lambda: events(b"id: 1\n\n" * 500_000, DONE), EVENTS_TYPE),
    "events that are no messages": Reply(lambda: events(b"data: {\n\n" * 100_000, DONE), EVENTS_TYPE),
    "other answers": Reply(
        lambda: events(b'data: {"jsonrpc":"2.0","id":77,"result":{}}\n\n' * 100_000, DONE), EVENTS_TYPE
    ),
    "a refusal": Reply(lambda: lambda request_id: cut(b"<p>" * (REPLY // 3)), {"content-type": "text/html"}, 500),
    "a refusal in JSON": Reply(lambda: lambda request_id: cut(b'{"error":"' + b"\\n" * 7_000_000), JSON_TYPE, 400),
    "odd headers": Reply(
        lambda: frame(DONE),
        {**JSON_TYPE, "mcp-session-id": "~" * 60_000, **{f"x-{n}": "," * 600 for n in range(100)}},
    ),
    "odd content type": Reply(lambda: frame(DONE), {"content-type": "application/json" + ';="' * 20_000}),
    "odd challenge": Reply(
        lambda: frame(DONE), {**JSON_TYPE, "www-authenticate": 'Bearer a="' * 6000 + "Basic " * 1000}, 401
    ),
    "odd retry": Reply(lambda: frame(DONE), {**JSON_TYPE, "retry-after": "9" * 60_000}, 503),
}


def cut_text(inside: bytes) -> Callable[[bytes], Pieces]:
    pieces = cut(inside)
    return lambda request_id: [
        b'{"jsonrpc":"2.0","id":' + request_id + b',"result":{"content":[{"type":"text","text":"', *pieces, b'"}]}}',
    ]  # fmt: skip


def lines(before: bytes) -> Callable[[bytes], Pieces]:
    pieces = cut(before)
    return lambda request_id: [*pieces, b"\n\n"]


@cache
def made(name: str) -> Callable[[bytes], Pieces]:
    return REPLIES[name].make()


@pytest.mark.defect("S3")
@pytest.mark.parametrize("date", BOTH if "MCPTRIO_FAULTS" in os.environ else [NEW])
@pytest.mark.parametrize("name", sample(REPLIES, *list(REPLIES)[::5]))
@at_most(LIMIT)
async def test_a_reply_does_not_block_the_loop_of_a_client(name: str, date: str) -> float:
    reply, body = REPLIES[name], made(name)

    first = [frame({**DONE, **tools(1, {"type": "object"})})]  # loads what is imported late

    def answer(asked: Asked) -> Answer:
        request_id = msgspec.json.encode(asked.frame.get("id"))
        if first:
            return Answer(200, first.pop()(request_id), JSON_TYPE)
        return Answer(reply.status, body(request_id), dict(reply.headers))

    web = Web(stateful(date, answer) if date == OLD else stateless(date, answer))
    with trio.fail_after(120):
        async with to(web, protocol=date, reconnect=Reconnect(tries=0)) as client:
            await reply.ask(client)
            async with open_probe() as probe:
                with suppress(MCPTrioError):
                    await reply.ask(client)
    return probe.longest
