"""Large messages are decoded in turns with other tasks, and to the same result."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio

from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import Request, decode
from mcptrio.errors import RemoteProtocolError
from mcptrio.transports.decoding import decode_in_turns
from mcptrio.transports.http_server.endpoint.scopes import Scopes

from .app_for_tests import head, open_endpoint, plain


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
@pytest.mark.parametrize("size", [100_000, 2_000_000])
async def test_other_tasks_run_while_a_large_message_is_decoded(size: int) -> None:
    data, turns = message(text=':"' * (size // 2)), Turns()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.run)
        assert await decode_in_turns(data) == decode(data)
        nursery.cancel_scope.cancel()
    assert turns.count >= 2


@pytest.mark.defect("S2")
async def test_each_part_of_a_large_request_takes_a_turn_of_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many connections of one client decode as many parts in a turn of the loop as one does."""
    taken: list[str] = []

    async def take(self: object, owner: str) -> None:
        taken.append(owner)

    monkeypatch.setattr("mcptrio._actors.turns.Turns.take", take)
    async with open_endpoint() as endpoint:
        await plain(endpoint, head(), message(text="x" * 100_000))
    assert len(taken) >= 3, "one for each part"


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
