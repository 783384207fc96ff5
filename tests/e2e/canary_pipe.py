"""Many callers on the pipe of one child process: each gets the answers to its own calls and to no other."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio
from attrs import define, field

from mcptrio._wire.lines import LineReader

from .canary import STATEFUL, WORD, Tally, meta

Json = dict[str, Any]


@define(eq=False)
class Pipe:
    """Sends and receives lines; every request has the list of what came for it."""

    process: trio.Process
    date: str
    tally: Tally
    waiting: dict[int, tuple[str, list[Json], trio.Event]] = field(factory=dict)
    last_id: int = 0
    _writing: trio.Lock = field(factory=trio.Lock)

    async def send(self, line: bytes) -> None:
        self.tally.messages += 1
        assert self.process.stdin is not None
        async with self._writing:
            await self.process.stdin.send_all(line + b"\n")

    async def write(self, **frame: Any) -> None:
        await self.send(json.dumps({"jsonrpc": "2.0", **frame}).encode())

    async def receive(self) -> None:
        assert self.process.stdout is not None
        reader = LineReader()
        async for data in self.process.stdout:
            for line in reader.feed(data):
                assert isinstance(line, bytes)
                self.tally.messages += 1
                self.take(line, json.loads(line))

    def take(self, line: bytes, frame: Json) -> None:
        if frame.get("method") == "notifications/progress":
            key = frame["params"]["progressToken"]
        elif frame.get("method") == "elicitation/create":
            key = next(key for key, (word, _, _) in self.waiting.items() if word.encode() in line)
        elif "id" in frame:
            key = frame["id"]
        else:
            # A log message, which names no call; or the answer to a line that is no message.
            assert frame.get("method") == "notifications/message" or ("error" in frame and not WORD.search(line)), frame
            return
        word, frames, event = self.waiting[key]
        strange = set(WORD.findall(line)) - {word.encode()}
        assert not strange, f"{word} was sent {strange}: {line[:500]!r}"
        frames.append(frame)
        if "method" not in frame:
            del self.waiting[key]
        event.set()

    async def call(self, word: str, tool: str, times: int = 1, **params: Any) -> Json:
        """The one answer to a call."""
        self.last_id += 1
        request_id = self.last_id
        frames: list[Json] = []
        answered = trio.Event()
        self.waiting[request_id] = (word, frames, answered)
        arguments: Json = {"text": word} | ({"times": times} if tool == "tell" else {})
        token = {"progressToken": request_id}
        params = {"name": tool, "arguments": arguments, **params, "_meta": self.meta(token)}
        await self.write(id=request_id, method="tools/call", params=params)
        while True:
            await answered.wait()
            if "method" not in frames[-1]:
                break
            answered = trio.Event()
            self.waiting[request_id] = (word, frames, answered)
            if frames[-1]["method"] == "elicitation/create":
                result = {"action": "accept", "content": {"word": word}}
                await self.write(id=frames[-1]["id"], result=result)
        received = [frame["params"]["progress"] for frame in frames if frame.get("method") == "notifications/progress"]
        assert received == (list(range(1, times + 1)) if tool == "tell" else [])
        self.tally.outcomes["error" if "error" in frames[-1] else "result"] += 1
        return frames[-1]

    def meta(self, more: Json) -> Json:
        return more if self.date == STATEFUL else meta({"elicitation": {"form": {}}}, **more)

    async def run(self, dice: random.Random, steps: int) -> None:
        word = f"canary-{dice.getrandbits(64):016x}"
        for tool in dice.choices(["echo", "tell", "ask", "fail", "crash", "bad", "cancel"], k=steps):
            match tool:
                case "bad":
                    await self.send(dice.choice([b"{", b"\xff", b"[]", b"nonsense", b'{"jsonrpc":"2.0"}']))
                case "cancel":
                    self.last_id += 1
                    params = {"name": "wait", "arguments": {"text": word}, "_meta": self.meta({})}
                    request_id = self.last_id
                    await self.write(id=request_id, method="tools/call", params=params)
                    # No caller waits for its id: an answer would be a KeyError in `take`.
                    await self.write(method="notifications/cancelled", params={"requestId": request_id})
                    self.tally.outcomes["cancelled"] += 1
                case "ask":
                    answer = await self.call(word, tool)
                    if self.date != STATEFUL:
                        ((key, _),) = answer["result"]["inputRequests"].items()
                        given = {key: {"action": "accept", "content": {"word": word}}}
                        state = answer["result"]["requestState"]
                        answer = await self.call(word, tool, requestState=state, inputResponses=given)
                    assert answer["result"]["content"][0]["text"] == f"{word} {word}"
                case _:
                    answer = await self.call(word, tool, dice.randrange(1, 9))
                    assert (answer["result"]["content"][0]["text"] == word) == (tool != "crash")

    async def leave(self) -> int:
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        with trio.fail_after(30):
            return await self.process.wait()


async def kill(process: trio.Process) -> None:
    process.kill()


@asynccontextmanager
async def open_pipe(program: Path, date: str, tally: Tally) -> AsyncIterator[Pipe]:
    command = [sys.executable, "-m", "mcptrio", "run", str(program), "--log-level", "error"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    start = partial(trio.run_process, command, check=False, deliver_cancel=kill, **pipes)
    async with trio.open_nursery() as nursery:
        pipe = Pipe(await nursery.start(start), date, tally)
        nursery.start_soon(pipe.receive)
        if date == STATEFUL:
            opened = trio.Event()
            pipe.waiting[0] = ("", [], opened)
            info = {"name": "pipe", "version": "1"}
            params = {"protocolVersion": date, "capabilities": {"elicitation": {}}, "clientInfo": info}
            await pipe.write(id=0, method="initialize", params=params)
            await opened.wait()
            await pipe.write(method="notifications/initialized")
        yield pipe
        nursery.cancel_scope.cancel()
