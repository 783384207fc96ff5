"""`server.asgi()` under asyncio servers, as real processes: uvicorn on both of its loops, and Hypercorn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio

from mcptrio import Client, ConnectionLost, MCPError, connect
from tests.e2e.server_process import PROGRAMS, ServerProcess
from tests.ports import free_port
from tests.tiers import exhaustive, sample

HOSTS = {
    "uvicorn": ("uvicorn", "{app}", "--port", "{port}", "--loop", "asyncio"),
    "uvicorn-uvloop": ("uvicorn", "{app}", "--port", "{port}", "--loop", "uvloop"),
    "hypercorn": ("hypercorn", "{app}", "-k", "asyncio", "-b", "127.0.0.1:{port}", "--graceful-timeout", "{grace}"),
}
each_host = pytest.mark.parametrize("host", sample(HOSTS, "uvicorn"))
ERAS = ("2025-11-25", "2026-07-28")


@contextmanager
def serving(host: str, log: Path, app: str = "hosted:app", *, grace: int = 10, **env: str) -> Iterator[ServerProcess]:
    """`grace` is the time that Hypercorn gives open connections before it ends the lifespan."""
    port = free_port()
    command = [part.format(app=app, port=port, grace=grace) for part in HOSTS[host]]
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=PROGRAMS,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
            start_new_session=True,
        )
    served = ServerProcess(process, port, log)
    try:
        with served.closing:
            yield served
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # Hypercorn's worker is a child of the process
        process.wait()


def url_of(served: ServerProcess, path: str = "/mcp") -> str:
    return f"http://127.0.0.1:{served.port}{path}"


async def wait_log(served: ServerProcess, text: bytes, within: float = 60) -> None:
    with trio.fail_after(within):
        while text not in served.log.read_bytes():
            await trio.sleep(0.02)


async def answer(params: Any) -> dict[str, int]:
    return {"size": 7}


async def use(url: str, era: str) -> None:
    async with connect(url, protocol=era, elicit=answer) as client:
        assert (await client.call_tool("echo", {"text": "hi"})).content[0].text == "hi"
        assert (await client.call_tool("plain", {"text": "hi"})).content[0].text == "HI"
        steps: list[float] = []
        await client.call_tool("count", {"to": 3}, on_progress=lambda p: steps.append(p.progress))
        assert steps == [1, 2, 3]
        assert (await client.call_tool("ask")).content[0].text == "7"
        big = "x" * 1_000_000
        assert (await client.call_tool("echo", {"text": big})).content[0].text == big


@each_host
async def test_both_kinds_of_revisions_work(host: str, tmp_path: Path) -> None:
    with serving(host, tmp_path / "log") as served:
        await served.wait_ready()
        for era in ERAS:
            await use(url_of(served), era)
        async with connect(url_of(served).replace("http:", "ws:"), elicit=answer) as client:
            assert (await client.call_tool("ask")).content[0].text == "7"
        served.signal(signal.SIGTERM)
        await served.wait(5)
    assert b"Traceback" not in served.log.read_bytes()


@each_host
async def test_a_drain_lets_a_call_finish_and_ends_the_streams(host: str, tmp_path: Path) -> None:
    with serving(host, tmp_path / "log") as served:
        await served.wait_ready()
        async with connect(url_of(served), protocol="2025-11-25") as client, trio.open_nursery() as nursery:

            async def listen() -> None:
                async with client.listen(resources=["hosted://thing"]) as changes:
                    async for _ in changes:
                        pass

            nursery.start_soon(listen)
            results: list[Any] = []

            async def call() -> None:
                results.append(await client.call_tool("work", {"seconds": 1.5}))

            nursery.start_soon(call)
            await wait_log(served, b"working")
            served.signal(signal.SIGTERM)
            while not results:
                await trio.sleep(0.02)
            assert results[0].content[0].text == "worked"
            nursery.cancel_scope.cancel()
        await served.wait(12 if host == "hypercorn" else 5)
    assert b"Traceback" not in served.log.read_bytes()


@pytest.mark.parametrize(
    ("host", "number"),
    sample(
        [(host, number) for host in HOSTS for number in (signal.SIGTERM, signal.SIGINT)], ("uvicorn", signal.SIGTERM)
    ),
)
@pytest.mark.parametrize("tool", sample(["work", "aio_wait"], "work"))
async def test_a_drain_ends_within_its_timeout(host: str, number: signal.Signals, tool: str, tmp_path: Path) -> None:
    with serving(host, tmp_path / "log", grace=1, DRAIN_TIMEOUT="0.5") as served:
        await served.wait_ready()
        async with connect(url_of(served)) as client, trio.open_nursery() as nursery:

            async def call() -> None:
                with pytest.raises((MCPError, ConnectionLost)):
                    await client.call_tool(tool, {"seconds": 60} if tool == "work" else {})

            nursery.start_soon(call)
            await wait_log(served, b"working" if tool == "work" else b"aio_wait has begun")
            served.signal(number)
            await served.wait(4 if host == "hypercorn" else 3)
    assert tool == "work" or b"aio_wait has ended" in served.log.read_bytes()


async def behaviour(client: Client, served: ServerProcess, kind: str) -> list[tuple[bool, str]]:
    """Call the tools of one kind: those that ask, raise, take too long, and the one that is cancelled."""
    found = []
    for tool, arguments in (("ask", {}), ("fail", {"text": "no such order"}), ("fail", {"text": ""}), ("late", {})):
        result = await client.call_tool(kind + tool, arguments)
        found.append((bool(result.is_error), result.content[0].text.replace(kind + tool, tool)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.call_tool, f"{kind}wait")
        await wait_log(served, f"\n{kind}wait has begun".encode())
        nursery.cancel_scope.cancel()
    await wait_log(served, f"\n{kind}wait has ended".encode())
    return found


@each_host
@pytest.mark.parametrize("era", ERAS)
async def test_an_asyncio_tool_behaves_as_a_trio_one(host: str, era: str, tmp_path: Path) -> None:
    with serving(host, tmp_path / "log") as served:
        await served.wait_ready()
        async with connect(url_of(served), protocol=era, elicit=answer) as client:
            of_trio = await behaviour(client, served, "")
            assert await behaviour(client, served, "aio_") == of_trio
            assert of_trio[:2] == [(False, "7"), (True, "no such order")]
            assert [is_error for is_error, _ in of_trio] == [False, True, True, True]
            assert "secret" not in str(of_trio)
            assert (await client.call_tool("echo", {"text": "hi"})).content[0].text == "hi"


async def test_a_change_from_asyncio_reaches_an_application_mounted_in_fastapi(tmp_path: Path) -> None:
    with serving("uvicorn", tmp_path / "log", "hosted:mounted") as served:
        await wait_log(served, b"startup complete")
        for era in ERAS:
            await use(url_of(served, "/ai/mcp"), era)
            async with (
                connect(url_of(served, "/ai/mcp"), protocol=era) as client,
                client.listen(resources=["hosted://thing"]) as changes,
                httpx2.AsyncClient() as web,
            ):
                await web.get(url_of(served, "/touch"))
                with trio.fail_after(30):
                    async for change in changes:
                        assert "hosted://thing" in str(change)
                        break


@exhaustive
async def test_without_the_lifespan_requests_get_503_and_the_log_names_the_line_to_add(tmp_path: Path) -> None:
    with serving("uvicorn", tmp_path / "log", "hosted:forgotten") as served:
        await wait_log(served, b"startup complete")
        async with httpx2.AsyncClient() as web:
            for _ in range(2):
                reply = await web.post(url_of(served, "/ai/mcp"), json={})
                assert reply.status_code == 503
                assert "FastAPI(lifespan=app.lifespan)" in reply.text
    assert served.log.read_bytes().count(b"FastAPI(lifespan=app.lifespan)") == 1
