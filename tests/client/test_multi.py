"""Several servers at once, and the configuration that hosts keep them in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mcptrio import Client, DeclarationError, LocalProtocolError, Server, connect_all
from mcptrio.client import make_client, read_servers
from mcptrio.transports.stdio.client import StdioTransport
from tests.client.kit import Wire, make_server, scripted


async def dead(wire: Wire) -> None:
    pass


async def test_one_failing_server_does_not_take_the_others() -> None:
    servers = {"shop": make_server(), "dead": scripted(dead), "shop_two": Client(make_server())}
    async with connect_all(servers) as clients:
        assert list(clients) == ["shop", "shop_two"]
        assert set(clients.failed) == {"dead"}
        names = [tool.name for tool in await clients.list_tools()]
        assert "shop_count" in names
        assert "shop_two_count" in names
        assert await clients.call_tool("shop_two_count", {"a": 1, "b": 4}, into=int) == 5
        result = await clients.call_tool("shop_two_count", {"a": 1, "b": 2})
        assert result.structured_content == {"result": 3}
        assert len(servers["shop"].calls) == 0  # type: ignore[union-attr]
        assert (await clients.get_prompt("shop_complaint", {"order_id": "7"})).messages
        assert [prompt.name for prompt in await clients.list_prompts()] == ["shop_complaint", "shop_two_complaint"]
        assert set(await clients.list_resources()) == {"shop", "shop_two"}
        for wrong in ("dead_tool", "unknown_tool"):
            with pytest.raises(LocalProtocolError):
                await clients.call_tool(wrong)
        with pytest.raises(LocalProtocolError):
            clients["dead"]


async def test_an_exception_of_the_block_is_raised_alone() -> None:
    with pytest.raises(KeyError):
        async with connect_all({"shop": make_server()}):
            raise KeyError("mine")


def test_a_hosts_configuration_is_read(tmp_path: Path) -> None:
    servers = {
        "files": {"command": "npx", "args": ["-y", "files; rm -rf /"], "env": {"KEY": "v"}, "cwd": "/tmp"},
        "web": {"type": "http", "url": "https://example.org/mcp", "headers": {"X-Key": "v"}},
        "off": {"command": "x", "disabled": True},
    }
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"mcpServers": servers, "other": 1}))
    read = read_servers(file)
    assert list(read) == ["files", "web"]
    transport: Any = make_client(read["files"])._connector.transport
    assert isinstance(transport, StdioTransport)
    assert transport.argv == ("npx", "-y", "files; rm -rf /")
    assert transport.env == {"KEY": "v"}
    web: Any = make_client(read["web"], headers={"A": "b"})._connector.transport
    assert (web.url, web.headers) == ("https://example.org/mcp", {"A": "b", "X-Key": "v"})


@pytest.mark.parametrize("entry", [{}, {"command": 1}, {"command": "x", "args": "y"}, {"url": 1}, {"type": "x"}])
def test_an_entry_that_cannot_be_understood_is_refused(entry: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        make_client(entry)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"mcpServers": []}', '{"mcpServers": {"a": "b"}}'])
def test_a_configuration_of_another_shape_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(DeclarationError):
        read_servers(file)
    with pytest.raises(DeclarationError):
        read_servers(tmp_path / "missing.json")


CONFIG = {
    "web": {"url": "https://example.org/mcp", "headers": {"X-Key": "v"}},
    "files": {"command": "npx", "args": ["files"], "env": {"KEY": "v"}, "cwd": "/tmp"},
    "a:b c": {"command": "odd"},
    "off": {"command": "x", "disabled": True},
    "wrong": {"url": "mcp.json"},
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "my mcp.json"
    file.write_text(json.dumps({"mcpServers": CONFIG}))
    return file


def test_a_server_of_a_hosts_configuration_is_a_target(config: Path) -> None:
    web: Any = Client(f"{config}:web", headers={"A": "b"})._connector.transport
    assert (web.url, web.headers) == ("https://example.org/mcp", {"A": "b", "X-Key": "v"})
    files: Any = Client(f"{config}:files", env={"A": "b"}, cwd="/")._connector.transport
    assert (files.argv, files.env, files.cwd) == (("npx", "files"), {"A": "b", "KEY": "v"}, "/tmp")
    odd: Any = Client(Path(f"{config}:a:b c"))._connector.transport
    assert odd.argv == ("odd",)


@pytest.mark.parametrize("target", [str, Path])
def test_a_configuration_with_one_server_needs_no_name(target: Any, tmp_path: Path) -> None:
    file = tmp_path / "claude_desktop_config.json"
    file.write_text(json.dumps({"mcpServers": {"only": {"command": "x"}}}))
    transport: Any = Client(target(file))._connector.transport
    assert transport.argv == ("x",)


@pytest.mark.parametrize(
    ("tail", "text"),
    [
        ("", "name a server: .*my mcp.json:NAME; the servers are web, files, a:b c, wrong"),
        (":nope", "has no server 'nope'; the servers are web"),
        (":off", "has no server 'off'"),
        (":wrong", "wrong: url must begin with"),
        ("x.json", "cannot be read"),
    ],
)
def test_a_target_that_names_no_server_of_its_file_is_refused(tail: str, text: str, config: Path) -> None:
    with pytest.raises(DeclarationError, match=text):
        Client(f"{config}{tail}")


def named(*tools: str) -> Server:
    """A server whose tools say which server and which tool was called."""
    server = Server("named", version="1")
    for tool in tools:

        def say(tool: str = tool) -> str:
            """Say it."""
            return tool

        server.add_tool(say, name=tool)
    return server


@pytest.mark.defect("C15")
async def test_a_call_for_a_server_that_failed_is_not_sent_to_another_one() -> None:
    async with connect_all({"git": named("hub_delete"), "git_hub": scripted(dead)}) as clients:
        with pytest.raises(LocalProtocolError, match="'git_hub' could not be connected to"):
            await clients.call_tool("git_hub_delete")


@pytest.mark.defect("C15")
async def test_a_listed_name_leads_to_the_server_that_listed_it(caplog: pytest.LogCaptureFixture) -> None:
    async with connect_all({"git": named("hub_x", "y"), "git_hub": named("x")}) as clients:
        assert [tool.name for tool in await clients.list_tools()] == ["git_y", "git_hub_x"]
    assert "'hub_x' of the server 'git' is left out" in caplog.text
