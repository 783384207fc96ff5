"""The methods of a client, with the same behaviour in every revision."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mcptrio import (
    Client,
    ConnectionLost,
    Context,
    DeclarationError,
    LocalProtocolError,
    MCPError,
    RequestTimeout,
    Server,
    ToolError,
    connect,
)
from mcptrio._eras.choose import ERAS
from mcptrio.types import CreateMessageResult, ElicitResult, ProgressParams, Root, TextContent
from tests.client.kit import BOTH, STATEFUL, STATELESS, Order, Wire, make_server, scripted

every_date = pytest.mark.parametrize("date", list(ERAS))
both_lives = pytest.mark.parametrize("date", BOTH)


@every_date
async def test_a_client_learns_who_the_server_is(date: str) -> None:
    async with connect(make_server(), protocol=date) as client:
        assert client.protocol_version == date
        assert client.server_info is not None
        assert client.server_info.name == "shop"
        assert client.instructions == "Ask for orders."
        assert client.capabilities.tools is not None
        assert client.transport == "memory"


async def test_a_client_uses_the_newest_protocol_by_default() -> None:
    async with connect(make_server()) as client:
        assert client.protocol_version == STATELESS[-1]


@pytest.mark.parametrize("date", STATEFUL)
async def test_a_client_falls_back_to_the_protocol_of_an_older_server(date: str) -> None:
    async with connect(make_server(protocols=[date])) as client:
        assert client.protocol_version == date
        assert await client.call_tool("count", {"a": 1, "b": 2}, into=int) == 3


@every_date
async def test_tools_are_listed_and_called(date: str) -> None:
    async with connect(make_server(), protocol=date) as client:
        assert "order" in [tool.name for tool in await client.list_tools()]
        result = await client.call_tool("order", {"order_id": "7"})
        assert isinstance(result.content[0], TextContent)
        assert not result.is_error
        assert await client.call_tool("order", {"order_id": "7"}, into=Order) == Order("7", 3)


@both_lives
async def test_a_failed_tool_is_a_result_unless_a_value_is_wanted(date: str) -> None:
    async with connect(make_server(), protocol=date) as client:
        assert (await client.call_tool("fail")).is_error
        with pytest.raises(ToolError, match="no luck"):
            await client.call_tool("fail", into=str)


@both_lives
async def test_lists_come_whole_although_the_server_sends_pages(date: str) -> None:
    async with connect(make_server(page_size=3), protocol=date) as client:
        names = [tool.name for tool in await client.list_tools()]
        assert len(names) == len(set(names)) == 8
        async for tool in client.iter_tools():
            assert tool.name == names[0]
            break


@both_lives
async def test_resources_are_listed_and_read(date: str) -> None:
    async with connect(make_server(), protocol=date) as client:
        assert [one.uri for one in await client.list_resources()] == ["shop://hours"]
        assert [one.uri_template for one in await client.list_resource_templates()] == ["orders://{order_id}"]
        result = await client.read_resource("orders://7")
        assert getattr(result.contents[0], "text", None) == "order 7"


@both_lives
async def test_prompts_are_listed_filled_in_and_completed(date: str) -> None:
    async with connect(make_server(), protocol=date) as client:
        assert [prompt.name for prompt in await client.list_prompts()] == ["complaint"]
        result = await client.get_prompt("complaint", {"order_id": "7"})
        assert getattr(result.messages[0].content, "text", None) == "Complain about 7"
        assert (await client.complete("complaint", "order_id", "1")).values == ("17", "18")


@both_lives
async def test_an_error_of_the_server_is_raised_with_its_code(date: str) -> None:
    async with connect(make_server(), protocol=date) as client:
        with pytest.raises(MCPError) as caught:
            await client.get_prompt("nothing")
        assert caught.value.code == -32602


@both_lives
async def test_a_person_is_asked_and_defaults_are_filled_in(date: str) -> None:
    asked = []

    def elicit(params: Any) -> dict[str, Any]:
        asked.append(params.message)
        return {"count": 2}

    async with connect(make_server(), protocol=date, elicit=elicit) as client:
        result = await client.call_tool("shirt", into=str)
        assert result == "accept Shirt(size='m', count=2)"
        assert asked == ["Which?"]


@both_lives
@pytest.mark.parametrize("answer", [None, "decline", ElicitResult(action="decline")])
async def test_a_person_may_decline(date: str, answer: Any) -> None:
    async def elicit(params: Any) -> Any:
        return answer

    async with connect(make_server(), protocol=date, elicit=elicit) as client:
        assert await client.call_tool("shirt", into=str) == "decline None"


@both_lives
async def test_an_answer_that_does_not_fit_the_form_is_not_sent(date: str) -> None:
    async with connect(make_server(), protocol=date, elicit=lambda _: {"size": "huge"}) as client:
        with pytest.raises(MCPError if date in STATEFUL else LocalProtocolError, match=r"content\.size"):
            await client.call_tool("shirt")


@both_lives
async def test_the_model_is_asked(date: str) -> None:
    content = TextContent(text="hm")
    said = CreateMessageResult(role="assistant", content=content, model="m")
    for answer in ("hm", said):
        async with connect(make_server(), protocol=date, sample=lambda _, answer=answer: answer) as client:
            assert await client.call_tool("think", into=str) == "hm"


@both_lives
async def test_roots_are_accepted_in_every_form(date: str, tmp_path: Path) -> None:
    roots = ["file:///a", Root(uri="file:///b"), tmp_path]
    async with connect(make_server(), protocol=date, roots=roots) as client:
        assert await client.call_tool("places", into=str) == f"file:///a file:///b {tmp_path.as_uri()}"
        await client.set_roots(["file:///c"])
        assert await client.call_tool("places", into=str) == "file:///c"


@both_lives
async def test_a_feature_that_was_not_offered_is_not_asked_for(date: str) -> None:
    async with connect(make_server(), protocol=date) as client:
        try:
            assert (await client.call_tool("shirt")).is_error
        except MCPError as error:
            assert error.code == -32021  # noqa: PT017 - either is right


@both_lives
async def test_progress_and_logs_arrive_in_order(date: str) -> None:
    seen: list[Any] = []
    logs: list[Any] = []

    async def on_progress(progress: ProgressParams) -> None:
        await trio.lowlevel.checkpoint()
        seen.append((progress.progress, progress.total, progress.message))

    async with connect(make_server(), protocol=date, log=lambda m: logs.append(m.data), log_level="info") as client:
        await client.call_tool("steps", on_progress=on_progress)
        await trio.testing.wait_all_tasks_blocked()
    assert seen == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]
    assert logs == ["log 1", "log 2", "log 3"]


@both_lives
async def test_cancelling_the_caller_cancels_the_handler(date: str, autojump_clock: MockClock) -> None:
    """A call without a waiting caller must not go on using the server's resources."""
    server = make_server()
    async with connect(server, protocol=date) as client:
        with trio.move_on_after(1):
            await client.call_tool("wait", {"seconds": 100})
        await client.ping()
        await trio.testing.wait_all_tasks_blocked()
        assert server.calls == ["wait", "cancelled"]  # type: ignore[attr-defined]


@both_lives
async def test_a_call_without_progress_times_out(date: str, autojump_clock: MockClock) -> None:
    server = make_server()
    async with connect(server, protocol=date) as client:
        began = trio.current_time()
        with pytest.raises(RequestTimeout):
            await client.call_tool("wait", {"seconds": 100}, timeout=5)
        assert trio.current_time() - began == pytest.approx(5)
        await client.ping()
        await trio.testing.wait_all_tasks_blocked()
        assert server.calls == ["wait", "cancelled"]  # type: ignore[attr-defined]


@both_lives
async def test_progress_keeps_a_call_alive_but_not_for_ever(date: str, autojump_clock: MockClock) -> None:
    server = make_server()

    @server.tool
    async def crawl(ctx: Context, steps: int) -> str:
        """Report every three seconds."""
        for step in range(steps):
            await trio.sleep(3)
            await ctx.progress(step, steps)
        return "there"

    async with connect(server, protocol=date) as client:
        assert await client.call_tool("crawl", {"steps": 5}, into=str, timeout=5) == "there"
        with pytest.raises(RequestTimeout):
            await client.call_tool("crawl", {"steps": 50}, timeout=5, total_timeout=20)


@both_lives
async def test_closing_from_another_task_ends_what_waits(date: str, autojump_clock: MockClock) -> None:
    outcome: list[str] = []
    async with trio.open_nursery() as nursery, connect(make_server(), protocol=date) as client:

        async def call() -> None:
            try:
                await client.call_tool("wait", {"seconds": 100})
            except ConnectionLost as error:
                outcome.append(str(error))

        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        await client.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert len(outcome) == 1
        assert "closed" in outcome[0]
        with pytest.raises(ConnectionLost):
            await client.list_tools(cached=False)


async def test_an_exception_of_the_block_is_raised_unwrapped() -> None:
    """Users should not have to unpack a group around their own error, nor lose its cause."""
    cause = ValueError("first")
    with pytest.raises(KeyError) as caught:
        async with connect(make_server()):
            raise KeyError("mine") from cause
    assert caught.value.__cause__ is cause


async def test_a_server_that_cannot_start_raises_its_own_error() -> None:
    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    with pytest.raises(RuntimeError, match="no database"):
        async with connect(Server("x", version="1", lifespan=lifespan)):
            pass


async def test_a_client_is_opened_once_and_used_while_open() -> None:
    client = Client(make_server())
    with pytest.raises(LocalProtocolError):
        _ = client.server_info
    async with client:
        pass
    with pytest.raises(LocalProtocolError):
        async with client:
            pass


@pytest.mark.parametrize(
    "target",
    ["", "ftp://x", "just words", 7, [], [1], "http:///mcp", "ws://", "https://x:99999/", "http://x:0", "http://[::1/"],
)
def test_an_unusable_target_is_refused_when_declared(target: Any) -> None:
    with pytest.raises(DeclarationError):
        connect(target)


@pytest.mark.parametrize("settings", [{"timeout": 0}, {"max_rounds": -1}, {"nonsense": 1}, {"protocol": "1999-01-01"}])
def test_wrong_settings_are_refused_when_declared(settings: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError):
        connect(make_server(), **settings)


async def test_any_request_can_be_sent_as_it_is() -> None:
    server = make_server()

    @server.route("shop/hello")
    async def hello(ctx: Any, params: Any) -> dict[str, Any]:
        return {"hello": params["name"]}

    async with connect(server) as client:
        result = await client.request("shop/hello", {"name": "you"})
        assert result["hello"] == "you"


async def test_an_unknown_option_is_refused() -> None:
    async with connect(make_server()) as client:
        with pytest.raises(TypeError, match="tools/call takes no timout; there are answers, "):
            await client.call_tool("count", {"a": 1, "b": 2}, timout=5)  # type: ignore[call-overload]


async def test_a_client_with_a_log_callback_sets_the_level_and_tolerates_a_refusal() -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful(logging={}, tools={})
        request = await wire.take()
        assert (request["method"], request["params"]["level"]) == ("logging/setLevel", "info")
        await wire.refuse(request, -32603)
        await wire.answer(await wire.take("tools/call"), content=[])

    async with connect(scripted(serve), protocol=BOTH[0], log=lambda _: None) as client:
        assert (await client.call_tool("t")).content == ()
