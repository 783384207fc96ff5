"""Clients that all use the same ids, meet every kind of fault, and look at every byte they are sent.

Each carries a random word of its own. Every call takes it along, everything that comes back is searched for the words
of others, and every request is followed to its outcome: exactly one answer, or none where the client itself gave up.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import trio
from attrs import define, field

from mcptrio._eras.choose import ERAS
from mcptrio._wire.sse import SseReader
from tests.stateless.kit import DATE as STATELESS
from tests.stateless.kit import meta

from .wires import Answer, Broken, Wire

STATEFUL = next(era.date for era in reversed(ERAS.values()) if era.stateful)
WORD = re.compile(rb"canary-[0-9a-f]{16}")
JSON_AND_EVENTS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
BAD = (b"", b"{", b"\xff", b"[]", b"null", b'{"jsonrpc":"2.0"}', b'{"jsonrpc":"1.0","id":1,"method":"ping"}', b"[" * 99)
MANY_IDS = 8
"""The ids of every client run from 1 to this, again and again."""


@define
class Tally:
    """The counts of all clients together."""

    messages: int = 0
    """JSON-RPC messages in both directions."""
    outcomes: Counter[str] = field(factory=Counter)
    cursors: list[str] = field(factory=list)
    """Event ids and states of some clients, for others to try."""
    states: list[str] = field(factory=list)


@define(eq=False)
class Canary:
    """One client. There is a subclass for stateful and one for stateless requests."""

    wire: Wire
    tally: Tally
    dice: random.Random
    word: str = field(init=False)
    last_id: int = 0
    resumes: bool = False
    """Whether a stream may end before its answer, as a worker without the store does: it is taken up again then."""
    steps: ClassVar[dict[str, int]] = {}

    def __attrs_post_init__(self) -> None:
        self.word = f"canary-{self.dice.getrandbits(64):016x}"

    async def run(self, steps: int) -> None:
        names, weights = list(self.steps), list(self.steps.values())
        for name in self.dice.choices(names, weights, k=steps):
            step: Callable[[], Awaitable[None]] = getattr(self, name)
            await step()
        self.wire.close()

    # -- one request and its outcome

    def headers(self, method: str, name: str | None) -> dict[str, str]:
        raise NotImplementedError

    def params(self, params: dict[str, Any]) -> dict[str, Any]:
        return params

    def new_id(self) -> int:
        self.last_id = self.last_id % MANY_IDS + 1
        return self.last_id

    async def post(self, frame: dict[str, Any], headers: dict[str, str]) -> Answer:
        self.tally.messages += 1
        return await self.wire.send("POST", headers, json.dumps({"jsonrpc": "2.0", **frame}).encode())

    async def begin(self, method: str, params: dict[str, Any], request_id: int) -> Answer:
        frame = {"id": request_id, "method": method, "params": self.params(params)}
        return await self.post(frame, self.headers(method, params.get("name")))

    async def begin_call(self, tool: str, request_id: int, **more: Any) -> Answer:
        arguments = {"text": self.word, **more.pop("arguments", {})}
        return await self.begin("tools/call", {"name": tool, "arguments": arguments, **more}, request_id)

    async def read(self, answer: Answer, frames: list[dict[str, Any]], *, only: int | None = None) -> str:
        """Read frames to the end, or until there are `only` so many; return the last event id."""
        sse = SseReader() if answer.headers.get("content-type", "").startswith("text/event-stream") else None
        plain, last = b"", ""
        while only is None or len(frames) < only:
            piece = await answer.next()
            if piece is None:
                break
            self.look(piece)
            if sse is None:
                plain += piece
                continue
            for event in sse.feed(piece):
                last = event.id
                if event.data and (only is None or len(frames) < only):
                    self.look(event.data)
                    frames.append(json.loads(event.data))
                    self.tally.messages += 1
                    if only is not None and len(frames) == only:
                        return last
            last = sse.last_event_id if not frames else last
        if plain:
            frames.append(json.loads(plain))
            self.tally.messages += 1
        return last

    async def read_answer(self, answer: Answer, frames: list[dict[str, Any]]) -> None:
        """Read frames to the end."""
        await self.read(answer, frames)

    def look(self, data: bytes) -> None:
        strange = set(WORD.findall(data)) - {self.word.encode()}
        assert not strange, f"{self.word} was sent {strange}: {data[:500]!r}"

    def outcome(self, frames: list[dict[str, Any]], request_id: int) -> dict[str, Any]:
        """The one answer among what came."""
        answers = [frame for frame in frames if "method" not in frame]
        assert len(answers) == 1, f"request {request_id} has {len(answers)} outcomes: {frames}"
        assert answers[0]["id"] == request_id, (request_id, answers)
        self.tally.outcomes["result" if "result" in answers[0] else "error"] += 1
        return answers[0]

    def given_up(self, frames: list[dict[str, Any]], request_id: int) -> None:
        """The client does not wait any more: an answer may have come, two may not."""
        answers = [frame["id"] for frame in frames if "method" not in frame]
        assert answers in ([], [request_id]), answers
        self.tally.outcomes["given up"] += 1

    async def call(self, tool: str, **more: Any) -> dict[str, Any]:
        request_id = self.new_id()
        frames: list[dict[str, Any]] = []
        await self.read_answer(await self.begin_call(tool, request_id, **more), frames)
        return self.outcome(frames, request_id)

    # -- what a client does

    async def echo(self) -> None:
        assert self.text(await self.call("echo")) == self.word

    async def fail(self) -> None:
        answer = await self.call("fail")
        assert answer["result"]["isError"]
        assert self.text(answer) == self.word

    async def crash(self) -> None:
        answer = await self.call("crash")
        assert answer["result"]["isError"]
        assert self.word not in json.dumps(answer), "the text of a handler's exception stays on the server"

    async def unknown(self) -> None:
        request_id = self.new_id()
        frames: list[dict[str, Any]] = []
        await self.read(await self.begin("tools/call", {"name": "no such tool"}, request_id), frames)
        assert "error" in self.outcome(frames, request_id)

    async def bad(self) -> None:
        """Something that is no message: refused, and no more."""
        self.tally.messages += 1
        answer = await self.wire.send("POST", self.headers("tools/call", "echo"), self.dice.choice(BAD))
        assert 400 <= answer.status < 500, answer.status
        frames: list[dict[str, Any]] = []
        await self.read(answer, frames)
        assert all("error" in frame for frame in frames)
        self.tally.outcomes["bad input refused"] += 1

    async def tell(self) -> None:
        request_id = self.new_id()
        times = self.dice.randrange(1, 16)
        frames: list[dict[str, Any]] = []
        await self.read_answer(
            await self.begin_call("tell", request_id, arguments={"times": times}, **self.token(request_id)), frames
        )
        self.check_progress(frames, request_id, times)

    def check_progress(self, frames: list[dict[str, Any]], request_id: int, times: int) -> None:
        assert self.text(self.outcome(frames, request_id)) == self.word
        received = [frame["params"] for frame in frames if frame.get("method") == "notifications/progress"]
        assert [params["progress"] for params in received] == list(range(1, times + 1)), "a gap, a repeat or no order"
        assert all(params["progressToken"] == request_id and params["message"] == self.word for params in received)
        assert "method" not in frames[-1]

    def token(self, request_id: int) -> dict[str, Any]:
        return {"_meta": {"progressToken": request_id}}

    @staticmethod
    def text(answer: dict[str, Any]) -> str:
        assert "content" in answer.get("result", {}), answer
        (block,) = answer["result"]["content"]
        return str(block["text"])


@define(eq=False)
class StatefulCanary(Canary):
    """Opens a session, and takes broken streams up again."""

    session: str = ""
    kept: list[str] = field(factory=list)
    steps: ClassVar[dict[str, int]] = {
        "echo": 30, "tell": 10, "tell_and_lose": 10, "tell_and_leave": 3, "cancel": 6, "ask": 6, "keep": 8, "fail": 3,
        "crash": 2, "unknown": 3, "bad": 6, "twice": 4, "steal": 3, "reopen": 1,
    }  # fmt: skip

    def headers(self, method: str, name: str | None) -> dict[str, str]:
        return {**JSON_AND_EVENTS, "mcp-session-id": self.session, "mcp-protocol-version": STATEFUL}

    async def run(self, steps: int) -> None:
        await self.open()
        await super().run(steps)

    async def read_answer(self, answer: Answer, frames: list[dict[str, Any]]) -> None:
        cursor = await self.read(answer, frames)
        while self.resumes and cursor and all("method" in frame for frame in frames):
            cursor = await self.read(await self.take_up(cursor), frames) or cursor

    async def take_up(self, cursor: str) -> Answer:
        self.tally.outcomes["taken up again"] += 1
        answer = await self.wire.send("GET", {**self.headers("", None), "last-event-id": cursor}, b"")
        assert answer.status == 200, (answer.status, cursor)
        return answer

    async def open(self) -> None:
        info = {"name": self.word, "version": "1"}
        params = {"protocolVersion": STATEFUL, "capabilities": {"elicitation": {}, "sampling": {}}, "clientInfo": info}
        answer = await self.post({"id": 0, "method": "initialize", "params": params}, JSON_AND_EVENTS)
        frames: list[dict[str, Any]] = []
        await self.read(answer, frames)
        assert self.outcome(frames, 0)["result"]["protocolVersion"] == STATEFUL
        self.session = answer.headers["mcp-session-id"]
        self.kept = []
        await self.notify_server("notifications/initialized")

    async def notify_server(self, method: str, **params: Any) -> None:
        answer = await self.post({"method": method, "params": params}, self.headers(method, None))
        assert answer.status == 202

    async def close(self) -> None:
        answer = await self.wire.send("DELETE", self.headers("", None), b"")
        assert answer.status == 200
        assert await answer.next() is None
        self.tally.messages += 1

    async def reopen(self) -> None:
        """Ends the session, finds it gone, and opens another one."""
        await self.close()
        answer = await self.begin_call("echo", 1)
        assert answer.status == 404
        await self.read(answer, [])
        await self.open()

    async def keep(self) -> None:
        self.kept = [*self.kept[-2:], self.word]
        answer = await self.call("keep")
        assert answer["result"]["structuredContent"]["result"] == self.kept

    async def tell_and_lose(self) -> None:
        """The connection is lost after some events, and again, and the stream is taken up where it was."""
        request_id = self.new_id()
        times = self.dice.randrange(2, 16)
        frames: list[dict[str, Any]] = []
        answer = await self.begin_call("tell", request_id, arguments={"times": times}, **self.token(request_id))
        for _ in range(self.dice.randrange(1, 3)):
            cursor = await self.read(answer, frames, only=len(frames) + self.dice.randrange(1, 8))
            if frames and "method" not in frames[-1]:
                break
            answer.cut()
            self.lend(self.tally.cursors, cursor)
            answer = await self.wire.send("GET", {**self.headers("", None), "last-event-id": cursor}, b"")
            assert answer.status == 200, (answer.status, cursor)
        await self.read_answer(answer, frames)
        self.check_progress(frames, request_id, times)

    async def tell_and_leave(self) -> None:
        """The client never comes back for the rest."""
        request_id = self.last_id = self.last_id + 1000  # its id stays in use for a while
        answer = await self.begin_call("tell", request_id, arguments={"times": 3}, **self.token(request_id))
        frames: list[dict[str, Any]] = []
        await self.read(answer, frames, only=1)
        answer.cut()
        self.given_up(frames, request_id)

    async def cancel(self) -> None:
        request_id = self.new_id()
        frames: list[dict[str, Any]] = []
        answer = await self.begin_call("wait", request_id)
        await self.notify_server("notifications/cancelled", requestId=request_id)
        await self.read(answer, frames)
        assert frames == [], "a cancelled call was answered"
        self.tally.outcomes["cancelled"] += 1

    async def twice(self) -> None:
        """An id that is in use: the second is refused, the first is answered all the same."""
        request_id = self.new_id()
        first = await self.begin_call("wait", request_id, arguments={"seconds": 0.1})
        second = await self.begin_call("echo", request_id)
        frames: list[dict[str, Any]] = []
        await self.read(second, frames)
        (refused,) = frames
        if "error" in refused:
            self.tally.outcomes["id in use"] += 1
        frames = []
        await self.read_answer(first, frames)
        assert self.text(self.outcome(frames, request_id)) == self.word

    async def ask(self) -> None:
        request_id = self.new_id()
        frames: list[dict[str, Any]] = []
        answer = await self.begin_call("ask", request_id)
        cursor = await self.read(answer, frames, only=1)
        while self.resumes and not frames:
            answer = await self.take_up(cursor)
            cursor = await self.read(answer, frames, only=1) or cursor
        (question,) = frames
        assert question["method"] == "elicitation/create"
        assert question["params"]["message"] == f"{self.word}?"
        result = {"action": "accept", "content": {"word": self.word}}
        received = await self.post({"id": question["id"], "result": result}, self.headers("", None))
        assert received.status == 202
        await self.read_answer(answer, frames)
        assert self.text(self.outcome(frames, request_id)) == f"{self.word} {self.word}"

    async def steal(self) -> None:
        """Try another client's cursor: it is refused like an invalid one."""
        if self.tally.cursors:
            cursor = self.dice.choice(self.tally.cursors)
            answer = await self.wire.send("GET", {**self.headers("", None), "last-event-id": cursor}, b"")
            self.tally.messages += 1
            if answer.status == 200:  # it may be one of its own
                await self.read(answer, [])
            else:
                assert answer.status == 400, answer.status
                await self.read(answer, [])
                self.tally.outcomes["foreign cursor refused"] += 1

    def lend(self, shelf: list[str], thing: str) -> None:
        if len(shelf) < 100:
            shelf.append(thing)
        else:
            shelf[self.dice.randrange(100)] = thing


@define(eq=False)
class StatelessCanary(Canary):
    """Every request stands alone."""

    steps: ClassVar[dict[str, int]] = {
        "echo": 36, "tell": 15, "leave": 8, "ask": 10, "ask_and_leave": 1, "fail": 4, "crash": 3, "unknown": 4,
        "bad": 7, "keep": 4, "steal": 3,
    }  # fmt: skip

    def headers(self, method: str, name: str | None) -> dict[str, str]:
        named = {"mcp-name": name} if name is not None else {}
        return {**JSON_AND_EVENTS, "mcp-protocol-version": STATELESS, "mcp-method": method, **named}

    def params(self, params: dict[str, Any]) -> dict[str, Any]:
        return {**params, "_meta": meta({"elicitation": {"form": {}}}, **params.get("_meta", {}))}

    async def keep(self) -> None:
        """Each request has a state of its own."""
        answer = await self.call("keep")
        assert answer["result"]["structuredContent"]["result"] == [self.word]

    async def leave(self) -> None:
        """Losing the connection is how a call is cancelled."""
        request_id = self.new_id()
        tool, more = self.dice.choice([("tell", {"arguments": {"times": 4}, **self.token(request_id)}), ("wait", {})])
        answer = await self.begin_call(tool, request_id, **more)
        frames: list[dict[str, Any]] = []
        if tool == "tell":
            await self.read(answer, frames, only=1)
        answer.cut()
        self.given_up(frames, request_id)

    async def ask(self) -> None:
        first = await self.call("ask")
        assert "inputRequests" in first.get("result", {}), first
        asked = first["result"]["inputRequests"]
        ((key, question),) = asked.items()
        assert question["params"]["message"] == f"{self.word}?"
        given = {key: {"action": "accept", "content": {"word": self.word}}}
        state = first["result"]["requestState"]
        answer = await self.call("ask", requestState=state, inputResponses=given)
        assert self.text(answer) == f"{self.word} {self.word}"
        again = await self.call("ask", requestState=state, inputResponses=given)
        assert again["error"]["code"] == -32602, "a state was accepted twice"

    async def ask_and_leave(self) -> None:
        """The client never answers; another client may try the state."""
        first = await self.call("ask")
        self.tally.states[-20:] = [*self.tally.states[-19:], first["result"]["requestState"]]

    async def steal(self) -> None:
        if self.tally.states:
            state = self.dice.choice(self.tally.states)
            answer = await self.call("ask", arguments={"text": self.word}, requestState=state, inputResponses={})
            if "error" in answer:
                assert answer["error"]["code"] == -32602
                self.tally.outcomes["foreign state refused"] += 1


async def run_canaries(
    wires: list[Wire],
    steps: int,
    seed: int,
    tally: Tally | None = None,
    *,
    timeout: float = 300,
    resumes: bool = False,
) -> Tally:
    """Run one client per wire at the same time, every second one stateful; close the sessions at the end."""
    tally = tally or Tally()
    canaries = [
        (StatefulCanary if number % 2 else StatelessCanary)(
            wire, tally, random.Random(seed * 10_000 + number), resumes=resumes
        )
        for number, wire in enumerate(wires)
    ]

    async def run_one(canary: Canary) -> None:
        try:
            await canary.run(steps)
            if isinstance(canary, StatefulCanary):
                await canary.close()
                canary.wire.close()
        except Broken as error:
            raise AssertionError(f"{canary.word}: the server hung up") from error

    with trio.fail_after(timeout):
        async with trio.open_nursery() as nursery:
            for canary in canaries:
                nursery.start_soon(run_one, canary)
    return tally
