"""Clients that do anything at any moment, chosen by a seed: afterwards nothing is counted any more."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any, Final

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock

from mcptrio import Context, Limits, Server
from mcptrio.extensions.tasks import Tasks
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.endpoint.message import Plain, Stream
from mcptrio.transports.pipe.server import serve_pipe
from mcptrio.transports.websocket.server import _Bounds
from tests.extensions.kit import WITH_TASKS
from tests.stateless.kit import Poster, accept, endpoint_of, meta

from .app_for_tests import exchange, head, initialize, notification, request
from .test_call_memory import Messages, Word

SIZE: Final = 30_000
BATCHES: Final = "2025-03-26"
CONFIG: Final = HttpConfig(
    max_outbox_memory=8 * SIZE, outbox_bytes=2 * SIZE, max_calls=12, legacy_sse=True, max_body_memory=4 * SIZE
)
LIMITS: Final = Limits(max_call_memory=8 * SIZE, running=3, waiting=4, busy_timeout=2, call_timeout=30)


def make_server() -> Server:
    server = Server("random", limits=LIMITS)
    server.add_extension(Tasks())

    @server.tool
    async def work(text: str, size: int, seconds: float, ctx: Context, logs: int = 0) -> str:
        for _ in range(logs):
            await ctx.info("x" * size)
        await trio.sleep(seconds)
        return "x" * size

    @server.tool
    async def ask(text: str, ctx: Context) -> str:
        answer = await ctx.elicit("Really?", Word)
        again = await ctx.elicit("Again?", Word)
        return f"{answer.action} {again.action}"

    @server.tool(task=True)
    async def report(text: str, ctx: Context) -> str:
        await ctx.elicit("Really?", Word, key="q")
        await trio.sleep(5)
        return text

    return server


@define(eq=False)
class Client:
    """A client, one of two owners, that does something else in each of its rounds."""

    endpoint: Endpoint
    dice: Random
    owner: str
    sessions: list[tuple[str, str]] = field(factory=list)
    cursors: list[tuple[str, str]] = field(factory=list)
    asked: list[Any] = field(factory=list)
    last: int = 0

    @property
    def client(self) -> tuple[str, int]:
        return (self.owner, 1)

    async def live(self, rounds: int) -> None:
        kinds = (
            self.stateless, self.in_session, self.in_session, self.batch, self.answer, self.cancel, self.delete,
            self.crash, self.listen, self.resume, self.ask, self.task, self.socket, self.old_stream,
        )  # fmt: skip
        for _ in range(rounds):
            with trio.move_on_after(self.dice.choice((0, 0.001, 0.5, 1, 4, 12, 40))):
                await self.dice.choice(kinds)()
            await trio.sleep(self.dice.choice((0, 0, 0.1, 3)))

    # -- engines

    async def send(self, request_head: Any, body: bytes = b"") -> Plain | list[bytes]:
        """Do as an engine does; a stream is read for a while only."""
        reply = await exchange(self.endpoint, request_head, body)
        if isinstance(reply, Plain):
            return reply
        return await self.read(reply)

    async def read(self, reply: Stream) -> list[bytes]:
        found, cause = list[bytes](), "disconnected"
        try:
            for _ in range(self.dice.choice((0, 1, 2, 100))):
                await trio.sleep(self.dice.choice((0, 0, 0.5, 7)))
                if (data := await reply.events.next()) is None:
                    cause = "done"
                    break
                found += [line for line in data.split(b"\n") if line]
        finally:
            reply.events.detach(cause)
        return found

    def work(self) -> dict[str, Any]:
        size = self.dice.choice((10, SIZE // 2, SIZE, 3 * SIZE))
        text = "x" * self.dice.choice((10, 5000, SIZE, 3 * SIZE))
        logs, seconds = self.dice.choice((0, 0, 1, 5)), self.dice.choice((0, 0, 0.1, 2, 50))
        return {"name": "work", "arguments": {"text": text, "size": size, "seconds": seconds, "logs": logs}}

    def number(self) -> int:
        self.last += 1
        return self.last

    # -- rounds

    async def stateless(self) -> None:
        more = {"_meta": {**meta(), "io.modelcontextprotocol/logLevel": "debug"}}
        await self.send(*Poster(self.endpoint, client=self.client).compose("tools/call", {**self.work(), **more}))

    async def ask(self) -> None:
        text, state = "x" * self.dice.choice((10, SIZE)), dict[str, Any]()
        poster = Poster(self.endpoint, client=self.client)
        for _ in range(self.dice.choice((1, 2, 3))):
            params = {"name": "ask", "arguments": {"text": text}, **state}
            reply = await self.send(*poster.compose("tools/call", params))
            result = json.loads(reply.body).get("result", {}) if isinstance(reply, Plain) and reply.body else {}
            if "requestState" not in result:
                return
            answers = {key: accept(word="x" * self.dice.choice((3, SIZE))) for key in result["inputRequests"]}
            state = {"requestState": result["requestState"], "inputResponses": answers}

    async def task(self) -> None:
        poster = Poster(self.endpoint, client=self.client)
        params = {"name": "report", "arguments": {"text": "x" * SIZE}, "_meta": meta(WITH_TASKS)}
        reply = await self.send(*poster.compose("tools/call", params))
        result = json.loads(reply.body).get("result", {}) if isinstance(reply, Plain) and reply.body else {}
        if "taskId" not in result:
            return
        task = {"taskId": result["taskId"], "_meta": meta(WITH_TASKS)}
        update = {**task, "inputResponses": {"q": accept(word="x" * self.dice.choice((3, SIZE)))}}
        await trio.sleep(self.dice.choice((0, 1)))
        for method, more in self.dice.choice(
            (
                [("tasks/update", update)],
                [("tasks/update", update), ("tasks/cancel", task)],
                [("tasks/cancel", task)],
                [],
            )
        ):
            await self.send(*poster.compose(method, more, mcp_name=task["taskId"]))

    async def open_session(self) -> tuple[str, str]:
        if self.sessions and self.dice.random() < 0.7:
            return self.dice.choice(self.sessions)
        date = self.dice.choice((BATCHES, "2025-11-25"))
        reply = await exchange(self.endpoint, head(client=self.client), initialize(date, elicitation={}))
        assert isinstance(reply, Plain), reply
        session = dict(reply.headers).get(b"mcp-session-id", b"").decode(), date
        self.sessions.append(session)
        await self.send(self.head(session), notification("notifications/initialized"))
        return session

    def head(self, session: tuple[str, str], method: str = "POST", **more: Any) -> Any:
        return head(method, mcp_session_id=session[0], mcp_protocol_version=session[1], client=self.client, **more)

    async def in_session(self) -> None:
        session = await self.open_session()
        params = self.dice.choice((self.work(), self.work(), {"name": "ask", "arguments": {"text": "x" * SIZE}}))
        reply = await self.send(self.head(session), request(self.number(), "tools/call", **params))
        for line in () if isinstance(reply, Plain) else reply:
            if line.startswith(b"id: "):
                self.cursors.append((session[0], line[4:].decode()))
            elif line.startswith(b"data: {") and b"elicitation/create" in line:
                self.asked.append((session, json.loads(line[6:])["id"]))

    async def batch(self) -> None:
        session = await self.open_session()
        calls = [request(self.number(), "tools/call", **self.work()) for _ in range(self.dice.choice((1, 3, 5)))]
        await self.send(self.head(session), b"[" + b",".join(calls) + b"]")

    async def answer(self) -> None:
        if self.asked:
            session, number = self.asked.pop()
            result = accept(word="x" * self.dice.choice((3, 5000, SIZE)))
            body = json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode()
            await self.send(self.head(session), body)

    async def cancel(self) -> None:
        session = await self.open_session()
        number = max(0, self.last - self.dice.randrange(5))
        await self.send(self.head(session), notification("notifications/cancelled", requestId=number))

    async def delete(self) -> None:
        if self.sessions:
            await self.send(self.head(self.sessions.pop(), "DELETE"))

    async def crash(self) -> None:
        for session in self.endpoint.runtime.supervisor:
            if session.owner.endswith(self.owner) and self.dice.random() < 0.1 and session.nursery is not None:
                session.nursery.cancel_scope.cancel()

    async def listen(self) -> None:
        await self.send(self.head(await self.open_session(), "GET"))

    async def resume(self) -> None:
        if self.cursors:
            session, cursor = self.dice.choice(self.cursors)
            await self.send(self.head((session, "2025-11-25"), "GET", last_event_id=cursor))

    async def old_stream(self) -> None:
        reply = await exchange(self.endpoint, head("GET", "/sse", client=self.client))
        if isinstance(reply, Plain):
            return
        with suppress(trio.Cancelled):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.read, reply)
                (session,) = [each for each in self.endpoint.runtime.supervisor if each.link is reply.events]
                post = partial(
                    head, "POST", "/messages", query=b"session_id=" + session.id.encode(), client=self.client
                )
                calls = [request(self.number(), "tools/call", **self.work()) for _ in range(4)]
                for body in (initialize("2024-11-05"), notification("notifications/initialized"), *calls):
                    await self.send(post(), body)

    async def socket(self) -> None:
        calls = [request(self.number(), "tools/call", **self.work()) for _ in range(self.dice.choice((1, 4)))]
        pipe = Slow([initialize("2025-11-25"), notification("notifications/initialized"), *calls], self.dice)
        bounds = _Bounds(self.endpoint.admission, self.owner)
        await serve_pipe(self.endpoint.runtime, pipe, transport="websocket", owner=f"\0{self.owner}", bounds=bounds)


class Slow(Messages):
    """A socket whose peer reads slowly, and may go away."""

    def __init__(self, messages: list[bytes], dice: Random) -> None:
        super().__init__(messages)
        self.dice = dice

    async def send(self, messages: list[bytes]) -> None:
        await trio.sleep(self.dice.choice((0, 0, 1, 10)))
        if self.dice.random() < 0.1:
            raise trio.BrokenResourceError


@pytest.mark.defect("S7")
@pytest.mark.parametrize("seed", range(12))
async def test_nothing_is_counted_after_clients_have_done_anything(seed: int, autojump_clock: MockClock) -> None:
    dice = Random(seed)
    async with endpoint_of(make_server(), CONFIG) as endpoint:
        admission, runtime = endpoint.admission, endpoint.runtime
        async with trio.open_nursery() as nursery:
            for number in range(8):
                client = Client(endpoint, Random(dice.random()), "ab"[number % 2])
                nursery.start_soon(client.live, 25)
        await trio.sleep(3 * 3600)  # calls, parked calls, sessions and tasks have ended
        tables = {
            "places": admission.places, "bodies": admission.body_memory, "calls": runtime.call_memory,
            "room": admission.unread.room,
        }  # fmt: skip
        assert {name: (each.used, each.held, each.waiting) for name, each in tables.items()} == dict.fromkeys(
            tables, (0, {}, 0)
        )
        assert (admission.unread.used, admission.unread._waiting) == (0, {})
        assert (runtime.parking._memory, admission.sessions) == (0, {})
