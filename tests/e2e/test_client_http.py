"""The client over real sockets, and through a network that fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import trio

from mcptrio import Client, ConnectionLost, Context, MCPTrioError, Overloaded, Reconnect, Server, connect
from mcptrio.client import Change
from mcptrio.transports.http_client import HttpClientConfig
from tests.client.kit import BOTH, STATEFUL, Order, make_server
from tests.tiers import sample

from .fault_proxy import Ending, Fault, fault_proxy

OLD, NEW = BOTH
every_life = pytest.mark.parametrize("date", [*STATEFUL[1:], NEW])
both_lives = pytest.mark.parametrize("date", BOTH)


@asynccontextmanager
async def served(server: Server, **settings: Any) -> AsyncIterator[int]:
    """The port that a server is served at."""
    async with trio.open_nursery() as nursery:
        bound = await nursery.start(partial(server.serve_http, **{"port": 0, **settings}))
        try:
            yield int(bound[0].url.rpartition(":")[2])
        finally:
            nursery.cancel_scope.cancel()


def at(port: int, **options: Any) -> Client:
    return connect(f"http://127.0.0.1:{port}/mcp", **options)


@every_life
async def test_everything_works_over_http(date: str) -> None:
    async with served(make_server(page_size=3)) as port:
        options: dict[str, Any] = {"elicit": lambda _: {"size": "l"}, "sample": lambda _: "hm", "roots": ["file:///a"]}
        async with at(port, protocol=date, **options) as client:
            assert len(await client.list_tools()) == 8
            seen: list[float] = []
            await client.call_tool("steps", on_progress=lambda p: seen.append(p.progress))
            assert seen == [1, 2, 3]
            if date >= STATEFUL[2]:
                assert await client.call_tool("shirt", into=str) == "accept Shirt(size='l', count=1)"
                assert await client.call_tool("order", {"order_id": "7"}, into=Order) == Order("7", 3)
            assert await client.call_tool("think", into=str) == "hm"
            assert await client.call_tool("places", into=str) == "file:///a"
            assert (await client.read_resource("orders://7")).contents
            assert (await client.get_prompt("complaint", {"order_id": "7"})).messages


@both_lives
@pytest.mark.parametrize("scheme", ["ws", "sse"])
async def test_websocket_and_legacy_sse_work_too(date: str, scheme: str) -> None:
    async with served(make_server(), legacy_sse=True) as port:
        url = f"ws://127.0.0.1:{port}/mcp" if scheme == "ws" else f"http://127.0.0.1:{port}/sse"
        protocol = date if scheme == "ws" else None
        async with connect(url, protocol=protocol, elicit=lambda _: {"size": "l"}) as client:
            assert await client.call_tool("count", {"a": 1, "b": 2}, into=int) == 3
            assert (await client.call_tool("shirt", into=str)).startswith("accept")


@both_lives
async def test_changes_arrive_over_http(date: str) -> None:
    server = make_server()
    async with served(server) as port, at(port, protocol=date) as client:
        async with client.listen(tools=True, resources=["orders://7"]) as changes:
            with trio.fail_after(30):
                if date == OLD:
                    await client.ping()  # by then the server's own stream is open
                server.remove_tool("fail")
                assert await anext(changes) == Change(kind="tools")
                server.notify_resource_updated("orders://7")
                assert await anext(changes) == Change(kind="resource", uri="orders://7")


@both_lives
async def test_calls_at_the_same_time_take_the_time_of_one(date: str) -> None:
    async with served(make_server()) as port, at(port, protocol=date) as client:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(client.call_tool, "wait", {"seconds": 0.5})
        assert trio.current_time() - began < 10, "one after the other they would take ten seconds"


@both_lives
async def test_cancelling_over_http_cancels_the_handler(date: str) -> None:
    server = make_server()
    async with served(server) as port, at(port, protocol=date) as client:
        with trio.move_on_after(0.3):
            await client.call_tool("wait", {"seconds": 60})
        with trio.fail_after(20):
            while "cancelled" not in server.calls:  # type: ignore[attr-defined]
                await trio.sleep(0.01)


@both_lives
async def test_a_server_that_goes_away_ends_its_callers_and_is_found_again(date: str) -> None:
    server = make_server()
    ended: list[str] = []
    async with served(server) as free:
        pass
    async with trio.open_nursery() as nursery:
        async with served(server, port=free):
            client = at(free, protocol=date, reconnect=Reconnect(tries=3, first=0.05))
            await nursery.start(hold, client)

            async def call() -> None:
                try:
                    await client.call_tool("wait", {"seconds": 60})
                except (MCPTrioError, TimeoutError) as error:
                    ended.append(type(error).__name__)

            nursery.start_soon(call)
            while not server.calls:  # type: ignore[attr-defined]
                await trio.sleep(0.01)
        with trio.fail_after(20):
            while not ended:
                await trio.sleep(0.01)
            with pytest.raises(ConnectionLost):
                await client.list_tools()
            async with served(server, port=free):
                assert len(await client.list_tools()) == 8
                assert await client.call_tool("count", {"a": 1, "b": 2}, into=int) == 3
        nursery.cancel_scope.cancel()


async def hold(client: Client, *, task_status: trio.TaskStatus[None]) -> None:
    async with client:
        task_status.started()
        await trio.sleep_forever()


def numbers_server(total: int) -> tuple[Server, list[int]]:
    server = Server("numbers", version="1")
    runs: list[int] = []

    @server.tool
    async def numbers(ctx: Context) -> str:
        """Count aloud."""
        runs.append(1)
        for number in range(1, total + 1):
            await ctx.progress(number, total, "x" * 50)
            await trio.sleep(0.002)
        return "all said"

    return server, runs


@pytest.mark.parametrize("ending", ["fin", "rst"])
@pytest.mark.parametrize("cut", [900, 2001])
async def test_a_resumed_stream_has_no_gap_and_no_repeat(ending: Ending, cut: int) -> None:
    """Every connection is cut after a while; the call still ends once, with all that was said in order."""
    server, runs = numbers_server(15)
    seen: list[float] = []
    async with served(server) as port:
        async with fault_proxy(port, lambda n: Fault(cut_after=cut, ending=ending) if n >= 4 else Fault()) as proxy:
            async with connect(proxy.url, protocol=OLD, reconnect=Reconnect(tries=50, first=0.02)) as client:
                proxy.reset_all()  # from now on every connection is a new one
                proxy.connections = max(proxy.connections, 4)
                with trio.fail_after(60):
                    result = await client.call_tool("numbers", into=str, on_progress=lambda p: seen.append(p.progress))
    assert result == "all said"
    assert runs == [1]
    assert seen == [float(number) for number in range(1, 16)]


@both_lives
@pytest.mark.parametrize("ending", ["fin", "rst", "black hole"])
async def test_no_call_hangs_wherever_the_connection_is_cut(date: str, ending: Ending) -> None:
    server = make_server()
    outcomes: list[str] = []
    async with served(server) as port:
        for cut in (0, 1, 20, 90, 150, 200, 260, 320):
            plan = partial(cut_later, cut, ending)
            async with fault_proxy(port, plan) as proxy:
                client = connect(
                    proxy.url,
                    protocol=date,
                    reconnect=Reconnect(tries=1, first=0.01),
                    open_timeout=3,
                )
                with trio.fail_after(60):
                    try:
                        async with client:
                            proxy.reset_all()
                            result = await client.call_tool("count", {"a": 1, "b": 2}, into=int, timeout=1)
                            outcomes.append("answered" if result == 3 else "wrong")
                    except MCPTrioError as error:
                        outcomes.append(type(error).__name__)
    assert len(outcomes) == 8
    assert "wrong" not in outcomes


def cut_later(cut: int, ending: Ending, number: int) -> Fault:
    return Fault() if number < 3 else Fault(cut_after=cut, ending=ending)


@both_lives
async def test_corrupted_answers_are_never_taken_for_others(date: str) -> None:
    async with served(make_server()) as port:
        for place in range(0, 400, 23):
            async with fault_proxy(
                port, lambda n, place=place: Fault(corrupt_at=place) if n >= 3 else Fault()
            ) as proxy:
                with trio.fail_after(60):
                    try:
                        async with connect(proxy.url, protocol=date, open_timeout=3) as client:
                            proxy.reset_all()
                            proxy.connections = 3
                            result = await client.call_tool("count", {"a": 1, "b": 2}, timeout=1)
                            assert result.content or result.is_error is not None
                    except MCPTrioError:
                        pass  # a typed error, in time


@both_lives
async def test_a_server_that_refuses_connections_for_a_while_is_reached(date: str) -> None:
    async with served(make_server()) as port:
        async with fault_proxy(port, lambda n: Fault(refuse=3 <= n < 6)) as proxy:
            async with connect(proxy.url, protocol=date, reconnect=Reconnect(tries=8, first=0.02)) as client:
                proxy.reset_all()
                proxy.connections = 3
                with trio.fail_after(20):
                    assert len(await client.list_tools()) == 8


AWAY = sample([429, 502, 503, 504], 503)
QUICK = Reconnect(tries=8, first=0.02)


class Outage:
    """A plan for a proxy: while `status` is set, it answers connections with it, `left` times."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.left = 0

    def begin(self, status: int, times: int) -> None:
        self.status, self.left = status, times

    def __call__(self, _: int) -> Fault:
        if not self.left:
            return Fault()
        self.left -= 1
        return Fault(status=self.status)


@pytest.mark.defect("E22")
@both_lives
@pytest.mark.parametrize("status", AWAY)
async def test_a_list_gets_through_an_outage_behind_a_proxy(status: int, date: str) -> None:
    outage = Outage()
    async with served(make_server()) as port, fault_proxy(port, outage) as proxy:
        async with connect(proxy.url, protocol=date, reconnect=QUICK) as client:
            outage.begin(status, 4)
            proxy.reset_all()
            with trio.fail_after(20):
                assert len(await client.list_tools()) == 8
            assert not outage.left


@pytest.mark.defect("E18")
@pytest.mark.parametrize("status", AWAY)
async def test_a_call_is_resumed_after_an_outage_behind_a_proxy(status: int) -> None:
    server, runs = numbers_server(40)
    outage = Outage()
    seen: list[float] = []

    def on_progress(progress: Any) -> None:
        seen.append(progress.progress)
        if progress.progress == 10:
            outage.begin(status, 4)
            proxy.reset_all()

    async with served(server) as port, fault_proxy(port, outage) as proxy:
        async with connect(proxy.url, protocol=OLD, reconnect=QUICK) as client:
            with trio.fail_after(30):
                assert await client.call_tool("numbers", into=str, on_progress=on_progress) == "all said"
    assert runs == [1]
    assert seen == [float(number) for number in range(1, 41)]


@pytest.mark.defect("E19", "E23")
@both_lives
@pytest.mark.parametrize("status", AWAY)
async def test_changes_arrive_after_an_outage_behind_a_proxy(status: int, date: str) -> None:
    server, outage = make_server(), Outage()
    async with served(server) as port, fault_proxy(port, outage) as proxy:
        async with connect(proxy.url, protocol=date, reconnect=QUICK) as client:
            async with client.listen(tools=True) as changes:
                outage.begin(status, 4)
                proxy.reset_all()
                with trio.fail_after(20):
                    while outage.left:
                        await trio.sleep(0.01)
                    if date == OLD:
                        await client.ping()
                    while proxy.connections < 6:
                        await trio.sleep(0.01)
                    server.remove_tool("fail")
                    assert await anext(changes) == Change(kind="tools")


@pytest.mark.defect("E24")
@both_lives
@pytest.mark.parametrize("status", AWAY)
async def test_a_websocket_is_opened_again_after_an_outage_behind_a_proxy(status: int, date: str) -> None:
    outage = Outage()
    async with served(make_server()) as port, fault_proxy(port, outage) as proxy:
        async with connect(f"ws://127.0.0.1:{proxy.port}/mcp", protocol=date, reconnect=QUICK) as client:
            outage.begin(status, 4)
            proxy.reset_all()
            with trio.fail_after(20):
                assert len(await client.list_tools()) == 8
            assert not outage.left


@pytest.mark.defect("E24")
async def test_a_websocket_handshake_that_is_never_answered_ends() -> None:
    async def stay_silent(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            while await stream.receive_some():
                pass

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, stay_silent, 0, host="127.0.0.1"))
        port, http = listener.socket.getsockname()[1], HttpClientConfig(connect_timeout=0.2)
        with trio.fail_after(30), pytest.raises(ConnectionLost, match=r"not answered within 0.2 s \(connect_timeout\)"):
            async with connect(f"ws://127.0.0.1:{port}/mcp", http=http):
                pass
        nursery.cancel_scope.cancel()


@pytest.mark.defect("E24")
async def test_a_websocket_of_an_unknown_server_is_refused_at_once() -> None:
    async with served(make_server()) as port, fault_proxy(port, lambda _: Fault(status=503)) as proxy:
        with trio.fail_after(30), pytest.raises(Overloaded) as caught:
            async with connect(f"ws://127.0.0.1:{proxy.port}/mcp"):
                pass
    assert caught.value.http_status == 503
    assert proxy.connections == 1
