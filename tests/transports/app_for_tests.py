"""A small real application, and a client's view of its endpoint without any server in between."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import trio
from attrs import define, field, frozen
from msgspec import structs

from mcptrio import telemetry
from mcptrio._actors.call import Call
from mcptrio._actors.limits import Limits
from mcptrio._actors.router import Route, Router
from mcptrio._actors.runtime import Runtime
from mcptrio._actors.session import Session
from mcptrio._actors.supervisor import Supervisor
from mcptrio._eras.choose import Served
from mcptrio._peer.era import Role
from mcptrio._wire.sse import ServerSentEvent, SseReader
from mcptrio.errors import MCPError
from mcptrio.stores.memory import MemoryBus, MemoryStore
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.endpoint.message import HttpRequest, Plain, Stream
from mcptrio.transports.http_server.endpoint.post import Pending

LATEST = "2025-11-25"


@frozen
class Ctx:
    session: Session
    call: Call

    async def report(self, number: int) -> None:
        params = {"progressToken": "t", "progress": number}
        await self.session.asks.notify("notifications/progress", params, call=self.call)


class Stage:
    """Lets a test control the handlers of its application step by step."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.cues, self.cue = trio.open_memory_channel[str](1000)

    async def initialize(self, ctx: Ctx, params: dict[str, Any]) -> dict[str, Any]:
        name = params["clientInfo"]["name"]
        if name == "refused":
            raise MCPError(-32000, "not you")
        if name == "slow":
            await trio.sleep(1)
        era = ctx.session.peer.era
        assert era is not None
        return {"protocolVersion": era.date, "capabilities": {}, "serverInfo": {"name": "t", "version": "1"}}

    async def echo(self, ctx: Ctx, params: dict[str, Any]) -> dict[str, Any]:
        say = params.get("say")
        return {"echo": say * params["times"] if "times" in params else say}

    async def sleep(self, ctx: Ctx, params: dict[str, Any]) -> dict[str, Any]:
        name = str(params.get("name", ""))
        self.begun.append(name)
        try:
            await trio.sleep(params["seconds"])
            return {"slept": params["seconds"]}
        finally:
            self.ended.append(name)

    async def count(self, ctx: Ctx, params: dict[str, Any]) -> dict[str, Any]:
        """Tells `to` numbers, `every` seconds apart (0: all at once)."""
        for number in range(params["to"]):
            await ctx.report(number)
            if params.get("every"):
                await trio.sleep(params["every"])
        return {"counted": params["to"]}

    async def follow(self, ctx: Ctx, params: dict[str, Any]) -> dict[str, Any]:
        """Tells a number whenever the test says so, and answers when it says `end`."""
        number = 0
        while True:
            cue = await self.cue.receive()
            if cue == "end":
                return {"followed": number}
            if cue == "close":
                ctx.call.start.link.close_connection()
            else:
                await ctx.report(number)
                number += 1

    async def ask(self, ctx: Ctx, params: dict[str, Any]) -> dict[str, Any]:
        """Asks for the roots, after reporting `tell` numbers."""
        for number in range(params.get("tell", 0)):
            await ctx.report(number)
        answer = await ctx.session.asks.ask("roots/list", {}, call=ctx.call)
        return {"answer": answer}

    async def where(self, ctx: Ctx, params: dict[str, Any]) -> dict[str, Any]:
        return {"path": ctx.call.start.link.head.path}


@define(eq=False)
class App:
    stage: Stage
    role: Role = Role.SERVER
    eras: Served = field(factory=Served)
    router: Router = field(factory=Router)
    limits: Limits = field(factory=Limits)
    telemetry: telemetry.Hub = field(factory=telemetry.Hub)
    events: list[Any] = field(factory=list)
    reruns: bool = False
    """Whether calls of a process that died may run again."""

    def __attrs_post_init__(self) -> None:
        stage = self.stage
        for method in ("initialize", "echo", "sleep", "count", "follow", "ask", "where"):
            self.router.add(Route(method, None, getattr(stage, method)))
        self.router.add(Route("ping", None, lambda ctx, params: {}, inline=True))
        self.telemetry.add(self.events.append)

    def finish(self, result: dict[str, Any], era: Any) -> dict[str, Any]:
        return result

    def may_replay(self, start: Any) -> bool:
        return True

    def request_scope(self, session: Session, call: Call) -> None:
        return None

    def offers_now(self) -> frozenset[str]:
        return frozenset({"tools", "prompts", "resources", "completions"})

    def parameter_headers(self, tool: str) -> dict[str, tuple[str, ...]]:
        return {}

    def needed_scopes(self, method: str, params: Any, all_of_them: bool = False) -> tuple[str, ...]:
        return ()

    def make_context(self, session: Session, call: Call) -> Ctx:
        return Ctx(session, call)

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        yield

    def lifespan_context(self) -> AbstractAsyncContextManager[None]:
        return self._lifespan()

    def attach(self, runtime: Runtime) -> Callable[[], None]:
        return lambda: None

    def may_rerun(self, method: str, params: Any) -> bool:
        return self.reruns

    def topics(self, session: Session) -> list[str]:
        return []

    async def restore(self, session: Session, record: Any, link: Any) -> None:
        pass

    def counted(self, name: str) -> int:
        """Return the number of events with this name, kind or cause."""
        wanted = ("name", "kind", "cause")
        others = [event for event in self.events if not isinstance(event, telemetry.CallEnded)]
        return sum(any(getattr(event, key, None) == name for key in wanted) for event in others)


def make_runtime(
    *,
    limits: Limits | None = None,
    max_sessions: int = 100,
    idle: float = 1800,
    store: Any = None,
    stage: Stage | None = None,
) -> Runtime:
    app = App(stage or Stage(), limits=limits or Limits())
    supervisor = Supervisor(limits=structs.replace(app.limits, max_sessions=max_sessions, idle_timeout=idle))
    return Runtime(app=app, store=store or MemoryStore(), bus=MemoryBus(), supervisor=supervisor)


@asynccontextmanager
async def open_endpoint(config: HttpConfig | None = None, **options: Any) -> AsyncIterator[Endpoint]:
    runtime = options.pop("runtime", None)
    authenticator = options.pop("authenticator", None)
    runtime = runtime or make_runtime(**options)
    async with runtime.open():
        yield Endpoint(runtime, config or HttpConfig(), None, authenticator)


def stage_of(endpoint: Endpoint) -> Stage:
    stage: Stage = endpoint.runtime.app.stage  # type: ignore[attr-defined]
    return stage


def app_of(endpoint: Endpoint) -> App:
    app: App = endpoint.runtime.app  # type: ignore[assignment]
    return app


# -- what a client sends


BASE = {"host": "localhost:8000", "content-type": "application/json", "accept": "application/json, text/event-stream"}


def head(method: str = "POST", path: str = "/mcp", **changes: Any) -> HttpRequest:
    """A request head; a change to None leaves a header out, names are written with underscores."""
    fields: dict[str, Any] = dict(BASE) if method == "POST" else {"host": BASE["host"], "accept": "text/event-stream"}
    known = {
        name: changes.pop(name) for name in ("target", "root", "query", "http_version", "client") if name in changes
    }
    fields.update({name.replace("_", "-"): value for name, value in changes.items()})
    headers = [(name.encode(), str(value).encode("latin-1")) for name, value in fields.items() if value is not None]
    return HttpRequest(method=method, path=path, headers=headers, **known)


def request(request_id: Any, method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}).encode()


def notification(method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()


def initialize(date: str = LATEST, *, name: str = "c", request_id: Any = 0, **capabilities: Any) -> bytes:
    return request(
        request_id,
        "initialize",
        protocolVersion=date,
        capabilities=capabilities,
        clientInfo={"name": name, "version": "1"},
    )


async def exchange(endpoint: Endpoint, request_head: HttpRequest, body: bytes = b"") -> Plain | Stream:
    """Make the calls to the endpoint that every engine makes for one request."""
    refusal = endpoint.refuse_early(request_head)
    if refusal is None and endpoint.authenticator is not None:
        refusal = await endpoint.authenticate(request_head)
    if refusal is not None:
        return refusal
    reply = await endpoint.answer(request_head, body)
    return await reply.reply() if isinstance(reply, Pending) else reply


async def plain(endpoint: Endpoint, request_head: HttpRequest, body: bytes = b"") -> Plain:
    reply = await exchange(endpoint, request_head, body)
    assert isinstance(reply, Plain), "a stream came where a plain answer was expected"
    return reply


async def stream(endpoint: Endpoint, request_head: HttpRequest, body: bytes = b"") -> Reader:
    reply = await exchange(endpoint, request_head, body)
    if isinstance(reply, Plain) and dict(reply.headers)[b"content-type"] == b"text/event-stream":
        reply = Stream(reply.status, reply.headers, Whole(reply.body))  # it was over before it began
    assert isinstance(reply, Stream), f"{reply} came where a stream was expected"
    return Reader(reply)


class Whole:
    """A stream that came in one piece."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def over(self) -> bool:
        return not self.data

    async def next(self) -> bytes | None:
        await trio.lowlevel.checkpoint()
        data, self.data = self.data, b""
        return data or None

    def detach(self, cause: str) -> None:
        pass


def error_of(reply: Plain) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(reply.body)["error"]
    return error


def result_of(reply: Plain) -> Any:
    assert reply.status == 200, reply
    return json.loads(reply.body)["result"]


class Reader:
    """A client that reads a stream."""

    def __init__(self, reply: Stream) -> None:
        self.reply = reply
        self.raw = b""
        self.sse = SseReader()
        self.ended = False
        self.waiting: list[ServerSentEvent] = []

    async def chunk(self) -> bytes | None:
        data = await self.reply.events.next()
        if data is None:
            self.ended = True
            self.reply.events.detach("done")
        else:
            self.raw += data
            self.waiting += self.sse.feed(data)
        return data

    async def event(self) -> ServerSentEvent | None:
        """The next event that has data; None at the end."""
        while not self.ended:
            while self.waiting:
                event = self.waiting.pop(0)
                if event.data:
                    return event
            await self.chunk()
        return None

    async def frame(self) -> Any:
        event = await self.event()
        return None if event is None else json.loads(event.data)

    async def rest(self) -> list[ServerSentEvent]:
        found = []
        while (event := await self.event()) is not None:
            found.append(event)
        return found

    def hang_up(self) -> None:
        self.reply.events.detach("disconnected")


@define
class Client:
    """One client of an endpoint, with its session."""

    endpoint: Endpoint
    session_id: str
    extra: dict[str, Any] = field(factory=dict)

    @classmethod
    async def open(cls, endpoint: Endpoint, date: str = LATEST, *, extra: Any = None, **capabilities: Any) -> Client:
        extra = extra or {}
        reply = await plain(endpoint, head(**extra), initialize(date, **capabilities))
        assert reply.status == 200, reply
        client = cls(endpoint, dict(reply.headers)[b"mcp-session-id"].decode(), extra)
        received = await plain(endpoint, client.head(), notification("notifications/initialized"))
        assert received.status == 202
        return client

    def head(self, method: str = "POST", **changes: Any) -> HttpRequest:
        return head(method, **{"mcp_session_id": self.session_id, **self.extra, **changes})

    async def post(self, body: bytes, **changes: Any) -> Plain:
        return await plain(self.endpoint, self.head(**changes), body)

    async def stream(self, body: bytes, **changes: Any) -> Reader:
        return await stream(self.endpoint, self.head(**changes), body)

    async def listen(self, cursor: str | None = None) -> Reader:
        return await stream(self.endpoint, self.head("GET", last_event_id=cursor))

    async def refused(self, cursor: str | None = None) -> Plain:
        return await plain(self.endpoint, self.head("GET", last_event_id=cursor))

    @property
    def session(self) -> Session:
        session = self.endpoint.runtime.supervisor.find(self.session_id)
        assert session is not None
        return session
