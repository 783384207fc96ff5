"""Stateless clients that see every byte: one posts to an endpoint, one uses a pipe."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from attrs import define, field

from mcptrio import Server
from mcptrio._actors.runtime import Runtime
from mcptrio._eras.choose import ERAS
from mcptrio._eras.stateless import CAPABILITIES, CLIENT_INFO, NAMED_BY, VERSION
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.endpoint.message import Plain
from tests.server.talk import Talk
from tests.transports.app_for_tests import Reader, exchange, head, request

DATE = next(era.date for era in reversed(ERAS.values()) if not era.stateful)
ABLE: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
Json = dict[str, Any]


def meta(capabilities: Json | None = None, **more: Any) -> Json:
    info = {"name": "kit", "version": "1"}
    return {VERSION: DATE, CAPABILITIES: ABLE if capabilities is None else capabilities, CLIENT_INFO: info, **more}


@define
class Reply:
    """The response to a POST, read to its end."""

    status: int
    frames: list[Json]
    headers: dict[bytes, bytes]
    streamed: bool = False

    @property
    def last(self) -> Json:
        return self.frames[-1]

    @property
    def result(self) -> Json:
        assert "result" in self.last, self
        result: Json = self.last["result"]
        return result

    @property
    def error(self) -> Json:
        assert "error" in self.last, self
        error: Json = self.last["error"]
        return error

    @property
    def text(self) -> str:
        (block,) = self.result["content"]
        return str(block["text"])

    @property
    def asked(self) -> dict[str, Json]:
        assert self.result["resultType"] == "input_required", self.result
        asked: dict[str, Json] = self.result["inputRequests"]
        return asked

    @property
    def state(self) -> str:
        return str(self.result["requestState"])


@define(eq=False)
class Poster:
    """Posts requests that stand alone."""

    endpoint: Endpoint
    principal: Any = None
    client: tuple[str, int] | None = None
    last_id: int = 0

    def compose(self, method: str, params: Json, **headers: Any) -> tuple[Any, bytes]:
        """The head and the body; a header that is None is left out."""
        self.last_id += 1
        params = {"_meta": meta(), **params}
        params = {key: value for key, value in params.items() if value is not ...}
        fields: Json = {"mcp_protocol_version": DATE, "mcp_method": method}
        if method in NAMED_BY:
            fields["mcp_name"] = params.get(NAMED_BY[method])
        composed = head(**{**fields, **headers}, client=self.client)
        if self.principal is not None:
            composed.set_principal(self.principal)
            composed.scopes = None
        return composed, request(self.last_id, method, **params)

    async def post(self, method: str, params: Json | None = None, **headers: Any) -> Reply:
        reply = await exchange(self.endpoint, *self.compose(method, params or {}, **headers))
        if isinstance(reply, Plain):
            return Reply(reply.status, [json.loads(reply.body)] if reply.body else [], dict(reply.headers))
        events = await Reader(reply).rest()
        return Reply(reply.status, [json.loads(event.data) for event in events], dict(reply.headers), streamed=True)

    async def stream(self, method: str, params: Json | None = None, **headers: Any) -> Reader:
        reply = await exchange(self.endpoint, *self.compose(method, params or {}, **headers))
        assert not isinstance(reply, Plain), reply
        return Reader(reply)

    async def call(self, tool: str, arguments: Json | None = None, **more: Any) -> Reply:
        return await self.post("tools/call", {"name": tool, "arguments": arguments or {}, **more})

    async def retry(self, earlier: Reply, tool: str, arguments: Json | None = None, /, **answers: Any) -> Reply:
        """Repeat a call with the state that it was answered with, and answers by key."""
        return await self.call(tool, arguments, requestState=earlier.state, inputResponses=answers)


def accept(**content: Any) -> Json:
    return {"action": "accept", "content": content}


@asynccontextmanager
async def endpoint_of(server: Server, config: HttpConfig | None = None, store: Any = None) -> AsyncIterator[Endpoint]:
    async with server._app.make_runtime(store).open() as runtime:
        yield Endpoint(runtime, config or HttpConfig())


@asynccontextmanager
async def posting(server: Server, config: HttpConfig | None = None, store: Any = None) -> AsyncIterator[Poster]:
    async with endpoint_of(server, config, store) as endpoint:
        yield Poster(endpoint)


def tasks_of(runtime: Runtime) -> int:
    """The tasks that run under the supervisor, besides its own and the endpoint's timers."""
    supervisor = runtime.supervisor
    tasks = (*supervisor.nursery.child_tasks, *supervisor.calls.child_tasks)
    return sum(task.name != "timers" for task in tasks) - 2


async def ask(talk: Talk, method: str, /, **params: Any) -> Json:
    """A request that stands alone, on a pipe."""
    return await talk.request(method, **{"_meta": meta(), **params})


@define(eq=False)
class Trail:
    """The record of what handlers did, for tests to look at."""

    done: list[str] = field(factory=list)

    def __call__(self, what: str) -> str:
        self.done.append(what)
        return what


Maker = Callable[[], Server]
