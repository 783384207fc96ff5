"""`mcptrio.aio` and `mcptrio.blocking`: the client in asyncio programs and in programs without an event loop."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pytest
import trio
import uvloop

import mcptrio
from mcptrio import (
    ConnectionLost,
    Context,
    DeclarationError,
    LocalProtocolError,
    MCPError,
    Server,
    ToolError,
    aio,
    blocking,
    user,
)
from mcptrio.client import Change, Clients

ERAS = ("2025-11-25", "2026-07-28")
each_era = pytest.mark.parametrize("era", ERAS)


@dataclass
class Size:
    size: int


def shop() -> Server:
    server = Server("shop", version="3", instructions="Buy.", page_size=2)
    server.add_tool(order)

    @server.tool
    async def wait() -> str:
        seen.append("waiting")
        try:
            await trio.sleep_forever()
        finally:
            seen.append("cancelled")
        return ""

    seen: list[str] = []
    server.seen = seen  # type: ignore[attr-defined]

    @server.tool
    async def fail() -> str:
        raise ToolError("sold out")

    @server.tool
    async def touch() -> str:
        server.notify_resource_updated("shop://hats")
        return "touched"

    @server.resource("shop://hats")
    async def hats() -> str:
        return "ten"

    @server.prompt
    async def complain(about: str) -> Any:
        return [user(f"about {about}")]

    @complain.complete("about")
    async def things(prefix: str) -> list[str]:
        return [f"{prefix}at"]

    return server


async def order(item: str, ctx: Context) -> str:
    await ctx.progress(1, 2)
    answer = await ctx.elicit("Which size?", Size)
    said = await ctx.sample("say hi")
    await ctx.info("ordered")
    return f"{item} {answer.value.size if answer.value else None} {said.text}"


@pytest.mark.parametrize("other", [aio.AsyncioClient, blocking.BlockingClient])
def test_no_method_of_the_client_is_missing(other: type) -> None:
    public = {name for name in dir(mcptrio.Client) if name[0] != "_"}
    renamed = {"aclose"} if other is blocking.BlockingClient else set()  # `close`, as there is nothing to await
    assert public - set(dir(other)) == {"result_types", *renamed}, "handlers of extensions run in Trio"


@pytest.mark.parametrize("other", [aio.AsyncioClients, blocking.BlockingClients])
def test_no_method_of_several_clients_is_missing(other: type) -> None:
    public = {name for name in dir(Clients) if name[0] != "_"}
    assert public - set(dir(other)) == {"separator"}


# -- asyncio


@each_era
@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_an_asyncio_program_has_the_whole_client(era: str, factory: Any) -> None:
    server, logs, progress = shop(), [], []

    async def elicit(params: Any) -> dict[str, int]:
        await asyncio.sleep(0.001)
        return {"size": 7}

    async def on_progress(params: Any) -> None:
        await asyncio.sleep(0)
        progress.append(params.progress)

    async def log(message: Any) -> None:
        logs.append(message.data)

    async def main() -> None:
        client = aio.connect(server, protocol=era, elicit=elicit, sample=lambda params: "hi", log=log)
        with pytest.raises(LocalProtocolError, match="not open"):
            await client.ping()
        async with client:
            assert (client.protocol_version, client.transport, client.instructions) == (era, "memory", "Buy.")
            assert client.server_info is not None
            assert client.server_info.version == "3"
            assert client.capabilities.tools is not None
            result = await client.call_tool("order", {"item": "hat"}, on_progress=on_progress)
            assert result.text == "hat 7 hi"
            assert progress == [1]
            assert {tool.name for tool in await client.list_tools()} >= {"order", "wait"}
            assert [tool.name async for tool in client.iter_tools()] == [
                tool.name for tool in await client.list_tools()
            ]
            assert len(await client.iter_resources().all()) == 1
            assert "ten" in str(await client.read_resource("shop://hats"))
            assert "about it" in str(await client.get_prompt("complain", {"about": "it"}))
            assert (await client.complete("complain", "about", "h")).values == ("hat",)
            with pytest.raises(ToolError, match="sold out"):
                await client.call_tool("fail", into=str)
            with pytest.raises(MCPError, match="unknown tool"):
                await client.call_tool("missing")
            async with client.listen(resources=["shop://hats"]) as changes:
                assert changes.honoured[1] == {"shop://hats"}
                await client.call_tool("touch")
                async for change in changes:
                    assert change == Change(kind="resource", uri="shop://hats")
                    break
            await client.ping()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())
    assert logs == ["ordered"]
    assert not trio.lowlevel.in_trio_run()


def test_a_cancelled_asyncio_task_cancels_its_call() -> None:
    server = shop()

    async def main() -> None:
        async with aio.connect(server) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await client.call_tool("wait")
            async with asyncio.timeout(5):
                while server.seen != ["waiting", "cancelled"]:  # type: ignore[attr-defined]
                    await asyncio.sleep(0.005)
            await client.ping()

    asyncio.run(main())


def test_clients_and_applications_of_a_loop_share_one_trio_run_and_end_alone() -> None:
    server = shop()

    async def main() -> None:
        async with server.asgi().lifespan(), aio.connect(server) as one:
            async with aio.connect(server) as two:
                assert one._guest is two._guest
                await asyncio.gather(one.ping(), two.ping())
                closing = asyncio.ensure_future(two.call_tool("wait"))
                await asyncio.sleep(0.05)
                await two.aclose()
                with pytest.raises(ConnectionLost):
                    await closing
            await one.ping()

    asyncio.run(main())
    assert not trio.lowlevel.in_trio_run()


def test_a_server_that_cannot_be_reached_raises_one_plain_exception() -> None:
    async def main() -> None:
        with pytest.raises(ConnectionLost):
            async with aio.connect([sys.executable, "-c", "raise SystemExit(3)"]):
                pass
        with pytest.raises(ValueError, match="own"):
            async with aio.connect(shop()):
                raise ValueError("own")

    asyncio.run(main())
    with pytest.raises(ConnectionLost):
        with blocking.connect([sys.executable, "-c", "raise SystemExit(3)"]):
            pass
    with pytest.raises(DeclarationError, match="tiemout"):
        aio.connect(shop(), tiemout=3)  # type: ignore[call-arg]


async def test_each_client_says_which_loop_it_needs() -> None:
    with pytest.raises(LocalProtocolError, match=r"use mcptrio\.connect"):
        async with aio.connect(shop()):
            pass
    raised: list[BaseException] = []

    async def main() -> None:
        try:
            async with mcptrio.connect(shop()):
                pass
        except LocalProtocolError as error:
            raised.append(error)

    await trio.to_thread.run_sync(asyncio.run, main())
    assert "mcptrio.aio.connect" in str(raised[0])


# -- without an event loop


@each_era
def test_a_plain_program_has_the_whole_client(era: str) -> None:
    server, logs, progress, threads = shop(), [], [], []

    def elicit(params: Any) -> dict[str, int]:
        threads.append(threading.current_thread())
        return {"size": 7}

    options: Any = {
        "elicit": elicit,
        "sample": lambda params: "hi",
        "log": lambda message: logs.append(message.data),
    }
    client = blocking.connect(server, protocol=era, **options)
    with pytest.raises(LocalProtocolError, match="not open"):
        client.ping()
    with client:
        assert (client.protocol_version, client.transport, client.instructions) == (era, "memory", "Buy.")
        assert client.server_info is not None
        assert client.server_info.version == "3"
        assert client.capabilities.tools is not None
        result = client.call_tool("order", {"item": "hat"}, on_progress=lambda p: progress.append(p.progress))
        assert result.text == "hat 7 hi"
        assert progress == [1]
        assert threads[0] is not threading.main_thread()
        assert [tool.name for tool in client.iter_tools()] == [tool.name for tool in client.list_tools()]
        assert len(list(client.iter_resources())) == 1
        assert "ten" in str(client.read_resource("shop://hats"))
        assert "about it" in str(client.get_prompt("complain", {"about": "it"}))
        assert client.complete("complain", "about", "h").values == ("hat",)
        with pytest.raises(ToolError, match="sold out"):
            client.call_tool("fail", into=str)
        with pytest.raises(MCPError, match="unknown tool"):
            client.call_tool("missing")
        with client.listen(resources=["shop://hats"]) as changes:
            assert changes.honoured[1] == {"shop://hats"}
            client.call_tool("touch")
            assert next(changes) == Change(kind="resource", uri="shop://hats")
        client.close()
        with pytest.raises(ConnectionLost):
            client.ping()
    with pytest.raises(LocalProtocolError):
        client.ping()
    assert not [thread for thread in threading.enumerate() if thread.name == "mcptrio client"]


def test_an_interrupt_cancels_the_call_of_a_plain_program() -> None:
    server = shop()
    with blocking.connect(server) as client:
        main = threading.main_thread().ident
        timer = threading.Timer(0.3, signal.pthread_kill, [main, signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            client.call_tool("wait")
        client.ping()
        wait_until(lambda: server.seen == ["waiting", "cancelled"])  # type: ignore[attr-defined]


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        threading.Event().wait(0.01)
    raise TimeoutError


def test_several_threads_share_a_blocking_client() -> None:
    results: list[str] = []
    with blocking.connect(shop(), elicit=lambda params: {"size": 1}, sample=lambda params: "hi") as client:

        def use(number: int) -> None:
            results.append(client.call_tool("order", {"item": str(number)}).text)

        threads = [threading.Thread(target=use, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(results) == [f"{number} 1 hi" for number in range(5)]


def test_an_async_callback_of_a_blocking_client_is_refused() -> None:
    async def elicit(params: Any) -> dict[str, int]:
        return {}

    with pytest.raises(DeclarationError, match="plain functions"):
        blocking.connect(shop(), elicit=elicit)


# -- several servers


def test_an_asyncio_program_connects_to_several_servers() -> None:
    asked: list[str] = []

    async def elicit(params: Any) -> dict[str, int]:
        await asyncio.sleep(0)
        asked.append(params.message)
        return {"size": 7}

    async def main() -> None:
        own = aio.connect(shop(), elicit=elicit, sample=lambda params: "own")
        servers = {"one": shop(), "own": own, "bad": ["/no/such/program"]}
        async with aio.connect_all(servers, elicit=elicit, sample=lambda params: "hi") as clients:
            assert list(clients) == ["one", "own"]
            assert ("one" in clients, "bad" in clients, len(clients)) == (True, False, 2)
            assert "bad" in clients.failed
            with pytest.raises(LocalProtocolError, match="could not be connected to"):
                clients["bad"]
            assert clients["own"] is own
            assert {"one_order", "own_order"} <= {tool.name for tool in await clients.list_tools()}
            assert {prompt.name for prompt in await clients.list_prompts()} == {"one_complain", "own_complain"}
            assert set(await clients.list_resources()) == {"one", "own"}
            assert "about it" in str(await clients.get_prompt("one_complain", {"about": "it"}))
            assert (await clients.call_tool("one_order", {"item": "hat"})).text == "hat 7 hi"
            assert (await own.call_tool("order", {"item": "cap"})).text == "cap 7 own"
            assert await clients["one"].call_tool("touch", into=str) == "touched"
            assert len(asked) == 2
        with pytest.raises(ConnectionLost):
            await own.ping()

    asyncio.run(main())
    assert not trio.lowlevel.in_trio_run()


def test_a_plain_program_connects_to_several_servers_in_one_thread() -> None:
    own = blocking.connect(shop(), elicit=lambda params: {"size": 8}, sample=lambda params: "own")
    servers = {"one": shop(), "own": own, "bad": ["/no/such/program"]}
    with blocking.connect_all(servers, elicit=lambda params: {"size": 7}, sample=lambda params: "hi") as clients:
        assert [thread.name for thread in threading.enumerate()].count("mcptrio client") == 1
        assert list(clients) == ["one", "own"]
        assert "bad" in clients.failed
        assert clients["own"] is own
        assert {"one_order", "own_order"} <= {tool.name for tool in clients.list_tools()}
        assert clients.call_tool("one_order", {"item": "hat"}).text == "hat 7 hi"
        assert own.call_tool("order", {"item": "cap"}).text == "cap 8 own"
        assert clients["one"].call_tool("touch", into=str) == "touched"
        with clients["one"].listen(resources=["shop://hats"]) as changes:
            clients["one"].call_tool("touch")
            assert next(changes).uri == "shop://hats"
    with pytest.raises(LocalProtocolError, match="not open"):
        own.ping()
    assert "mcptrio client" not in [thread.name for thread in threading.enumerate()]


def test_an_interrupt_before_the_thread_has_started_trio_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted = threading.Event()
    run = trio.run

    class Interrupted(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            raise KeyboardInterrupt

    def late(*args: Any) -> None:
        interrupted.wait()
        run(*args)

    join = threading.Thread.join

    def joining(thread: threading.Thread, timeout: float | None = None) -> None:
        interrupted.set()
        join(thread, 10)
        assert not thread.is_alive()

    monkeypatch.setattr(blocking, "Future", Interrupted)
    monkeypatch.setattr(trio, "run", late)
    monkeypatch.setattr(threading.Thread, "join", joining)
    with pytest.raises(KeyboardInterrupt):
        blocking.connect(shop()).__enter__()
