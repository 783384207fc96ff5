"""The end of the process: it comes in time, whatever is open, and nothing that finishes in time is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from pathlib import Path

import pytest
import trio

from tests.deadlines import Stopwatch
from tests.engines import both_engines
from tests.stateless.kit import DATE, meta
from tests.tiers import sample
from tests.transports.app_for_tests import initialize, request

from .http_peer import Begun, HttpClient, Response
from .server_process import ServerProcess, running

GRACE = 5.0
"""More than the calls of 1.5 s take on a busy machine: the server counts by the real clock."""
DOOR = 0.05 if "MCPTRIO_FAULTS" in os.environ else 1.0
"""The longest time that the door may stay open: among other tests, a process may wait long for its turn."""
RETRY = re.compile(rb"(^|\n)retry: \d+\r?\n\r?\n$")

pytestmark = [both_engines, pytest.mark.slow]


async def call(client: HttpClient, number: int, tool: str, **arguments: object) -> Response:
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": number}}
    return await client.send("POST", request(number, "tools/call", **params))


def stateless(method: str, number: int, **params: object) -> tuple[bytes, dict[str, object]]:
    """The body and the headers of a request that has no session."""
    headers = {"mcp_protocol_version": DATE, "mcp_method": method, "mcp_name": params.get("name")}
    return request(number, method, **params, _meta=meta(progressToken=number)), headers


async def send(server: ServerProcess, method: str, number: int, **params: object) -> Response:
    body, headers = stateless(method, number, **params)
    return await HttpClient(server).send("POST", body, **headers)


async def test_a_drain_ends_in_time_with_everything_open(tmp_path: Path) -> None:
    """F16, F17: 200 streams, 50 calls, requests on their way, a stalled reader, an unanswered question."""
    with running("busy.py", tmp_path / "log", "--drain-timeout", str(GRACE)) as server:
        await server.wait_ready()
        clients = [await HttpClient.open(server, elicitation={}) for _ in range(10)]
        streams = [await (await HttpClient.open(server)).listen() for _ in range(150)]
        wanted = {"toolsListChanged": True}
        listening = [await send(server, "subscriptions/listen", number, notifications=wanted) for number in range(50)]
        assert {stream.status for stream in [*streams, *listening]} == {200}
        asking = await call(clients[0], 500, "ask")
        question = await asking.event()
        assert question is not None
        assert json.loads(question.data)["method"] == "elicitation/create"
        await stall(clients[1])
        calls: list[Response] = []

        async def begin(number: int, seconds: float) -> None:
            arguments = {"to": 1, "pause": seconds}
            if number % 2:
                response = await call(clients[number % 10], number, "count", **arguments)
            else:
                response = await send(server, "tools/call", number, name="count", arguments=arguments)
            assert await response.event() is not None  # it has begun
            calls.append(response)

        async with trio.open_nursery() as nursery:
            for number in range(25):
                nursery.start_soon(begin, number, 1.5)
                nursery.start_soon(begin, 100 + number, 50)
        late = await begin_late(server, clients[3])
        await server.wait_ready()  # connections are accepted in their order: it has these too

        server.signal(signal.SIGTERM)
        results: dict[int, object] = {}
        codes: list[int] = []

        async def leave() -> None:
            codes.append(await server.wait(within=GRACE + 1.0))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(leave)
            nursery.start_soon(expect_no_more_connections, server, DOOR)
            for response in [*calls, asking]:
                nursery.start_soon(take, response, results)
            for stream in streams:
                nursery.start_soon(stream.rest)
            for number, stream in enumerate(listening):
                nursery.start_soon(expect_completion, stream, number)
            for begun in late:
                nursery.start_soon(expect_refusal, server, begun)
        assert codes == [0], server.log.read_text()[-2000:]
        for number in range(25):
            assert results[number] == "counted to 1"
        for number in [*range(100, 125), 500]:
            assert results[number] == "the server is shutting down"
        for stream in streams:
            assert stream.complete, "a clean last chunk"
            assert RETRY.search(stream.raw), stream.raw


async def expect_no_more_connections(server: ServerProcess, within: float) -> None:
    watch = Stopwatch.of(server.process.pid)
    with pytest.raises(OSError):
        while True:
            (await trio.open_tcp_stream("127.0.0.1", server.port)).socket.close()
            assert watch.read() <= within
            await trio.sleep(0.005)


async def expect_completion(stream: Response, number: int) -> None:
    """2026-07-28 basic/patterns/subscriptions: the client learns that its subscription ended well."""
    last = json.loads((await stream.rest())[-1].data)
    assert last["id"] == number
    assert last["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == number
    assert stream.complete


async def begin_late(server: ServerProcess, client: HttpClient) -> list[Begun]:
    """Of each kind of request that begins something one, of which the server has the first bytes.

    The session is one that lives, since a call of it runs: 404 is what one that has ended MUST be answered.
    """
    body, headers = stateless("tools/call", 1, name="wait", arguments={"seconds": 0})
    requests = [
        await client.begin("POST", request(700, "tools/call", name="wait", arguments={"seconds": 0})),
        await client.begin("GET"),
        await HttpClient(server).begin("POST", initialize()),
        await HttpClient(server).begin("POST", body, **headers),
    ]
    return [await begun.go_on(40) for begun in requests]


async def expect_refusal(server: ServerProcess, begun: Begun) -> None:
    await server.wait_draining()
    response = await begun.finish()
    assert response.status == 503
    assert response.headers["connection"] == "close"
    assert b"the server is shutting down" in await response.body()
    assert await response.stream.receive_some(1) == b""


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


AGAIN = [(signal.SIGTERM, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT), (signal.SIGINT, signal.SIGTERM)]


@pytest.mark.parametrize(("first", "second"), sample(AGAIN, AGAIN[1]), ids=lambda number: number.name)
async def test_a_second_signal_shortens_the_drain(
    tmp_path: Path, first: signal.Signals, second: signal.Signals
) -> None:
    """F18: nothing is waited for any more, and what the store was given is there after a restart."""
    store = ("--store", f"sqlite:///{tmp_path / 'events.db'}")
    with running("busy.py", tmp_path / "log", "--drain-timeout", "20", *store) as server:
        await server.wait_ready()
        client, gone = await HttpClient.open(server), await HttpClient.open(server)
        response = await call(client, 1, "wait", seconds=50)
        lost = await call(gone, 2, "count", to=1, pause=50)
        await lost.event()
        lost.reset()
        server.signal(first)
        await server.wait_draining()
        assert server.process.poll() is None
        server.signal(second)
        results: dict[int, object] = {}
        await take(response, results)
        assert results == {1: "the server is shutting down"}
        assert await server.wait(within=3) == 0
    with running("busy.py", tmp_path / "log", *store) as server:
        await server.wait_ready()
        gone.server = server
        await take(await gone.listen(lost.cursor), results)
        assert results[2] == "the server is shutting down"


async def test_a_handler_that_cannot_be_ended_is_left_behind(tmp_path: Path) -> None:
    """The process leaves with 75 and says on what it gave up."""
    with running("busy.py", tmp_path / "log", "--drain-timeout", "0.5") as server:
        await server.wait_ready()
        client = await HttpClient.open(server)
        await call(client, 1, "stubborn")
        server.signal(signal.SIGTERM)
        assert await server.wait(within=0.5 + 1.5) == 75
        assert b"the server did not stop in time" in server.log.read_bytes()


@pytest.mark.parametrize("tool", ["leave", "fail", "stubborn", "blocked"])
async def test_a_handler_that_misbehaves_does_not_disturb_other_sessions(tmp_path: Path, tool: str) -> None:
    with running("busy.py", tmp_path / "log") as server:
        await server.wait_ready()
        bad, good = await HttpClient.open(server), await HttpClient.open(server)
        arguments = {"seconds": 30} if tool == "blocked" else {}
        misbehaving = await call(bad, 1, tool, **arguments)
        with trio.fail_after(20):
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
        assert await server.wait(within=20) != 0
        assert b"KeyboardInterrupt" in server.log.read_bytes()
