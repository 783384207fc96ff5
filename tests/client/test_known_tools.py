"""The schemas of a server's tools, while its list changes."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from mcptrio.client.features import peer_schema
from mcptrio.client.features.tools import KnownTools
from mcptrio.errors import RemoteProtocolError
from mcptrio.types import CallToolResult, Tool


def tool(kind: str) -> Tool:
    """Return a tool whose schema is large, so that it is compiled in a thread."""
    many = {f"p{number}": {"type": "string"} for number in range(400)}
    schema = {"type": "object", "properties": {"v": {"type": kind}, **many}}
    return Tool(name="t", input_schema={"type": "object"}, output_schema=schema)


async def test_a_schema_that_was_replaced_while_it_was_compiled_checks_no_later_result() -> None:
    known = KnownTools()
    await known.learn((tool("string"),), over_http=False)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: known.check("t", result("text"), any_value=False))
        await trio.testing.wait_all_tasks_blocked()  # the thread compiles
        await known.learn((tool("integer"),), over_http=False)
    await known.check("t", result(5), any_value=False)
    with pytest.raises(RemoteProtocolError, match="violates its schema"):
        await known.check("t", result("text"), any_value=False)


async def test_the_schemas_of_a_server_are_compiled_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most = 0, 0

    def compile_slowly(*args: Any, **options: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        trio.from_thread.run(trio.sleep, 0.01)
        running -= 1

    monkeypatch.setattr(peer_schema, "Checker", compile_slowly)
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(peer_schema.compile_schema, tool("string").output_schema)
    assert most == 1


def result(value: Any) -> CallToolResult:
    return CallToolResult(content=[], structured_content={"v": value})
