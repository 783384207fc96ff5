"""A client as type checkers see it. A line that must be an error is marked; an unneeded mark is an error too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from mcptrio import Client, Reconnect, Server, aio, blocking, connect, connect_all
from mcptrio.client import Change, Clients, make_client, read_servers
from mcptrio.types import CallToolResult, ElicitParams, LoggingMessageParams, ReadResourceResult, Tool


@dataclass
class Order:
    id: str


async def elicit(params: ElicitParams) -> dict[str, str]:
    return {"size": params.message}


def log(message: LoggingMessageParams) -> None: ...


async def one(server: Server) -> None:
    async with connect(server, elicit=elicit, log=log, timeout=3, open_timeout=5, max_rounds=2) as client:
        assert_type(client, Client)
        assert_type(await client.list_tools(), tuple[Tool, ...])
        assert_type(await client.call_tool("order", {"id": "7"}), CallToolResult)
        assert_type(await client.call_tool("order", {"id": "7"}, into=Order), Order)
        assert_type(await client.read_resource("orders://7"), ReadResourceResult)
        await client.call_tool("order", timeot=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    connect("https://example.org/mcp", headers={"x": "y"}, reconnect=Reconnect(tries=0), protocol=["2025-11-25"])
    connect(["python", "server.py"], env={"A": "b"}, cwd="/tmp")
    connect(server, tiemout=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    connect(server, timeout="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    connect(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    connect(server, auth="token")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    connect(server, elicit=lambda params: 3)  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]
    Client(server, max_pages=3)
    Client(server, max_page=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Client(server, max_pages="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def in_asyncio(server: Server) -> None:
    async with aio.connect(server, elicit=elicit, log=log, timeout=3) as client:
        assert_type(client, aio.AsyncioClient)
        assert_type(await client.list_tools(), tuple[Tool, ...])
        assert_type(await client.call_tool("order", {"id": "7"}), CallToolResult)
        assert_type(await client.call_tool("order", {"id": "7"}, into=Order), Order)
        assert_type(await client.read_resource("orders://7", timeout=3), ReadResourceResult)
        async for tool in client.iter_tools():
            assert_type(tool, Tool)
        async with client.listen(tools=True) as changes:
            async for change in changes:
                assert_type(change, Change)
        await client.ping(timeout="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        await client.call_tool("order", timeot=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    aio.connect(server, tiemout=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def in_a_plain_program(server: Server) -> None:
    with blocking.connect(server, elicit=elicit, log=log, timeout=3) as client:
        assert_type(client, blocking.BlockingClient)
        assert_type(client.list_tools(), tuple[Tool, ...])
        assert_type(client.call_tool("order", {"id": "7"}), CallToolResult)
        assert_type(client.call_tool("order", {"id": "7"}, into=Order), Order)
        assert_type(client.read_resource("orders://7", timeout=3), ReadResourceResult)
        for tool in client.iter_tools():
            assert_type(tool, Tool)
        with client.listen(tools=True) as changes:
            for change in changes:
                assert_type(change, Change)
        client.ping(timeout="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        client.call_tool("order", timeot=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    blocking.connect(server, tiemout=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def several(server: Server) -> None:
    async with connect_all({"a": server, "b": {"command": "b"}, "c": Client(server)}, timeout=3) as clients:
        assert_type(clients, Clients)
        assert_type(await clients.call_tool("a_order"), CallToolResult)
        assert_type(clients["a"], Client)
    async with connect_all(read_servers("mcp.json"), separator="."):
        pass
    async with connect_all({"a": server}, tiemout=3):  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        pass
    make_client({"url": "https://example.org/mcp"}, timeout=3)
    make_client({"url": "https://example.org/mcp"}, tiemout=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def several_in_asyncio(server: Server) -> None:
    async with aio.connect_all({"a": server, "c": aio.connect(server)}, timeout=3, elicit=elicit) as clients:
        assert_type(clients["a"], aio.AsyncioClient)
        assert_type(await clients.call_tool("a_order", into=Order), Order)
        assert_type(await clients.list_tools(), tuple[Tool, ...])


def several_in_a_plain_program(server: Server) -> None:
    with blocking.connect_all({"a": server, "c": blocking.connect(server)}, timeout=3, elicit=elicit) as clients:
        assert_type(clients["a"], blocking.BlockingClient)
        assert_type(clients.call_tool("a_order", into=Order), Order)
        assert_type(clients.list_tools(), tuple[Tool, ...])
