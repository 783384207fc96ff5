"""No request keeps the event loop busy for long, however large it is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
import pytest
import trio
from attrs import frozen

from mcptrio import Context, Server
from mcptrio._eras.stateless import CAPABILITIES, CLIENT_INFO
from mcptrio.extensions.tasks import Tasks
from mcptrio.transports.memory.server import MemoryEnd, open_memory_link
from mcptrio.types import CallToolResult
from tests.server.talk import NEWEST
from tests.stateless.kit import meta
from tests.tiers import sample

from .loop_probe import at_most, open_probe

Json = dict[str, Any]
BODY: Final = 4_000_000
"""Just below the largest body."""
URI: Final = 65_000
MEASURED: Final = "COVERAGE_RUN" in os.environ
LIMIT: Final = 0.05 if "MCPTRIO_FAULTS" in os.environ else 0.6 if MEASURED else 0.15
"""Seconds of CPU time. In the suite other tests share the machine, and a slow one must not fail. Measuring coverage
costs several times the work itself."""


class Order(msgspec.Struct):
    item: str
    amount: int
    note: str | None = None


class Gift(msgspec.Struct):
    item: str
    wrapped: bool


HAND_WRITTEN: Final[Json] = {
    "type": "object",
    "properties": {
        "orders": {
            "type": "array",
            "items": {"anyOf": [{"$ref": "#/$defs/order"}, {"type": "integer", "minimum": 3}]},
            "uniqueItems": True,
        }
    },
    "$defs": {"order": {"type": "object", "required": ["item"], "properties": {"item": {"pattern": "^(a|b)+$"}}}},
}


def make_server() -> Server:
    """A server with thirty templates of one prefix; all are hidden, so that a URI is tried against each."""
    server = Server("large", page_size=10)
    server.add_extension(Tasks())

    def hidden(ctx: Context) -> bool:
        return False

    async def read(
        a: str = "", b: str = "", path: str = "", tags: list[str] | None = None, rest: list[str] | None = None
    ) -> str:
        return a + b + path

    tails = ("", "{/rest*}", "/q{?b,tags*}", "-{b}", ".{b}", "{#b}")
    for number, tail in enumerate(tails * 4):
        server.add_resource(f"files://all/{'x' * (number // 6)}{{a}}{tail}", read, name=f"a{number}", visible=hidden)
    for number in range(6):
        server.add_resource(f"files://all/{{+path}}/{number}", read, name=f"p{number}", visible=hidden)

    @server.tool
    async def buy(orders: list[Order]) -> str:
        return str(len(orders))

    @server.tool
    async def order(orders: list[Order | Gift]) -> str:
        return str(len(orders))

    @server.tool
    async def numbers(values: set[int], text: Annotated[str, msgspec.Meta(pattern="^(a+)+$")] = "a") -> str:
        return str(len(values))

    @server.tool(input_schema=HAND_WRITTEN)
    async def by_hand(arguments: Json) -> str:
        return str(len(arguments))

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.tool(input_schema={"type": "object"})
    async def give_back(arguments: Json) -> CallToolResult:
        return CallToolResult(content=[], structured_content=arguments)

    @server.prompt
    async def greet(name: str = "") -> str:
        return name

    return server


@frozen
class Large:
    """One large request."""

    method: str
    params: Callable[[], Json]
    era: str | None = None
    """The revision; without one it stands alone (2026-07-28)."""


STATEFUL: Final = NEWEST.date


def uris(count: int, size: int) -> list[str]:
    return [f"files://all/{number:04}" + "%41" * ((size - 16) // 3) for number in range(count)]


LARGE: Final[dict[str, Large]] = {
    "percent-encoded URI": Large("resources/read", lambda: {"uri": "files://all/" + "%41" * (URI // 3)}),
    "non-ASCII URI": Large("resources/read", lambda: {"uri": "files://all/" + "é" * (URI // 2)}),
    "URI of commas": Large("resources/read", lambda: {"uri": "files://all/" + "," * URI}),
    "URI of slashes": Large("resources/read", lambda: {"uri": "files://all/a" + "/" * URI}),
    "URI of parameters": Large("resources/read", lambda: {"uri": "files://all/a/q?" + "&" * URI}),
    "URI of dashes": Large("resources/read", lambda: {"uri": "files://all/" + "-." * (URI // 2)}),
    "huge URI": Large("resources/read", lambda: {"uri": "files://all/" + "%41" * (BODY // 3)}),
    "subscribe": Large("resources/subscribe", lambda: {"uri": "files://all/" + "%41" * (URI // 3)}, STATEFUL),
    "listen to many": Large(
        "subscriptions/listen", lambda: {"notifications": {"resourceSubscriptions": uris(1000, 64)}}
    ),
    "listen to long": Large("subscriptions/listen", lambda: {"notifications": {"resourceSubscriptions": uris(1, URI)}}),
    "listen to huge": Large(
        "subscriptions/listen", lambda: {"notifications": {"resourceSubscriptions": uris(1000, 3900)}}
    ),
    "listen to tasks": Large(
        "subscriptions/listen", lambda: {"notifications": {"taskIds": [str(n) for n in range(90_000)]}}
    ),
    "completion ref": Large(
        "completion/complete",
        lambda: {
            "ref": {"type": "ref/resource", "uri": "files://" + "\u00e9\n" * (BODY // 8)},
            "argument": {"name": "a", "value": ""},
        },
        STATEFUL,
    ),
    "tool name": Large("tools/call", lambda: {"name": "\u00e9\x01" * (BODY // 8), "arguments": {}}),
    "prompt name": Large("prompts/get", lambda: {"name": "\u00e9\x01" * (BODY // 8), "arguments": {}}),
    "prompt arguments": Large(
        "prompts/get", lambda: {"name": "greet", "arguments": {f"a{n}": "" for n in range(40_000)}}
    ),
    "wrong items": Large("tools/call", lambda: {"name": "order", "arguments": {"orders": [1] * 95_000}}),
    "records": Large(
        "tools/call", lambda: {"name": "buy", "arguments": {"orders": [{"item": "a", "amount": 1}] * 25_000}}
    ),
    "records that fit none": Large(
        "tools/call", lambda: {"name": "order", "arguments": {"orders": [{"item": 1}] * 40_000}}
    ),
    "long pattern": Large(
        "tools/call", lambda: {"name": "numbers", "arguments": {"values": [], "text": "a" * 30 + "b"}}
    ),
    "a set": Large("tools/call", lambda: {"name": "numbers", "arguments": {"values": list(range(95_000))}}),
    "a schema by hand": Large(
        "tools/call", lambda: {"name": "by_hand", "arguments": {"orders": [{"item": f"a{n}"} for n in range(30_000)]}}
    ),
    "tool arguments": Large("tools/call", lambda: {"name": "order", "arguments": {f"a{n}": n for n in range(40_000)}}),
    "empty cells that come back": Large(
        "tools/call",
        lambda: {"name": "give_back", "arguments": {"rows": [{"a": None, "b": 1.5, "c": "x"} for _ in range(24_000)]}},
    ),
    "cursor": Large("tools/list", lambda: {"cursor": "A" * BODY}),
    "cursor of no base64": Large("tools/list", lambda: {"cursor": "\u00e9" * (BODY // 2)}),
    "task id": Large("tasks/get", lambda: {"taskId": "\u00e9\x01" * (BODY // 8)}),
    "method": Large("x" * BODY, dict),
    "log level": Large("logging/setLevel", lambda: {"level": "\x01" * (BODY // 6)}, STATEFUL),
    "meta": Large("tools/list", lambda: {"_meta": {**meta(), **{f"k{n}": n for n in range(40_000)}}}),
    "text": Large("tools/call", lambda: {"name": "echo", "arguments": {"text": "x" * BODY}}),
    "non-ASCII text": Large("tools/call", lambda: {"name": "echo", "arguments": {"text": "é" * (BODY // 2)}}),
    "text of escapes": Large("tools/call", lambda: {"name": "echo", "arguments": {"text": "\x01" * (BODY // 7)}}),
    "text of quotes": Large("tools/call", lambda: {"name": "echo", "arguments": {"text": '"' * (BODY // 2 - 1000)}}),
    "JSON in a text": Large(
        "tools/call", lambda: {"name": "buy", "arguments": {"orders": f"[{','.join(['{}'] * 500_000)}]"}}
    ),
    "brackets in a text": Large("tools/call", lambda: {"name": "buy", "arguments": {"orders": "[" * BODY}}),
    "long number in a text": Large("tools/call", lambda: {"name": "numbers", "arguments": {"values": ["9" * BODY]}}),
    "numbers in texts": Large("tools/call", lambda: {"name": "numbers", "arguments": {"values": ["9" * 4300] * 900}}),
    "progress token": Large(
        "tools/call", lambda: {"name": "greet", "_meta": {**meta(), "progressToken": "x" * (BODY - 1000)}}
    ),
    "request state": Large("tools/call", lambda: {"name": "echo", "arguments": {}, "requestState": "A" * BODY}),
    "input responses": Large(
        "tools/call",
        lambda: {
            "name": "echo",
            "arguments": {},
            "requestState": "A" * 100,
            "inputResponses": {f"k{number}": {"action": "accept"} for number in range(30_000)},
        },
    ),
    "completion": Large(
        "completion/complete",
        lambda: {
            "ref": {"type": "ref/prompt", "name": "greet"},
            "argument": {"name": "name", "value": "x" * (BODY // 2)},
            "context": {"arguments": {f"k{number}": "v" for number in range(40_000)}},
        },
    ),
    "client name": Large("tools/list", lambda: {"_meta": {**meta(), CLIENT_INFO: {"name": "x" * (BODY - 1000)}}}),
    "client capabilities": Large(
        "tools/list",
        lambda: {"_meta": {**meta(), CAPABILITIES: {"experimental": {f"k{n}": {} for n in range(45_000)}}}},
    ),
    "task update": Large(
        "tasks/update", lambda: {"taskId": "x", "inputResponses": {f"k{number}": {} for number in range(45_000)}}
    ),
    "batch": Large("resources/read", lambda: {"uri": "files://all/" + "%41" * 13_000}, "2025-03-26"),
}


def frames(large: Large) -> bytes:
    params = large.params() if large.era is not None else {"_meta": meta(), **large.params()}
    one: Json = {"jsonrpc": "2.0", "id": 900, "method": large.method, "params": params}
    if large.era == "2025-03-26":
        return msgspec.json.encode([{**one, "id": 900 + number} for number in range(100)])
    return msgspec.json.encode(one)


@pytest.mark.defect("S2")
@pytest.mark.parametrize("name", sample(LARGE, *list(LARGE)[::6]))
@at_most(LIMIT)
async def test_a_large_request_does_not_block_the_loop(name: str) -> float:
    large = LARGE[name]
    data = frames(large)
    async with make_server()._app.make_runtime().open() as runtime, open_memory_link(runtime) as end:
        if large.era is not None:
            await initialize(end, large.era)
        async with open_probe() as probe:
            await end.send(data)
            with trio.fail_after(60):
                await end.receive()  # the reply, or the acknowledgement of a listen request
    return probe.longest


async def initialize(end: MemoryEnd, date: str) -> None:
    info = {"name": "probe", "version": "1"}
    params = {"protocolVersion": date, "capabilities": {}, "clientInfo": info}
    await end.send(msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}))
    await end.receive()
    await end.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')


async def test_the_probe_notices_a_blocked_loop() -> None:
    async def block() -> None:
        began = time.thread_time()
        while time.thread_time() - began < 2 * LIMIT:
            pass

    async with open_probe() as probe, trio.open_nursery() as nursery:
        nursery.start_soon(block)
    assert probe.longest >= 2 * LIMIT
