"""Tests of the server in typed.py, over a link inside the process. Run them with pytest and pytest-trio."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from typed import server


class Client:
    """Asks one thing after the other; enough for most tests."""

    def __init__(self, link: Any) -> None:
        self.link = link
        self.last_id = 0

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self.last_id += 1
        frame = {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}
        await self.link.send(json.dumps(frame).encode())
        while True:
            reply: dict[str, Any] = json.loads(await self.link.receive())
            if reply.get("id") == self.last_id:  # anything else is a notification
                return reply

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        reply = await self.ask("tools/call", name=name, arguments=arguments)
        result: dict[str, Any] = reply["result"]
        return result


@asynccontextmanager
async def talking() -> AsyncIterator[Client]:
    async with server.open_memory_link() as link:
        client = Client(link)
        info = {"name": "tests", "version": "1"}
        await client.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)
        await link.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
        yield client


async def test_an_order_is_added_up() -> None:
    async with talking() as client:
        result = await client.call("quote", items=[{"sku": "mug", "quantity": 2}], size="l")
        assert result["structuredContent"]["total"] == 20.0


async def test_every_fault_is_named_at_once() -> None:
    async with talking() as client:
        result = await client.call("quote", items=[{"sku": "mug", "quantity": 0}], currency="GBP")
        assert result["isError"]
        text = result["content"][0]["text"]
        assert "arguments.items[0].quantity" in text
        assert "arguments.currency" in text


@pytest.mark.parametrize("sku", ["car", "boat"])
async def test_a_model_is_told_what_there_is(sku: str) -> None:
    async with talking() as client:
        result = await client.call("quote", items=[{"sku": sku}])
        assert "mug, shirt" in result["content"][0]["text"]
