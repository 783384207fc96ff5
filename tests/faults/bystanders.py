"""Honest clients, each with a token of its own, and what they notice of a hostile peer next to them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from statistics import quantiles
from typing import Any, Final

import psutil
import trio
from attrs import define, field

from mcptrio._wire.sse import SseReader
from tests.bad_inputs.tokens import good
from tests.deadlines import RunQueue
from tests.e2e.canary import JSON_AND_EVENTS
from tests.e2e.wires import Broken, SocketWire
from tests.extensions.kit import WITH_TASKS
from tests.stateless.kit import DATE, meta

Json = dict[str, Any]
STATEFUL: Final = "2025-11-25"
PACE: Final = 0.04
WITHIN: Final = 10.0
"""Seconds after which a request counts as unanswered."""


@define(eq=False)
class Bystander:
    """One honest client: calls every kind of tool at a steady pace, and keeps a session, a question and a task."""

    name: str
    wire: SocketWire
    queue: RunQueue
    wrong: list[str] = field(factory=list)
    times: list[float] = field(factory=list)
    number: int = 0
    session: str = ""
    question: Json = field(factory=dict)
    task: str = ""
    _token: str = ""

    async def post(self, body: Json, headers: Json) -> tuple[dict[str, str], Json]:
        """Return the headers of the response and the last message in it."""
        began, waited = time.perf_counter(), self.queue.waited()
        fields = {"authorization": f"Bearer {self._token}", "content-type": "application/json", **JSON_AND_EVENTS}
        with trio.fail_after(WITHIN):
            answer = await self.wire.send("POST", {**fields, **headers}, json.dumps(body).encode())
            data = b""
            while (piece := await answer.next()) is not None:
                data += piece
        self.times.append(time.perf_counter() - began - self.queue.since(waited))
        if answer.status not in (200, 202):
            raise Wrong(f"status {answer.status}: {data[:300]!r}")
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            data = [event.data for event in SseReader().feed(data) if event.data][-1]
        return dict(answer.headers), json.loads(data) if data else {}

    async def alone(self, method: str, capabilities: Json | None = None, **params: Any) -> Json:
        self.number += 1
        params = {"_meta": meta(capabilities), **params}
        body = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        headers = {"mcp-protocol-version": DATE, "mcp-method": method}
        if name := params.get("name") or params.get("taskId"):
            headers["mcp-name"] = name
        _, message = await self.post(body, headers)
        return self.result(message)

    def result(self, message: Json) -> Json:
        if message.get("id") != self.number or "result" not in message or message["result"].get("isError"):
            raise Wrong(f"request {self.number} was answered {json.dumps(message)[:300]}")
        result: Json = message["result"]
        return result

    async def inside(self, method: str, **params: Any) -> Json:
        """A request of the session; the first one opens it."""
        self.number += 1
        body = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        headers = {"mcp-session-id": self.session, "mcp-protocol-version": STATEFUL} if self.session else {}
        got, message = await self.post(body, headers)
        self.session = self.session or got["mcp-session-id"]
        return self.result(message)

    # -- what it does

    def word(self) -> str:
        return f"{self.name} {self.number}"

    async def echo(self) -> None:
        await self.expect("echo", self.word())

    async def echo_much(self) -> None:
        await self.expect("echo", self.word() + "x" * 100_000)

    async def in_thread(self) -> None:
        await self.expect("in_thread", self.word())

    async def expect(self, tool: str, text: str) -> None:
        same(await self.alone("tools/call", name=tool, arguments={"text": text}), text)

    async def ask(self) -> None:
        text = self.word()
        asked = await self.begin_to_ask(text)
        same(await self.answer(text, asked), f"{text} yes")

    async def begin_to_ask(self, text: str) -> Json:
        asked = await self.alone("tools/call", name="ask", arguments={"text": text})
        if asked.get("resultType") != "input_required":
            raise Wrong(f"no question, but {asked}")
        return asked

    async def answer(self, text: str, asked: Json) -> Json:
        (key,) = asked["inputRequests"]
        answers = {key: {"action": "accept", "content": {"word": "yes"}}}
        more = {"requestState": asked["requestState"], "inputResponses": answers}
        return await self.alone("tools/call", name="ask", arguments={"text": text}, **more)

    async def in_session(self) -> None:
        text = self.word()
        same(await self.inside("tools/call", name="echo", arguments={"text": text}), text)

    # -- its life

    async def prepare(self) -> None:
        """Open a session and leave a question and a task open, which must be there after an attack."""
        self._token = good(sub=self.name)
        if not self.session:
            info = {"name": self.name, "version": "1"}
            await self.inside("initialize", protocolVersion=STATEFUL, capabilities={}, clientInfo=info)
        self.question = await self.begin_to_ask(self.name)
        arguments = {"text": self.name, "seconds": 0.1}
        created = await self.alone("tools/call", WITH_TASKS, name="report", arguments=arguments)
        self.task = created["taskId"]

    async def finish(self) -> None:
        await self.guarded(self.in_session)
        await self.guarded(self.finish_question)
        await self.guarded(self.finish_task)

    async def finish_question(self) -> None:
        same(await self.answer(self.name, self.question), f"{self.name} yes")

    async def finish_task(self) -> None:
        seen = await self.alone("tasks/get", WITH_TASKS, taskId=self.task)
        if seen["status"] != "working":
            same(seen["result"], self.name)

    async def live(self, seconds: float) -> None:
        """Send requests at a steady pace. A request that is late does not delay the schedule of the next by more."""
        kinds = (self.echo, self.in_session, self.echo_much, self.in_thread, self.ask)
        end = trio.current_time() + seconds
        turn = 0
        while trio.current_time() < end:
            next_at = trio.current_time() + PACE
            await self.guarded(kinds[turn % len(kinds)])
            turn += 1
            await trio.sleep_until(next_at)

    async def guarded(self, work: Callable[[], Any]) -> None:
        try:
            await work()
        except Wrong as error:
            self.wrong.append(f"{self.name}: {work.__name__}: {error}")
        except trio.TooSlowError:
            self.wrong.append(f"{self.name}: {work.__name__}: no answer within {WITHIN} s")
        except (OSError, Broken, trio.BrokenResourceError) as error:
            self.wrong.append(f"{self.name}: {work.__name__}: connection lost ({error!r})")


class Wrong(Exception):
    """A request was refused or answered wrongly."""


def same(result: Json, text: str) -> None:
    found = result["content"][0]["text"]
    if found != text:
        raise Wrong(f"{found[:200]!r} instead of {text[:200]!r}")


@define(eq=False)
class Group:
    """Several honest clients of one server process."""

    process: psutil.Process
    clients: list[Bystander]
    peak: int = 0

    async def live(self, seconds: float) -> None:
        """Let all of them work."""
        for client in self.clients:
            client.times.clear()
        async with trio.open_nursery() as nursery:
            for client in self.clients:
                nursery.start_soon(client.live, seconds)

    def percentile(self) -> float:
        """Return the 99th percentile of their last response times."""
        return quantiles([each for client in self.clients for each in client.times], n=100)[98]

    async def watch_memory(self) -> None:
        self.peak = 0
        while True:
            self.peak = max(self.peak, self.memory())
            await trio.sleep(0.05)

    def memory(self) -> int:
        size: int = self.process.memory_info().rss
        return size

    def complaints(self) -> list[str]:
        found = [text for client in self.clients for text in client.wrong]
        for client in self.clients:
            client.wrong.clear()
        return found
