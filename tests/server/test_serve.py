"""Serving without Trio, and the default version."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import mcptrio
from mcptrio import DeclarationError, Server


@pytest.mark.parametrize("name", ["serve_http", "serve_stdio"])
def test_serving_under_asyncio_is_refused_in_one_sentence(name: str) -> None:
    serve: Callable[[], Awaitable[None]] = getattr(Server("x"), name)

    async def main() -> None:
        await serve()

    with pytest.raises(DeclarationError, match=rf"{name}\(\) needs Trio, and no Trio event loop runs here") as raised:
        asyncio.run(main())
    assert "server.asgi()" in str(raised.value)


@pytest.mark.defect("U13")
def test_a_server_without_a_version_reports_that_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Server("x").info.version == mcptrio.__version__
    monkeypatch.setattr(mcptrio, "__version__", "9.8.7")
    assert Server("x").info.version == "9.8.7", "it is not written down a second time"
    assert Server("x", version="7").info.version == "7"


@pytest.mark.defect("U15")
async def test_an_asyncio_library_inside_a_handler_gets_a_hint_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("x")

    async def fetch() -> str:
        return str(await asyncio.sleep(1))  # the mistake

    server.add_tool(fetch)
    server.add_prompt(fetch)
    async with mcptrio.connect(server) as client:
        assert (await client.call_tool("fetch")).is_error
        with pytest.raises(mcptrio.MCPError):
            await client.get_prompt("fetch")
    hints = [record.getMessage() for record in caplog.records if "it awaited an asyncio library" in record.getMessage()]
    assert [hint.partition(" failed")[0] for hint in hints] == ["tool 'fetch'", "prompts/get 'fetch'"]
