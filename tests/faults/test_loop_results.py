"""No large result of a handler keeps the event loop busy for long: it is converted, checked and encoded there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pytest
import trio

from mcptrio import Server
from mcptrio.transports.memory.server import open_memory_link
from mcptrio.types import CallToolResult, Message, user
from tests.stateless.kit import meta
from tests.tiers import sample

from .loop_probe import at_most, open_probe
from .test_loop import LIMIT, Json

ROWS: Final = 24_000
"""About 1.4 MB of JSON, and as much again as text."""
LARGE: Final = 8_000_000
TABLE: Final[Json] = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": {"type": "object", "required": ["number"]}}},
}


@dataclass
class Row:
    number: int
    price: float
    name: str
    note: str | None = None


class Line(msgspec.Struct):
    number: int
    price: float
    name: str
    note: str | None = None


@dataclass
class Page:
    rows: list[Row]
    total: int


def make_rows(make: Callable[..., Any]) -> list[Any]:
    return [make(number=number, price=1.5, name="some text", note=None) for number in range(ROWS)]


def make_server() -> Server:
    """A server whose tools have their values ready: only what happens to them afterwards is measured."""
    server = Server("large results")

    def add(name: str, kind: Any, value: Any, **options: Any) -> None:
        async def give() -> Any:
            return value

        give.__annotations__["return"] = kind
        server.add_tool(give, name=name.replace(" ", "_"), **options)

    dicts, rows, text = make_rows(dict), make_rows(Row), '"\u00e9' * (LARGE // 4)
    add("dicts", list[dict[str, Any]], dicts)
    add("records", list[Row], rows)
    add("page of records", Page, Page(rows, ROWS))
    add("structs", list[Line], make_rows(Line))
    add("numbers", list[list[int]], [[number] * 4 for number in range(ROWS)])
    add("mapping", dict[str, int], {f"k{number}": number for number in range(4 * ROWS)})
    add("structured only", list[dict[str, Any]], dicts, result="structured")
    add("no annotation", Any, dicts)
    add("complete result", CallToolResult, CallToolResult(content=[], structured_content={"rows": dicts}))
    add("schema by hand", dict[str, Any], {"rows": dicts}, output_schema=TABLE)
    add("long text", str, text)

    @server.resource("large://text")
    async def text_of_resource() -> str:
        return text

    blob = bytes(LARGE)

    @server.resource("large://blob")
    async def blob_of_resource() -> bytes:
        return blob

    @server.resource("large://json")
    async def json_of_resource() -> Any:
        return dicts

    messages = [user(f"message {number}") for number in range(2_000)]

    @server.prompt
    async def talk() -> list[Message]:
        return messages

    return server


TOOLS: Final = (
    "dicts",
    "records",
    "page of records",
    "structs",
    "numbers",
    "mapping",
    "structured only",
    "no annotation",
    "complete result",
    "schema by hand",
    "long text",
)
CALLS: Final[dict[str, tuple[str, Json]]] = {
    **{name: ("tools/call", {"name": name.replace(" ", "_"), "arguments": {}}) for name in TOOLS},
    **{f"resource, {name}": ("resources/read", {"uri": f"large://{name}"}) for name in ("text", "blob", "json")},
    "prompt": ("prompts/get", {"name": "talk"}),
}


@pytest.mark.defect("S2")
@pytest.mark.parametrize("name", sample(CALLS, "records", "dicts"))
@at_most(LIMIT)
async def test_a_large_result_does_not_block_the_loop(name: str) -> float:
    method, params = CALLS[name]
    data = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta(), **params}})
    async with make_server()._app.make_runtime().open() as runtime, open_memory_link(runtime) as end:
        async with open_probe() as probe:
            await end.send(data)
            with trio.fail_after(60):
                answer = await end.receive()
        assert len(answer) > 100_000  # no error
    return probe.longest
