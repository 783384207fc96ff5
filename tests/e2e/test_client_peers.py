"""The client against servers of other makers: the official SDKs, and the reference server."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from mcptrio import Client, MCPError, connect
from mcptrio.types import ProgressParams, TextContent
from tests.conformance.toolchain import Unavailable, node, npm_package, python_package
from tests.ports import free_port
from tests.tiers import exhaustive, sample

SCRIPT = Path(__file__).parent / "peers" / "serve_mcp.py"
TIMEOUT = 60.0
OLD = "2025-11-25"


def brought(make: Callable[[], list[str]]) -> list[str]:
    """The command, or a skip with the reason (a failure where CI is set)."""
    try:
        return make()
    except Unavailable as reason:
        if os.environ.get("CI"):
            pytest.fail(str(reason), pytrace=False)
        pytest.skip(str(reason))


def python_server(version: str) -> list[str]:
    return [str(python_package(f"peers/mcp-{version}", f"mcp>={version},<{int(version) + 1}")), str(SCRIPT)]


def everything() -> list[str]:
    modules = npm_package("peers/everything", "@modelcontextprotocol/server-everything")
    program = modules / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"
    return [str(node().program), str(program)]


@asynccontextmanager
async def listening(command: list[str], env: dict[str, str], port: int) -> AsyncIterator[str]:
    """A server on a port, once it takes connections."""
    process = await trio.lowlevel.open_process(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **env}
    )
    try:
        with trio.fail_after(TIMEOUT):
            while True:
                try:
                    await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
                    break
                except OSError:
                    await trio.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


def text(result: Any) -> str:
    return "".join(block.text for block in result.content if isinstance(block, TextContent))


async def use_python_peer(client: Client) -> None:
    names = {tool.name for tool in await client.list_tools()}
    assert names == {"add", "steps", "fail", "ask"}
    assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"total": 3}
    seen: list[ProgressParams] = []
    assert text(await client.call_tool("steps", on_progress=seen.append)) == "done"
    assert [one.progress for one in seen] == [1, 2, 3]
    assert (await client.call_tool("fail")).is_error
    if client.protocol_version == OLD:  # the SDK has no way to ask inline in the newest one
        assert text(await client.call_tool("ask")) == "accept l"
    assert [one.uri for one in await client.list_resources()] == ["notes://first"]
    assert [one.uri_template for one in await client.list_resource_templates()] == ["notes://{name}"]
    assert getattr((await client.read_resource("notes://x")).contents[0], "text", None) == "note x"
    assert getattr((await client.get_prompt("greet", {"name": "you"})).messages[0].content, "text", "") == "Greet you"
    with pytest.raises(MCPError):
        await client.get_prompt("nothing")
    await client.ping()


def options(protocol: str | None) -> dict[str, Any]:
    return {"protocol": protocol, "elicit": lambda _: {"size": "l"}, "timeout": 30, "open_timeout": TIMEOUT}


CASES = sample([("2", None), ("2", OLD), ("1", None)], ("2", None))


@pytest.mark.parametrize(("version", "protocol"), CASES)
async def test_the_official_python_sdk_over_stdio(version: str, protocol: str | None) -> None:
    command = brought(lambda: python_server(version))
    async with connect([*command, "stdio"], **options(protocol)) as client:
        assert client.protocol_version == (OLD if protocol or version == "1" else "2026-07-28")
        await use_python_peer(client)


@pytest.mark.parametrize(("version", "protocol"), CASES)
async def test_the_official_python_sdk_over_http(version: str, protocol: str | None) -> None:
    command = brought(lambda: python_server(version))
    port = free_port()
    async with listening([*command, "http", str(port)], {}, port) as url:
        async with connect(url, **options(protocol)) as client:
            assert client.protocol_version == (OLD if protocol or version == "1" else "2026-07-28")
            await use_python_peer(client)


async def use_everything(client: Client) -> None:
    tools = {tool.name for tool in await client.list_tools()}
    assert "echo" in tools
    assert "hello" in text(await client.call_tool("echo", {"message": "hello"}))
    assert len(await client.list_resources()) > 0
    resource = (await client.list_resources())[0]
    assert (await client.read_resource(resource.uri)).contents
    prompts = await client.list_prompts()
    assert prompts
    simple = next(prompt for prompt in prompts if not prompt.arguments)
    assert (await client.get_prompt(simple.name)).messages
    if "trigger-long-running-operation" in tools:
        seen: list[ProgressParams] = []
        arguments = {"duration": 1, "steps": 3}
        await client.call_tool("trigger-long-running-operation", arguments, on_progress=seen.append)
        assert len(seen) == 3
    await client.ping()


@exhaustive
async def test_the_reference_server_over_stdio() -> None:
    command = brought(everything)
    async with connect([*command, "stdio"], sample=lambda _: "hm", roots=["file:///tmp"], **options(None)) as client:
        await use_everything(client)


@exhaustive
async def test_the_reference_server_over_http() -> None:
    command = brought(everything)
    port = free_port()
    async with listening([*command, "streamableHttp"], {"PORT": str(port)}, port) as url:
        async with connect(url, sample=lambda _: "hm", roots=["file:///tmp"], **options(None)) as client:
            await use_everything(client)
