"""A small application and inspectable links, for tests of sessions and their transports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
import trio
from attrs import define, field, frozen

from mcptrio import telemetry
from mcptrio._actors.call import Call
from mcptrio._actors.limits import Limits
from mcptrio._actors.router import Route, Router
from mcptrio._actors.runtime import Runtime
from mcptrio._actors.session import Session
from mcptrio._actors.supervisor import Supervisor
from mcptrio._eras.choose import Served
from mcptrio._peer.effects import Start
from mcptrio._peer.era import Era, Role
from mcptrio._peer.link import ReplyLink, SessionLink
from mcptrio._wire.jsonrpc import Frame, Notification, Request, decode
from mcptrio.stores import MemoryBus, MemoryStore

ALL_CAPABILITIES: dict[str, Any] = {"sampling": {}, "roots": {}, "elicitation": {"form": {}, "url": {}}}


@frozen
class Ctx:
    """The context that handlers of these tests get."""

    session: Session
    call: Call

    async def ask(self, method: str = "sampling/createMessage", **params: Any) -> Any:
        return await self.session.asks.ask(method, params, call=self.call)

    async def notify(self, method: str, **params: Any) -> None:
        await self.session.asks.notify(method, params, call=self.call)


def open_session(ctx: Ctx, params: dict[str, Any]) -> dict[str, Any]:
    assert ctx.session.peer.era is not None
    return {
        "protocolVersion": ctx.session.peer.era.date,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "kit", "version": "1"},
    }


def pong(ctx: Ctx, params: dict[str, Any]) -> dict[str, Any]:
    return {}


@define(eq=False)
class App:
    """An application whose methods are given as functions; plain functions run inline."""

    handlers: Mapping[str, Callable[..., Any]] = field(factory=dict)
    limits: Limits = field(factory=Limits)
    role: Role = Role.SERVER
    eras: Served = field(factory=Served)
    events: list[Any] = field(factory=list)
    router: Router = field(init=False)
    telemetry: telemetry.Hub = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.telemetry = telemetry.Hub([self.events.append])
        self.router = Router()
        self.router.add_all(
            [Route("initialize", None, open_session, inline=True), Route("ping", None, pong, inline=True)]
        )
        for method, handler in self.handlers.items():
            inline = not _is_async(handler)
            self.router.add(Route(method, None, handler, inline=inline))

    def parameter_headers(self, tool: str) -> dict[str, tuple[str, ...]]:
        return {}

    def needed_scopes(self, method: str, params: Any, all_of_them: bool = False) -> tuple[str, ...]:
        return ()

    def make_context(self, session: Session, call: Call) -> Ctx:
        return Ctx(session, call)

    def finish(self, result: dict[str, Any], era: Era) -> dict[str, Any]:
        return result

    def may_replay(self, start: Start) -> bool:
        return False

    def request_scope(self, session: Session, call: Call) -> None:
        return None

    def offers_now(self) -> dict[str, Any]:
        return {"tools": {}}

    def lifespan_context(self) -> AbstractAsyncContextManager[Any]:
        return nothing()

    def attach(self, runtime: Runtime) -> Callable[[], None]:
        return lambda: None

    def count(self, kind: type) -> int:
        return sum(type(event) is kind for event in self.events)


def _is_async(fn: Callable[..., Any]) -> bool:
    import inspect

    return inspect.iscoroutinefunction(fn)


@asynccontextmanager
async def nothing() -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def open_runtime(app: App, limits: Limits | None = None) -> AsyncIterator[Runtime]:
    runtime = Runtime(app=app, store=MemoryStore(), bus=MemoryBus(), supervisor=Supervisor(limits=limits or Limits()))
    async with runtime.open():
        yield runtime


@define(eq=False)
class ListLink(SessionLink):
    """A link that keeps the posted messages."""

    per_request: bool = False
    posted: list[bytes] = field(factory=list)
    ended: bool = False
    full: bool = False
    resting: bool = True

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        assert not self.ended, "posted after the end"
        self.posted.append(data)

    def end(self) -> None:
        self.ended = True

    async def room(self) -> None:
        await trio.lowlevel.checkpoint()

    @property
    def sent(self) -> list[Any]:
        """Every message, as JSON values."""
        return [msgspec.json.decode(data) for data in self.posted]

    def clear(self) -> None:
        self.posted.clear()


def request(request_id: int | str, method: str, **params: Any) -> Request:
    return Request(request_id, method, params)


def notification(method: str, **params: Any) -> Notification:
    return Notification(method, params)


def initialize(date: str = "2025-11-25", **capabilities: Any) -> Request:
    client = {"name": "test", "version": "0"}
    return request("init", "initialize", protocolVersion=date, capabilities=capabilities, clientInfo=client)


@define(eq=False)
class Talk:
    """One session and the link it answers on."""

    session: Session
    link: ListLink
    app: App

    async def deliver(self, *frames: Any, link: ReplyLink | None = None) -> None:
        for frame in frames:
            await self.session.deliver(frame, link or self.link)

    async def settle(self) -> list[Any]:
        """Wait until all tasks are blocked; return the messages sent since the last call."""
        await trio.testing.wait_all_tasks_blocked()
        sent = self.link.sent
        self.link.clear()
        return sent

    async def open(self, date: str = "2025-11-25", **capabilities: Any) -> None:
        await self.deliver(initialize(date, **capabilities), notification("notifications/initialized"))
        answers = await self.settle()
        assert answers[0]["result"]["protocolVersion"] == date


@asynccontextmanager
async def open_talk(
    handlers: Mapping[str, Callable[..., Any]] | None = None,
    *,
    limits: Limits | None = None,
    date: str | None = "2025-11-25",
    capabilities: dict[str, Any] | None = None,
) -> AsyncIterator[Talk]:
    """Open a runtime with one session, already initialized unless `date` is None."""
    app = App(handlers or {}, limits=limits or Limits())
    async with open_runtime(app) as runtime:
        link = ListLink()
        talk = Talk(runtime.new_session(link, transport="test"), link, app)
        if date is not None:
            await talk.open(date, **(ALL_CAPABILITIES if capabilities is None else capabilities))
        yield talk


def result(answer: Any) -> Any:
    return answer["result"]


def frame(data: bytes) -> Frame:
    decoded = decode(data)
    assert not isinstance(decoded, tuple)
    return decoded
