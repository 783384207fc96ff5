"""A server as a host starts it: a process of its own with a pipe at each end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from attrs import define, field

SERVER = """
import os, subprocess, sys, time
import trio
from mcptrio import Context, Server

print("a banner printed while loading", flush=False)
server = Server("pipe", version="1")

@server.tool
async def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

@server.tool
async def noise() -> str:
    "Write to standard output in every way there is, and read standard input."
    print("printed", flush=True)
    sys.stdout.write("written\\n")
    os.write(1, b"raw\\n")
    subprocess.run(["echo", "from a child"], check=True)
    child = subprocess.run(["cat"], capture_output=False, timeout=5)
    return f"{sys.stdin.read()!r} {child.returncode}"

@server.tool
async def wait() -> str:
    "Wait for ever."
    sys.stderr.write("waiting\\n")
    sys.stderr.flush()
    await trio.sleep_forever()

@server.tool
def block() -> str:
    "Block a thread."
    sys.stderr.write("blocking\\n")
    sys.stderr.flush()
    time.sleep(60)
    return "late"

if __name__ == "__main__":
    server.run()
"""

INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return path


def line(request_id: Any, method: str, **params: Any) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    if request_id is not None:
        message["id"] = request_id
    return msgspec.json.encode(message) + b"\n"


def call(request_id: int, name: str, **arguments: Any) -> bytes:
    return line(request_id, "tools/call", name=name, arguments=arguments)


OPENING = line(0, "initialize", **INITIALIZE) + line(None, "notifications/initialized")


@define(eq=False)
class Host:
    """The program that started the server."""

    process: trio.Process
    heard: bytes = b""
    errors: bytes = b""
    exited: trio.Event = field(factory=trio.Event)

    async def say(self, data: bytes) -> None:
        assert self.process.stdin is not None
        await self.process.stdin.send_all(data)

    async def answer(self) -> Any:
        """The next line; the test fails if it is no message."""
        assert self.process.stdout is not None
        while b"\n" not in self.heard:
            piece = await self.process.stdout.receive_some()
            assert piece, f"the server is gone: {self.errors.decode()}"
            self.heard += piece
        first, _, self.heard = self.heard.partition(b"\n")
        return msgspec.json.decode(first)

    async def wait_for_error(self, text: bytes) -> None:
        while text not in self.errors:
            await trio.sleep(0.005)

    async def read_errors(self) -> None:
        assert self.process.stderr is not None
        async for piece in self.process.stderr:
            self.errors += piece


def environment() -> dict[str, str]:
    root = Path(__file__).parents[2]
    return {**os.environ, "PYTHONPATH": str(root), "PYTHONUNBUFFERED": ""}


@asynccontextmanager
async def started(script: Path) -> AsyncIterator[Host]:
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            process = await trio.lowlevel.open_process(
                [sys.executable, str(script)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment(),
            )
            host = Host(process)
            try:
                nursery.start_soon(host.read_errors)
                await host.say(OPENING)
                assert (await host.answer())["id"] == 0
                yield host
            finally:
                if process.returncode is None:
                    process.kill()
                with trio.CancelScope(shield=True):
                    await process.wait()
                    for stream in (process.stdin, process.stdout):
                        if stream is not None:
                            await stream.aclose()
            nursery.cancel_scope.cancel()


async def exit_code(host: Host, within: float) -> int:
    with trio.fail_after(within):
        return await host.process.wait()


async def test_v64_d09_nothing_but_messages_reaches_the_wire(script: Path) -> None:
    """A host that reads a line which is no message drops the connection, or worse, takes it for one."""
    async with started(script) as host:
        await host.say(call(1, "noise") + call(2, "add", a=1, b=2))
        answers = [await host.answer(), await host.answer()]
        by_id = {a["id"]: a["result"] for a in answers}
        assert by_id[1]["content"][0]["text"] == "'' 0"
        assert by_id[2]["structuredContent"] == {"result": 3}
        assert host.process.stdin is not None
        await host.process.stdin.aclose()
        assert await exit_code(host, 5) == 0
        assert host.process.stdout is not None
        assert await host.process.stdout.receive_some() == b""
        await host.wait_for_error(b"a banner printed while loading")
        for text in (b"printed", b"written", b"raw", b"from a child"):
            assert text in host.errors


async def test_d10_the_end_of_input_ends_the_process_although_a_call_runs(script: Path) -> None:
    async with started(script) as host:
        await host.say(call(1, "wait"))
        await host.wait_for_error(b"waiting")
        assert host.process.stdin is not None
        await host.process.stdin.aclose()
        assert await exit_code(host, 2) == 0
        assert b"Traceback" not in host.errors


async def test_the_end_of_input_ends_the_process_although_a_thread_is_blocked(script: Path) -> None:
    async with started(script) as host:
        await host.say(call(1, "block"))
        await host.wait_for_error(b"blocking")
        assert host.process.stdin is not None
        await host.process.stdin.aclose()
        assert await exit_code(host, 3) == 0


async def test_d11_a_reader_that_goes_away_ends_the_process_without_a_traceback(script: Path) -> None:
    async with started(script) as host:
        assert host.process.stdout is not None
        await host.process.stdout.aclose()
        await host.say(call(1, "add", a=1, b=2))
        assert await exit_code(host, 5) == 0
        assert b"Traceback" not in host.errors


async def test_d12_a_host_that_reads_late_gets_everything(script: Path) -> None:
    """More than both pipes hold, sent before anything is read."""
    count = 4000
    async with started(script) as host:
        requests = b"".join(call(n, "add", a=n, b=0) for n in range(1, count + 1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(host.say, requests)
            await trio.testing.wait_all_tasks_blocked(0.05)  # the pipes are full, or all is sent
            seen = {(await host.answer())["id"] for _ in range(count)}
        assert seen == set(range(1, count + 1))


@pytest.mark.parametrize("source", ["pipe", "file"])
def test_a_shell_can_pipe_a_conversation_in(script: Path, source: str, tmp_path: Path) -> None:
    conversation = OPENING + call(1, "add", a=1, b=2) + call(2, "add", a=3, b=4)
    run: dict[str, Any] = {"input": conversation}
    if source == "file":
        (tmp_path / "in").write_bytes(conversation)
        run = {"stdin": (tmp_path / "in").open("rb")}
    try:
        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, timeout=20, env=environment(), check=True, **run
        )
    finally:
        if source == "file":
            run["stdin"].close()
    answers = [msgspec.json.decode(text) for text in done.stdout.splitlines()]
    assert sorted(a["id"] for a in answers) == [0, 1, 2]
    assert b"Traceback" not in done.stderr


def test_a_terminal_or_nothing_as_input_is_the_end_at_once(script: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(script)], stdin=subprocess.DEVNULL, capture_output=True, timeout=10, env=environment()
    )
    assert (done.returncode, done.stdout) == (0, b"")


def test_standard_output_and_error_may_be_the_same_pipe(script: Path) -> None:
    """Some hosts merge them; then logging must not meet a descriptor that does not block."""
    done = subprocess.run(
        [sys.executable, str(script)],
        input=OPENING + call(1, "add", a=1, b=2),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=20,
        env=environment(),
    )
    assert done.returncode == 0
    assert done.stdout.count(b'"jsonrpc"') == 2


async def test_sigterm_answers_what_runs_and_exits(script: Path) -> None:
    async with started(script) as host:
        await host.say(call(1, "wait"))
        await host.wait_for_error(b"waiting")
        host.process.send_signal(signal.SIGTERM)
        refused = False
        while not refused:  # until the first signal has been seen
            await host.say(line(2, "ping"))
            refused = "error" in await host.answer()
        host.process.send_signal(signal.SIGTERM)  # do not wait for the grace
        answer = await host.answer()
        assert (answer["id"], answer["error"]["message"]) == (1, "the server is shutting down")
        assert await exit_code(host, 3) == 0
