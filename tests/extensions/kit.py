"""A stateless client over the memory link, with its own capabilities in each request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from attrs import define
from trio.testing import wait_all_tasks_blocked

from mcptrio import Server
from mcptrio._actors.runtime import Runtime
from mcptrio._eras.choose import ERAS
from mcptrio._eras.stateless import CAPABILITIES, VERSION
from mcptrio.extensions.tasks import IDENTIFIER as TASKS
from mcptrio.stores import Store
from mcptrio.transports.memory.server import open_memory_link
from tests.server.talk import Json, Refused, Talk

STATELESS = next(era for era in reversed(ERAS.values()) if not era.stateful)
WITH_TASKS: Json = {"elicitation": {"form": {}}, "extensions": {TASKS: {}}}
PLAIN: Json = {"elicitation": {"form": {}}}


@define(eq=False)
class Caller:
    """One client."""

    talk: Talk
    capabilities: Json

    async def ask(self, method: str, capabilities: Json | None = None, **params: Any) -> Json:
        """Ask, declaring the usual capabilities or others."""
        return await self.talk.request(method, **self._params(capabilities, params))

    async def begin(self, method: str, **params: Any) -> int:
        return await self.talk.begin(method, **self._params(None, params))

    def _params(self, capabilities: Json | None, params: Json) -> Json:
        declared = self.capabilities if capabilities is None else capabilities
        return {**params, "_meta": {VERSION: STATELESS.date, CAPABILITIES: declared}}

    async def call(self, name: str, capabilities: Json | None = None, **arguments: Any) -> Json:
        return await self.ask("tools/call", capabilities, name=name, arguments=arguments)

    async def refused(self, method: str, capabilities: Json | None = None, **params: Any) -> Refused:
        with pytest.raises(Refused) as caught:
            await self.ask(method, capabilities, **params)
        return caught.value

    async def get(self, created: Json) -> Json:
        return await self.ask("tasks/get", taskId=created["taskId"])

    async def until_over(self, created: Json, every: float = 0.1) -> Json:
        """Look at a task until it is over."""
        while (seen := await self.get(created))["status"] in ("working", "input_required"):
            await trio.sleep(every)
        return seen

    async def until_asked(self, created: Json, questions: int = 1) -> Json:
        while len((seen := await self.get(created)).get("inputRequests", ())) < questions:
            await trio.sleep(0.01)
        return seen

    async def update(self, created: Json, **answers: Json) -> Json:
        return await self.ask("tasks/update", taskId=created["taskId"], inputResponses=answers)


def accept(**content: Any) -> Json:
    return {"action": "accept", "content": content}


@asynccontextmanager
async def open_runtime(server: Server, store: Store | None = None) -> AsyncIterator[Runtime]:
    async with server._app.make_runtime(store).open() as runtime:
        yield runtime


@asynccontextmanager
async def visit(runtime: Runtime, capabilities: Json | None = None, principal: Any = None) -> AsyncIterator[Caller]:
    async with open_memory_link(runtime, principal=principal) as end, trio.open_nursery() as nursery:
        talk = Talk(end, {})
        nursery.start_soon(talk.read)
        try:
            yield Caller(talk, WITH_TASKS if capabilities is None else capabilities)
        finally:
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def calling(
    server: Server, capabilities: Json | None = None, store: Store | None = None
) -> AsyncIterator[Caller]:
    """One client of a server of its own."""
    async with open_runtime(server, store) as runtime, visit(runtime, capabilities) as caller:
        yield caller


async def settled() -> None:
    await wait_all_tasks_blocked()
