"""A server to connect to, and servers that do exactly what a script says."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import trio

from mcptrio import Context, Server, ToolError
from mcptrio._eras.choose import ERAS
from mcptrio.errors import ConnectionLost

STATEFUL = [date for date, era in ERAS.items() if era.stateful]
STATELESS = [date for date, era in ERAS.items() if not era.stateful]
BOTH = [STATEFUL[-1], STATELESS[-1]]


@dataclass
class Order:
    order_id: str
    quantity: int


@dataclass
class Shirt:
    size: Literal["s", "m", "l"] = "m"
    count: int = 1


def make_server(**options: Any) -> Server:
    """Return a server with some tools, resources and prompts of each kind."""
    server = Server("shop", version="2.0", instructions="Ask for orders.", **options)
    calls: list[str] = []
    server.calls = calls  # type: ignore[attr-defined]  # for tests to look into

    @server.tool(read_only=True)
    async def order(order_id: str) -> Order:
        """Look up an order."""
        calls.append(order_id)
        return Order(order_id, 3)

    @server.tool
    async def count(a: int, b: int) -> int:
        """Add."""
        return a + b

    @server.tool
    async def shirt(ctx: Context) -> str:
        """Ask for a shirt."""
        answer = await ctx.elicit("Which?", Shirt)
        return f"{answer.action} {answer.value}"

    @server.tool
    async def think(ctx: Context) -> str:
        """Ask the model."""
        said = await ctx.sample("Say something", max_tokens=10)
        return str(getattr(said.content[0], "text", ""))

    @server.tool
    async def places(ctx: Context) -> str:
        """Ask for roots."""
        return " ".join(root.uri for root in await ctx.list_roots())

    @server.tool
    async def steps(ctx: Context) -> str:
        """Report progress and log."""
        for step in range(1, 4):
            await ctx.progress(step, 3, f"step {step}")
            await ctx.info(f"log {step}")
        return "done"

    @server.tool
    async def wait(seconds: float) -> str:
        """Take long."""
        calls.append("wait")
        try:
            await trio.sleep(seconds)
        except trio.Cancelled:
            calls.append("cancelled")
            raise
        return "waited"

    @server.tool
    async def fail() -> str:
        """Fail."""
        raise ToolError("no luck")

    @server.resource("orders://{order_id}", mime_type="text/plain")
    async def resource(order_id: str) -> str:
        """One order."""
        calls.append(f"read {order_id}")
        return f"order {order_id}"

    @server.resource("shop://hours", mime_type="text/plain")
    async def hours() -> str:
        """The opening hours."""
        return "nine to five"

    @server.prompt
    def complaint(order_id: str) -> str:
        """Complain."""
        return f"Complain about {order_id}"

    @complaint.complete("order_id")
    async def ids(prefix: str, ctx: Context) -> list[str]:
        return [one for one in ("17", "18", "27") if one.startswith(prefix)]

    return server


Script = Callable[["Wire"], Awaitable[None]]


@dataclass
class Wire:
    """The server's end of a link, in the hands of a script."""

    incoming: trio.MemoryReceiveChannel[bytes]
    outgoing: trio.MemorySendChannel[bytes]
    received: list[dict[str, Any]] = field(default_factory=list)

    async def take(self, method: str | None = None) -> dict[str, Any]:
        """The next message, or the next one with this method."""
        while True:
            message: dict[str, Any] = json.loads(await self.incoming.receive())
            self.received.append(message)
            if method is None or message.get("method") == method:
                return message

    async def say(self, **message: Any) -> None:
        await self.outgoing.send(json.dumps({"jsonrpc": "2.0", **message}).encode())

    async def raw(self, data: bytes) -> None:
        await self.outgoing.send(data)

    async def answer(self, request: dict[str, Any], **result: Any) -> None:
        await self.say(id=request["id"], result=result)

    async def refuse(self, request: dict[str, Any], code: int, message: str = "no", data: Any = None) -> None:
        error = {"code": code, "message": message} | ({} if data is None else {"data": data})
        await self.say(id=request["id"], error=error)

    async def open_stateful(self, date: str = BOTH[0], **capabilities: Any) -> None:
        """Complete the handshake, whatever the client tries first."""
        while (request := await self.take())["method"] != "initialize":
            await self.refuse(request, -32601)
        await self.answer(
            request,
            protocolVersion=date,
            capabilities=capabilities or {"tools": {}, "resources": {}, "prompts": {}},
            serverInfo={"name": "script", "version": "0"},
        )
        await self.take("notifications/initialized")

    async def open_stateless(self, **capabilities: Any) -> None:
        request = await self.take("server/discover")
        await self.answer(
            request,
            resultType="complete",
            supportedVersions=[BOTH[1]],
            capabilities=capabilities or {"tools": {}, "resources": {}, "prompts": {}},
            ttlMs=0,
            cacheScope="private",
        )


@dataclass
class Scripted:
    """A server that does what its script says; each connection begins the next script, the last one again and again."""

    scripts: tuple[Script, ...]
    wires: list[Wire] = field(default_factory=list)

    @asynccontextmanager
    async def open_memory_link(self) -> AsyncIterator[Any]:
        to_server = trio.open_memory_channel[bytes](64)
        to_client = trio.open_memory_channel[bytes](64)
        wire = Wire(to_server[1], to_client[0])
        script = self.scripts[min(len(self.wires), len(self.scripts) - 1)]
        self.wires.append(wire)

        async def play() -> None:
            with to_client[0], to_server[1]:
                with suppress(trio.EndOfChannel, trio.BrokenResourceError):  # the client has left
                    await script(wire)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(play)
            try:
                yield End(to_server[0], to_client[1])
            finally:
                nursery.cancel_scope.cancel()


@dataclass
class End:
    outgoing: trio.MemorySendChannel[bytes]
    incoming: trio.MemoryReceiveChannel[bytes]

    def send_nowait(self, frame: bytes) -> bool:
        try:
            self.outgoing.send_nowait(frame)
        except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        return True

    async def send(self, frame: bytes) -> None:
        try:
            await self.outgoing.send(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise ConnectionLost("gone") from None

    async def receive(self) -> bytes:
        try:
            return await self.incoming.receive()
        except (trio.EndOfChannel, trio.ClosedResourceError):
            raise ConnectionLost("gone") from None

    def hand_to(self, take: Callable[[bytes], bool]) -> None:
        pass


def scripted(*scripts: Script) -> Scripted:
    return Scripted(scripts)
