"""A server as type checkers see it. A line that must be an error is marked; an unneeded mark is an error too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, assert_type

import trio
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from mcptrio import Context, Elicited, HttpConfig, Limits, Message, Server, SessionHandle
from mcptrio.auth.server import Principal, StaticTokens
from mcptrio.extensions.skills import Skills
from mcptrio.extensions.tasks import Tasks
from mcptrio.stores import MemoryStore
from mcptrio.transports.http_server.hypercorn.hosted import HostedApp
from mcptrio.types import ServerCapabilities


@dataclass
class Database:
    url: str


@dataclass
class Cart:
    items: list[str]


@dataclass
class Confirm:
    agreed: bool


# -- lifespan and session functions, in both forms


async def open_database(server: Server) -> AsyncIterator[Database]:
    yield Database(server.info.name)


@asynccontextmanager
async def open_database_too(server: Server) -> AsyncIterator[Database]:
    yield Database(server.info.name)


def no_lifespan(server: Server) -> Database:
    return Database(server.info.name)


server = Server("shop", lifespan=open_database, limits=Limits(running=8))
other = Server("other", lifespan=open_database_too)
Server("wrong", lifespan=no_lifespan)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Server("wrong", timeout=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


@server.session
async def cart(session: SessionHandle) -> AsyncIterator[Cart]:
    assert_type(session.principal, Principal | None)
    yield Cart([])


@other.session
@asynccontextmanager
async def cart_too(session: SessionHandle) -> AsyncIterator[Cart]:
    yield Cart([session.id])


cart_generator: Callable[[SessionHandle], AsyncIterator[Cart]] = cart
cart_manager: Callable[[SessionHandle], AbstractAsyncContextManager[Cart]] = cart_too


# -- the context


@server.tool
async def plain_context(ctx: Context) -> str:
    assert_type(ctx.lifespan, Any)
    assert_type(ctx.state, Any)
    assert_type(ctx.principal, Principal | None)
    return ctx.principal.subject  # type: ignore[union-attr, return-value]  # pyright: ignore[reportOptionalMemberAccess, reportReturnType]


@server.tool
async def typed_context(ctx: Context[Database, Cart]) -> str:
    assert_type(ctx.lifespan, Database)
    assert_type(ctx.state, Cart)
    ctx.lifespan.uri  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    await ctx.report_progress(1, 2)
    return ctx.lifespan.url


@server.tool
async def only_the_lifespan(ctx: Context[Database]) -> str:
    assert_type(ctx.lifespan, Database)
    assert_type(ctx.state, Any)
    return ctx.lifespan.url


@server.tool
async def asking(ctx: Context) -> str:
    answer = await ctx.elicit("Really?", Confirm)
    assert_type(answer, Elicited[Confirm])
    assert_type(answer.value, Confirm | None)
    by_schema = await ctx.elicit("Really?", {"type": "object", "properties": {}})
    assert_type(by_schema.value, dict[str, Any] | None)
    return "yes" if answer.value is not None and answer.value.agreed else "no"


# -- decorated functions keep their signature


@server.tool
def add(a: int, b: int = 0) -> int:
    return a + b


@server.tool(read_only=True, timeout=3, task="auto")
async def slowly(a: int) -> int:
    return a


assert_type(add(1, b=2), int)
add("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
slowly_typed: Callable[[int], Awaitable[int]] = slowly


@server.tool(read_onyl=True)  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportCallIssue, reportUntypedFunctionDecorator]
def misspelt() -> None: ...


@server.tool("refund")  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportArgumentType, reportUntypedFunctionDecorator]
def named_by_position() -> None: ...


@server.resource("notes://{day}", mime_type="text/plain")
async def note(day: str, ctx: Context) -> str:
    return f"{day} {ctx.uri}"


@note.complete("day")
def days(prefix: str) -> list[str]:
    return [day for day in ("today", "tomorrow") if day.startswith(prefix)]


assert_type(note.uri(day="today"), str)


@server.prompt
def complaint(order: int, tone: str = "calm") -> list[Message]:
    return [Message("user", f"{order} {tone}")]


@server.prompt(title="Praise")
async def praise(order: int) -> str:
    return f"{order}"


assert_type(complaint(7, tone="firm"), list[Message])
complaint("7")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
assert_type(days("to"), list[str])
praise_typed: Callable[[int], Awaitable[str]] = praise
server.resource("notes://a", mimetype="text/plain")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
server.add_tool(add, name="plus", scopes=["math"])
server.add_resource("notes://a", note, name="a")
server.add_prompt(complaint, title=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def use_them(ctx: Context) -> None:
    assert_type(await note("today", ctx), str)
    assert_type(await slowly(1), int)
    await note(day=3, ctx=ctx)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@server.use
async def middleware(ctx: Context, request: Any, call_next: Callable[..., Awaitable[Any]]) -> Any:
    return await call_next(ctx, request)


@server.route("org.example/hello")
async def hello(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
    return params


@server.on_event
def on_event(event: object) -> None: ...


assert_type(server.capabilities(), ServerCapabilities)
server.include(other, prefix="other_")
server.add_extension(Tasks())
Skills.from_folder("skills", page_size=10, fresh_for=2)
Skills.from_folder("skills", fresh=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


# -- names that only the runtime uses are not there

server.make_runtime()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
server.router  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
server.mount  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


# -- serving


async def serving(nursery: trio.Nursery, stop: trio.Event) -> None:
    await server.serve_stdio(stop=stop, drain_timeout=3)
    await server.serve_http(port=0, allowed_hosts=["example.org"], engine="direct", stop=stop)
    await server.serve_http(HttpConfig(port=0), auth=None, store=MemoryStore(), rate=3.5)
    await server.serve_http(prot=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await server.serve_http(port="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await server.serve_http(engine="express")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await nursery.start(server.serve_http)


def running(tokens: Sequence[str]) -> None:
    server.run()
    server.run("stdio", store="sqlite:///a.db", drain_timeout=3)
    server.run("http", port=3, auth=StaticTokens({token: Principal(subject=token) for token in tokens}))
    server.run("htp", prot=3)  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
    server.run("http", prot=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    server.run("http", port="8000")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    server.run("http", store=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@server.tool(runs="asyncio")
async def awaits_asyncio(ctx: Context) -> str:
    return str((await ctx.elicit("Sure?", {"type": "object", "properties": {}})).action)


server.tool(runs="curio")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]

application = server.asgi(path="/ai", json_only=True)
Starlette(lifespan=application.lifespan)
FastAPI(lifespan=application.lifespan)
assert_type(application, HostedApp)
Mount("/ai", app=application)
server.asgi(pth="/ai")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
server.asgi(path=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
HttpConfig(allowed_origins=["https://example.org"])
HttpConfig(prot=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
