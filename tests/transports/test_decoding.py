"""Large messages are decoded in turns with other tasks, and to the same result."""

from __future__ import annotations

import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import Request, decode, decode_in_parts
from mcptrio.errors import RemoteProtocolError
from mcptrio.transports.decoding import decode_in_turns, decode_large
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.scopes import Scopes
from mcptrio.transports.pipe.server import Pipe, serve_pipe
from mcptrio.transports.websocket.server import _Bounds

from .app_for_tests import exchange, head, open_endpoint


class Turns(Entity):
    """Counts the turns of other tasks."""

    count: int = 0

    async def run(self) -> None:
        while True:
            await trio.lowlevel.checkpoint()
            self.count += 1


def message(**params: Any) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "m", "params": params})


@pytest.mark.defect("S2")
async def test_other_tasks_run_while_a_large_message_is_decoded() -> None:
    data, turns = message(text=':"' * 2_000_000), Turns()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.run)
        assert await decode_in_turns(data) == decode(data)
        nursery.cancel_scope.cancel()
    assert turns.count >= 1, "the first turn of the other task does not count"


class OneMessage(Pipe):
    """A pipe whose peer sends one message, and then nothing."""

    def __init__(self, message: bytes) -> None:
        self.message: bytes | None = message

    async def receive(self) -> list[bytes | RemoteProtocolError]:
        if self.message is None:
            await trio.sleep_forever()
        message, self.message = self.message, None
        return [message] if message is not None else []

    async def send(self, messages: list[bytes]) -> None:
        pass


Send = Callable[[str], Awaitable[object]]


@asynccontextmanager
async def receiving(kind: str, data: bytes) -> AsyncIterator[Send]:
    """Yield a function that sends a large message as some owner."""
    async with open_endpoint(HttpConfig(legacy_sse=True)) as endpoint:

        async def pipe(owner: str) -> object:
            bounds = _Bounds(endpoint.admission, owner)
            pipe = OneMessage(data)
            return await serve_pipe(endpoint.runtime, pipe, transport="websocket", owner=owner, bounds=bounds)

        async def post(owner: str) -> object:
            path = "/messages" if kind == "sse" else "/mcp"
            return await exchange(endpoint, head("POST", path, client=owner, accept="*/*"), data)

        yield pipe if kind == "pipe" else post


@pytest.mark.defect("S2")
@pytest.mark.parametrize(("owners", "most"), [("aaaa", 1), ("abab", 2)])
@pytest.mark.parametrize("kind", ["http", "sse", "pipe"])
async def test_large_messages_of_one_owner_are_decoded_one_after_the_other(
    kind: str, owners: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many connections of one client take one part in a turn of the loop, and the memory of one message."""
    running, seen, done = 0, 0, 0

    def parts(*args: Any) -> Generator[None, None, Any]:
        nonlocal running, seen, done
        running += 1
        seen = max(seen, running)
        frame = yield from decode_in_parts(*args)
        running, done = running - 1, done + 1
        return frame

    monkeypatch.setattr("mcptrio.transports.decoding.decode_in_parts", parts)
    monkeypatch.setattr("mcptrio.transports.decoding._LONG", 0.0)
    async with receiving(kind, message(text="x" * 100_000)) as send, trio.open_nursery() as nursery:
        for owner in owners:
            nursery.start_soon(send, owner)
        await wait_all_tasks_blocked(0.01)
        assert done == len(owners)
        nursery.cancel_scope.cancel()
    assert seen == most


async def test_short_parts_of_a_message_are_decoded_in_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    data, turns = message(text=':"' * 50_000), Turns()
    monkeypatch.setattr("mcptrio.transports.decoding._LONG", 60.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.run)
        await trio.lowlevel.checkpoint()
        before = turns.count
        assert await decode_in_turns(data) == decode(data)
        assert turns.count == before
        nursery.cancel_scope.cancel()


@pytest.mark.defect("S2")
async def test_an_owner_of_large_messages_leaves_the_loop_to_others(
    autojump_clock: trio.abc.Clock,
) -> None:
    data = message(items=[{"n": number, "text": "x" * 20} for number in range(20_000)])
    async with open_endpoint() as endpoint:
        began, virtual = time.thread_time(), trio.current_time()
        await decode_large(endpoint.runtime, "a", data)
        worked, rested = time.thread_time() - began, trio.current_time() - virtual
    assert rested > worked


@pytest.mark.parametrize("path", ["/mcp", "/messages"])
async def test_a_small_message_does_not_wait_for_the_large_ones_of_its_owner(path: str) -> None:
    async with open_endpoint(HttpConfig(legacy_sse=True)) as endpoint:
        sent = head("POST", path, client="a", accept="*/*")
        endpoint.refuse_early(sent)
        assert sent.owner
        async with endpoint.runtime.one_at_a_time("large message", sent.owner):
            with trio.fail_after(5):
                await endpoint.answer(sent, message())


@pytest.mark.defect("S4")
async def test_a_pipe_whose_peer_is_silent_keeps_no_message() -> None:
    """A decoded message takes up to 15 MB, and a WebSocket may stay open for days."""
    data = msgspec.json.encode({"jsonrpc": "2.0", "method": "m", "params": {"items": [0] * 12_345}})

    def kept() -> bool:
        return any(type(thing) is list and len(thing) == 12_345 for thing in gc.get_objects())

    async with receiving("pipe", data) as send, trio.open_nursery() as nursery:
        nursery.start_soon(send, "a")
        await wait_all_tasks_blocked()
        assert not kept()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("text", ["x", "\\u003a", ":", "\\\\u003a", "\\u003A:"])
@pytest.mark.parametrize("size", [10, 200_000])
async def test_a_duplicate_key_in_a_large_message_is_found(text: str, size: int) -> None:
    body = '{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"%s","b":1%s}}'
    alone = (body % (text * size, "")).encode()
    assert await decode_in_turns(alone) == decode(alone)
    for again in (',"a":1', ',"c":{":":1,":":2}'):
        with pytest.raises(RemoteProtocolError, match="occurs twice"):
            await decode_in_turns((body % (text * size, again)).encode())


@pytest.mark.defect("S2")
async def test_other_tasks_run_while_the_scopes_of_a_batch_are_checked() -> None:
    turns = Turns()
    sent = head()
    sent.scopes = frozenset({"m"})
    batch = tuple(Request(number, f"m{number}") for number in range(100))
    scopes = Scopes(lambda method, params, everything: () if method != "m99" else ("x",), None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.run)
        refusal = await scopes.check(sent, batch)
        nursery.cancel_scope.cancel()
    assert refusal is not None
    assert refusal.status == 403
    assert turns.count >= 90
