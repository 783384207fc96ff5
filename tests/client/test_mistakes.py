"""Misuse of a client raises an error that says how to fix it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mcptrio import DeclarationError, LocalProtocolError, Server, connect

server = Server("empty")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"timout": 3}, "a client has no setting 'timout'; did you mean timeout?"),
        ({"max_page": 3}, "a client has no setting 'max_page'; did you mean max_pages?"),
        ({"xyzzy": 3}, "a client has no setting 'xyzzy'"),
        ({"max_pages": 0}, "max_pages must be positive, got 0"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_setting_that_does_not_exist_or_cannot_be_is_named(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        connect(server, **settings)
    assert text in str(caught.value)


@pytest.mark.parametrize("target", ["server.py", "localhost:8000/mcp", "ftp://example.org"])
def test_an_unusable_target_is_refused_with_the_usable_kinds(target: str) -> None:
    with pytest.raises(DeclarationError, match=r"give a URL .* a Server, or a Transport"):
        connect(target)


async def test_a_client_that_was_never_opened_says_so() -> None:
    with pytest.raises(LocalProtocolError, match="the client is not open: use `async with`"):
        await connect(server).list_tools()


async def test_tool_arguments_given_as_keywords_are_refused_with_a_hint() -> None:
    async with connect(server) as client:
        with pytest.raises(TypeError, match=r"takes no city; .*call_tool\(name, {…}\)"):
            await client.call_tool("forecast", city="Oslo")  # type: ignore[call-arg]


def test_in_asyncio_the_error_says_that_trio_is_needed() -> None:
    async def main() -> None:
        async with connect(server):
            pass

    with pytest.raises(LocalProtocolError, match=r"start the program with trio.run\(main\)"):
        asyncio.run(main())
