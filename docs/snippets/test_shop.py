"""Tests of the server in typed.py, inside the process. Run them with pytest and pytest-trio."""

from __future__ import annotations

import pytest
from typed import Quote, server

from mcptrio import ToolError, connect


async def test_an_order_is_added_up() -> None:
    async with connect(server) as client:
        items = [{"sku": "mug", "quantity": 2}]
        quote = await client.call_tool("quote", {"items": items, "size": "l"}, into=Quote)
        assert quote == Quote(20.0, "EUR", ["2 x mug"])


async def test_every_fault_is_named_at_once() -> None:
    async with connect(server) as client:
        arguments = {"items": [{"sku": "mug", "quantity": 0}], "currency": "GBP"}
        with pytest.raises(ToolError) as caught:
            await client.call_tool("quote", arguments, into=Quote)
        assert "arguments.items[0].quantity" in str(caught.value)
        assert "arguments.currency" in str(caught.value)


@pytest.mark.parametrize("protocol", ["2025-06-18", "2025-11-25", "2026-07-28"])
async def test_an_unknown_sku_is_answered_with_the_known_ones(protocol: str) -> None:
    async with connect(server, protocol=protocol) as client:
        result = await client.call_tool("quote", {"items": [{"sku": "car"}]})
        assert result.is_error
        assert "mug, shirt" in result.text
