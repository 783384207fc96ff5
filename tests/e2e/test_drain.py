"""The end of the process: it comes in time, whatever is open, and nothing that finishes in time is lost."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest
import trio

from tests.lanes import both_lanes
from tests.transports.app_for_tests import request

from .http_peer import HttpClient, Response
from .server_process import running

STREAMS = 200
CALLS = 50
GRACE = 2.0

pytestmark = both_lanes


async def call(client: HttpClient, number: int, tool: str, **arguments: object) -> Response:
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": number}}
    return await client.send("POST", request(number, "tools/call", **params))


async def test_a_drain_ends_in_time_with_everything_open(tmp_path: Path) -> None:
    """200 streams, 50 calls, a reader that reads nothing, a question that nobody answers."""
    with running("busy.py", tmp_path / "log", "--drain-timeout", str(GRACE)) as server:
        await server.wait_ready()
        clients = [await HttpClient.open(server, elicitation={}) for _ in range(10)]
        listening = [await HttpClient.open(server) for _ in range(STREAMS)]
        streams = [await client.listen() for client in listening]
        asking = await call(clients[0], 500, "ask")
        question = await asking.event()
        assert question is not None
        assert json.loads(question.data)["method"] == "elicitation/create"
        await stall(clients[1])
        running_calls: list[Response] = []

        async def begin(number: int, seconds: float) -> None:
            running_calls.append(await call(clients[number % 10], number, "wait", seconds=seconds))

        async with trio.open_nursery() as nursery:
            for number in range(CALLS // 2):
                nursery.start_soon(begin, number, 1.5)
                nursery.start_soon(begin, 100 + number, 50)

        began = trio.current_time()
        server.signal(signal.SIGTERM)
        results: dict[int, object] = {}
        async with trio.open_nursery() as nursery:
            for response in [*running_calls, asking]:
                nursery.start_soon(take, response, results)
            for stream in streams:
                nursery.start_soon(stream.rest)
        code = await server.wait(within=GRACE + 1.0 - (trio.current_time() - began))
        assert code == 0, server.log.read_text()[-2000:]
        assert all(stream.complete for stream in streams)
        for number in range(CALLS // 2):
            assert results[number] == "waited"
        for number in [*range(100, 100 + CALLS // 2), 500]:
            assert results[number] == "the server is shutting down"


async def take(response: Response, results: dict[int, object]) -> None:
    for event in await response.rest():
        frame = json.loads(event.data)
        if "result" in frame:
            results[frame["id"]] = frame["result"]["content"][0]["text"]
        elif "error" in frame:
            results[frame["id"]] = frame["error"]["message"]


async def stall(client: HttpClient) -> None:
    """Begin to read an answer that is larger than every buffer, and stop."""
    response = await call(client, 900, "flood")
    response.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await response.piece()


async def test_a_second_signal_shortens_the_drain(tmp_path: Path) -> None:
    with running("busy.py", tmp_path / "log", "--drain-timeout", "20") as server:
        await server.wait_ready()
        client = await HttpClient.open(server)
        response = await call(client, 1, "wait", seconds=50)
        server.signal(signal.SIGTERM)
        with trio.fail_after(3):
            while b"draining" not in server.log.read_bytes():
                await trio.sleep(0.02)
        server.signal(signal.SIGINT)
        results: dict[int, object] = {}
        await take(response, results)
        assert results == {1: "the server is shutting down"}
        assert await server.wait(within=3) == 0


async def test_new_work_is_refused_during_a_drain(tmp_path: Path) -> None:
    with running("busy.py", tmp_path / "log", "--drain-timeout", "5") as server:
        await server.wait_ready()
        client = await HttpClient.open(server)
        response = await call(client, 1, "wait", seconds=1.0)
        server.signal(signal.SIGTERM)
        with trio.fail_after(3), pytest.raises(OSError):
            while True:
                (await trio.open_tcp_stream("127.0.0.1", server.port)).socket.close()
                await trio.sleep(0.02)
        results: dict[int, object] = {}
        await take(response, results)
        assert results == {1: "waited"}
        assert await server.wait(within=6) == 0


async def test_a_handler_that_cannot_be_ended_is_left_behind(tmp_path: Path) -> None:
    """The process leaves with 75 and says on what it gave up."""
    with running("busy.py", tmp_path / "log", "--drain-timeout", "0.5") as server:
        await server.wait_ready()
        client = await HttpClient.open(server)
        await call(client, 1, "stubborn")
        server.signal(signal.SIGTERM)
        assert await server.wait(within=0.5 + 1.5) == 75
        assert b"ignore their cancellation" in server.log.read_bytes()


@pytest.mark.parametrize("tool", ["leave", "fail", "stubborn", "blocked"])
async def test_a_handler_that_misbehaves_disturbs_nobody(tmp_path: Path, tool: str) -> None:
    with running("busy.py", tmp_path / "log") as server:
        await server.wait_ready()
        bad, good = await HttpClient.open(server), await HttpClient.open(server)
        arguments = {"seconds": 30} if tool == "blocked" else {}
        misbehaving = await call(bad, 1, tool, **arguments)
        with trio.fail_after(5):
            answer = await call(good, 1, "wait", seconds=0)
            assert (await answer.json())["result"]["content"][0]["text"] == "waited"
        if tool in ("leave", "fail"):
            body = await misbehaving.body()
            assert b"secret details" not in body
        assert server.process.poll() is None


async def test_a_keyboard_interrupt_reaches_the_program_that_embeds_a_server(tmp_path: Path) -> None:
    """Also while a handler runs: its guard must not take it for the handler's own failure."""
    with running("embedded_plain.py", tmp_path / "log", command=()) as server:
        await server.wait_ready()
        client = await HttpClient.open(server)
        await call(client, 1, "spin")
        server.signal(signal.SIGINT)
        assert await server.wait(within=5) != 0
        assert b"KeyboardInterrupt" in server.log.read_bytes()
