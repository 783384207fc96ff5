"""A scripted client over the memory link: opens a session at a date, asks, and writes down what the server says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
from attrs import define, field
from trio.testing import wait_all_tasks_blocked

from mcptrio import Server
from mcptrio._actors.runtime import Runtime
from mcptrio._eras.choose import ERAS
from mcptrio._peer.era import Era
from mcptrio.errors import ConnectionLost
from mcptrio.transports.memory.server import MemoryEnd, open_memory_link

Json = dict[str, Any]
Script = Mapping[str, Callable[[Json], Any]]

STATEFUL = {date: era for date, era in ERAS.items() if era.stateful}
"""The dates that open with `initialize`, oldest first."""
NEWEST = next(reversed(STATEFUL.values()))
EVERYTHING: Json = {
    "sampling": {"tools": {}},
    "roots": {"listChanged": True},
    "elicitation": {"form": {}, "url": {}},
}

every_era = pytest.mark.parametrize("era", STATEFUL.values(), ids=list(STATEFUL))


def eras_where(true: Callable[[Era], bool]) -> pytest.MarkDecorator:
    """Parametrize a test over the dates whose era satisfies a predicate."""
    chosen = [era for era in STATEFUL.values() if true(era)]
    assert chosen
    return pytest.mark.parametrize("era", chosen, ids=[era.date for era in chosen])


class Refused(Exception):
    """The server answered with a JSON-RPC error; or, returned by a script, the client does."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.data = data


class Silence:
    """Returned by a script: this question is never answered."""


@define(eq=False)
class Talk:
    """One session, from the client's side."""

    end: MemoryEnd
    script: Script
    opening: Json = field(factory=dict)
    """The result of `initialize`."""
    notified: list[tuple[str, Json]] = field(factory=list)
    asked: list[tuple[str, Json]] = field(factory=list)
    raw: list[bytes] = field(factory=list)
    """Everything that came, as it came."""
    _last_id: int = 0
    _waiting: dict[Any, tuple[trio.Event, list[Json]]] = field(factory=dict)

    async def read(self) -> None:
        """Dispatch incoming messages until the link is closed."""
        try:
            while True:
                data = await self.end.receive()
                self.raw.append(data)
                await self._take(msgspec.json.decode(data))
        except ConnectionLost:
            for event, _ in self._waiting.values():
                event.set()

    async def _take(self, frame: Json) -> None:
        if "method" not in frame:
            event, replies = self._waiting.pop(frame["id"])
            replies.append(frame)
            event.set()
        elif "id" not in frame:
            self.notified.append((frame["method"], frame.get("params", {})))
        else:
            method, params = frame["method"], frame.get("params", {})
            self.asked.append((method, params))
            answer = self.script[method](params)
            if isinstance(answer, Silence):
                return
            if isinstance(answer, Refused):
                await self.send(id=frame["id"], error={"code": answer.code, "message": answer.message})
            else:
                await self.send(id=frame["id"], result=answer)

    async def send(self, **frame: Any) -> None:
        await self.end.send(msgspec.json.encode({"jsonrpc": "2.0", **frame}))

    async def notify(self, method: str, **params: Any) -> None:
        await self.send(method=method, params=params)

    async def begin(self, method: str, **params: Any) -> int:
        """Send a request without waiting for its answer; returns its id."""
        return (await self._begin(method, params))[0]

    async def _begin(self, method: str, params: Json) -> tuple[int, tuple[trio.Event, list[Json]]]:
        number = self._last_id = self._last_id + 1  # others may begin while this one is sent
        waiting = self._waiting[number] = (trio.Event(), [])  # and its answer may be here when that is done
        await self.send(id=number, method=method, params=params)
        return number, waiting

    async def request(self, method: str, **params: Any) -> Json:
        """Ask for something and return the result.

        Raises:
            Refused: the server answered with an error.
            ConnectionLost: it hung up instead.
        """
        _, (event, replies) = await self._begin(method, params)
        await event.wait()
        if not replies:
            raise ConnectionLost(method)
        (reply,) = replies
        if "error" in reply:
            raise Refused(**reply["error"])
        result: Json = reply["result"]
        return result

    async def call(self, name: str, arguments: Json | None = None, **params: Any) -> Json:
        if arguments is not None:
            params["arguments"] = arguments
        return await self.request("tools/call", name=name, **params)

    async def text(self, name: str, /, **arguments: Any) -> str:
        """The text of a call that is expected to work."""
        result = await self.call(name, arguments)
        assert not result.get("isError"), result
        (block,) = result["content"]
        return str(block["text"])

    async def fault(self, name: str, /, **arguments: Any) -> str:
        """The text of a call that is expected to fail with a result."""
        result = await self.call(name, arguments)
        assert result["isError"] is True, result
        (block,) = result["content"]
        return str(block["text"])

    async def settled(self) -> None:
        """Wait until the server has nothing more to do on its own."""
        await wait_all_tasks_blocked()

    def heard(self, method: str) -> list[Json]:
        return [params for name, params in self.notified if name == method]


async def refusal(talk: Talk, method: str, **params: Any) -> Refused:
    """The error that a request is answered with."""
    with pytest.raises(Refused) as caught:
        await talk.request(method, **params)
    return caught.value


Join = Callable[..., AbstractAsyncContextManager[Talk]]


@asynccontextmanager
async def open_server(server: Server) -> AsyncIterator[Join]:
    """A running server that several clients may join: `async with open_server(server) as join, join() as talk:`."""
    async with server._app.make_runtime().open() as runtime:

        def join(
            era: Era = NEWEST, capabilities: Json | None = None, script: Script | None = None, opened: bool = True
        ) -> AbstractAsyncContextManager[Talk]:
            return _join(runtime, era, capabilities or {}, script or {}, opened)

        yield join


@asynccontextmanager
async def _join(runtime: Runtime, era: Era, capabilities: Json, script: Script, opened: bool) -> AsyncIterator[Talk]:
    async with open_memory_link(runtime) as end, trio.open_nursery() as nursery:
        talk = Talk(end, script)
        nursery.start_soon(talk.read)
        try:
            if opened:
                await initialize(talk, era, capabilities)
            yield talk
        finally:
            nursery.cancel_scope.cancel()


async def initialize(talk: Talk, era: Era = NEWEST, capabilities: Json | None = None) -> None:
    info = {"name": "talk", "version": "1"}
    talk.opening = await talk.request(
        "initialize", protocolVersion=era.date, capabilities=capabilities or {}, clientInfo=info
    )
    assert talk.opening["protocolVersion"] == era.date
    await talk.notify("notifications/initialized")
    await talk.settled()


@asynccontextmanager
async def talking(
    server: Server, era: Era = NEWEST, capabilities: Json | None = None, script: Script | None = None
) -> AsyncIterator[Talk]:
    """One client of a server of its own."""
    async with open_server(server) as join, join(era, capabilities, script) as talk:
        yield talk
