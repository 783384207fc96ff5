"""A protected server without sockets, and callers with tokens of their own, stateful and stateless."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from attrs import define, field

from mcptrio import Context, Server
from mcptrio._eras.stateless import NAMED_BY
from mcptrio.auth.server import Principal, StaticTokens
from mcptrio.auth.server.refusal import Auth
from mcptrio.transports.bearer.authorizer import Authorizer
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.endpoint.message import Plain
from tests.stateless.kit import DATE as STATELESS
from tests.stateless.kit import meta
from tests.transports.app_for_tests import LATEST, Reader, exchange, head, initialize, request

DATES = (LATEST, STATELESS)
TOKENS = {name: name * 20 for name in ("ada", "bob", "eve", "mallory")}
SCOPES = {"ada": "orders:read orders:write", "bob": "orders:read", "eve": "", "mallory": "orders:read orders:write"}
STATIC = StaticTokens({TOKENS[name]: Principal(subject=name, scopes=SCOPES[name]) for name in TOKENS})


def make_server() -> Server:
    server = Server("orders")

    @server.tool
    async def whoami(ctx: Context) -> str:
        headers = ctx.http.headers if ctx.http is not None else {}
        return f"{ctx.principal.subject} {' '.join(sorted(ctx.principal.scopes))} {'authorization' in headers}"

    @server.tool(scopes=["orders:read"])
    async def order(number: int) -> str:
        return f"order {number}"

    @server.tool(scopes=["orders:read", "orders:write"])
    async def refund(ctx: Context) -> str:
        answer = await ctx.elicit("Sure?", {"type": "object", "properties": {"ok": {"type": "boolean"}}})
        return f"refunded {answer.accepted} by {ctx.principal.subject}"

    @server.tool(scopes=["root"], visible=lambda ctx: ctx.principal.subject == "ada")
    def hidden() -> str:
        return "seen"

    @server.resource("orders://all", scopes=["orders:read"])
    def everything() -> str:
        return "all orders"

    @server.resource("orders://{number}/invoice", scopes=["orders:write"])
    def invoice(number: str) -> str:
        return f"invoice {number}"

    @invoice.complete("number")
    def numbers(prefix: str) -> list[str]:
        return ["7"]

    @server.prompt(scopes=["orders:write"])
    def complaint(order: str) -> str:
        return f"complain about {order}"

    return server


@asynccontextmanager
async def open_protected(
    server: Server | None = None, auth: Auth | None = STATIC, config: HttpConfig | None = None, **options: Any
) -> AsyncIterator[Endpoint]:
    authenticator = None if auth is None else Authorizer(auth, **options)
    async with (server or make_server())._app.make_runtime().open() as runtime:
        yield Endpoint(runtime, config or HttpConfig(), None, authenticator)
        if authenticator is not None:
            await authenticator.close()


@define
class Answer:
    status: int
    headers: list[tuple[bytes, bytes]]
    frames: list[dict[str, Any]]
    streamed: bool

    @property
    def result(self) -> Any:
        assert "result" in self.frames[-1], self
        return self.frames[-1]["result"]

    @property
    def error(self) -> Any:
        assert "error" in self.frames[-1], self
        return self.frames[-1]["error"]

    @property
    def text(self) -> str:
        return str(self.result["content"][0]["text"])

    @property
    def challenge(self) -> str:
        (value,) = [value for name, value in self.headers if name == b"www-authenticate"]
        return value.decode()


@define
class Caller:
    """One caller, stateful or stateless."""

    endpoint: Endpoint
    date: str
    token: str | None
    session: str | None = None
    last_id: int = 0
    extra: dict[str, Any] = field(factory=dict)

    @classmethod
    async def open(cls, endpoint: Endpoint, date: str, name: str | None, **extra: Any) -> Caller:
        caller = cls(endpoint, date, None if name is None else TOKENS.get(name, name), extra=extra)
        if date != STATELESS:
            reply = await exchange(endpoint, caller.head(), initialize(date, elicitation={}))
            assert isinstance(reply, Plain)
            assert reply.status == 200, reply
            caller.session = dict(reply.headers)[b"mcp-session-id"].decode()
        return caller

    def head(self, method: str = "POST", **changes: Any) -> Any:
        bearer = None if self.token is None else f"Bearer {self.token}"
        own = {"authorization": bearer, "mcp_session_id": self.session}
        return head(method, **{**own, **self.extra, **changes})

    async def ask(self, method: str, /, **params: Any) -> Answer:
        self.last_id += 1
        headers: dict[str, Any] = {}
        if self.date == STATELESS:
            params["_meta"] = meta()
            named = NAMED_BY.get(method)
            headers = {"mcp_protocol_version": self.date, "mcp_method": method}
            if named is not None:
                headers["mcp_name"] = params[named]
        return await self.send(self.head(**headers), request(self.last_id, method, **params))

    async def send(self, request_head: Any, body: bytes = b"") -> Answer:
        reply = await exchange(self.endpoint, request_head, body)
        if isinstance(reply, Plain):
            frames = [json.loads(reply.body)] if reply.body else []
            return Answer(reply.status, list(reply.headers), frames, streamed=False)
        reader = Reader(reply)
        frames = [json.loads(event.data) for event in await reader.rest()]
        return Answer(reply.status, list(reply.headers), frames, streamed=True)

    async def call(self, tool: str, /, **arguments: Any) -> Answer:
        return await self.ask("tools/call", name=tool, arguments=arguments)
