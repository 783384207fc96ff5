"""`serve_http` and `serve_stdio` inside a Trio program: stopping them with an event."""

from __future__ import annotations

import json
import os
from functools import partial

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import mcptrio
from mcptrio import Server, connect
from mcptrio.transports.http_server.listener.sockets import BoundAddress
from tests.stateless.kit import meta


def make_server(entered: trio.Event, release: trio.Event) -> Server:
    server = Server("embedded", "1")

    @server.tool
    async def slow() -> str:
        entered.set()
        await release.wait()
        return "finished"

    return server


@pytest.mark.defect("U11")
@pytest.mark.parametrize("engine", ["hypercorn", "direct"])
async def test_a_server_that_is_stopped_finishes_its_calls_and_returns(engine: str) -> None:
    entered, release, stop, returned = trio.Event(), trio.Event(), trio.Event(), trio.Event()
    server = make_server(entered, release)
    results: list[str] = []

    async def serve(*, task_status: trio.TaskStatus[list[BoundAddress]]) -> None:
        await server.serve_http(port=0, engine=engine, stop=stop, task_status=task_status)
        returned.set()

    async def call(client: mcptrio.Client) -> None:
        results.append((await client.call_tool("slow")).text)

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            (address,) = await nursery.start(serve)
            async with connect(f"{address.url}/mcp") as client, trio.open_nursery() as calls:
                calls.start_soon(call, client)
                await entered.wait()
                stop.set()
                with pytest.raises(OSError):
                    while True:
                        (await trio.open_tcp_stream("127.0.0.1", address.port)).socket.close()
                        await trio.sleep(0.01)
                assert not returned.is_set(), "a call still runs"
                release.set()
            assert results == ["finished"]
            await returned.wait()


async def test_a_server_that_is_stopped_before_it_is_up_returns_no_address() -> None:
    stop = trio.Event()
    stop.set()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            assert await nursery.start(partial(Server("early").serve_http, port=0, stop=stop)) == []


async def test_a_port_in_use_is_one_plain_exception_inside_a_program() -> None:
    (taken,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = taken.socket.getsockname()[1]
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}: "):
        await Server("late").serve_http(port=port)
    await taken.aclose()


@pytest.mark.defect("U11")
async def test_a_stdio_server_that_is_stopped_finishes_its_call_and_returns() -> None:
    """The streams are pipes in place of descriptors 0 and 1."""
    stop, entered, release, returned = trio.Event(), trio.Event(), trio.Event(), trio.Event()
    server = make_server(entered, release)

    async def serve() -> None:
        await server.serve_stdio(stop=stop)
        returned.set()

    call = {"name": "slow", "arguments": {}, "_meta": meta()}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    stdin, write_end = os.pipe()
    read_end, stdout = os.pipe()
    kept = os.dup(0), os.dup(1)
    try:
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(serve)
                os.write(write_end, json.dumps(request).encode() + b"\n")
                await entered.wait()
                stop.set()
                await wait_all_tasks_blocked()
                assert not returned.is_set(), "a call still runs"
                release.set()
                await returned.wait()
                os.set_blocking(read_end, False)
                answer = json.loads(os.read(read_end, 4096))
                assert answer["result"]["content"] == [{"type": "text", "text": "finished"}]
    finally:
        for fd, old in enumerate(kept):
            os.dup2(old, fd)
        for fd in (*kept, stdin, write_end, read_end, stdout):
            os.close(fd)
