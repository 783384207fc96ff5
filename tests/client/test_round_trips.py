"""Requests that take several rounds, driven by callbacks or by hand."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from mcptrio import InputRequired, MCPError, RemoteProtocolError, RequestTimeout, connect
from mcptrio.errors import MCPTrioError
from mcptrio.types import ElicitResult
from tests.client.kit import BOTH, Wire, make_server, scripted

NEWEST = BOTH[1]
FORM = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}


def question(message: str = "Sure?") -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": FORM}}


async def finish(wire: Wire, request: dict[str, Any]) -> None:
    await wire.answer(request, resultType="complete", content=[{"type": "text", "text": "done"}])


async def test_the_state_goes_back_byte_for_byte_with_a_new_id() -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        first = await wire.take()
        state = ' {"odd": "ü"} '
        await wire.answer(first, resultType="input_required", inputRequests={"a": question()}, requestState=state)
        second = await wire.take()
        assert second["id"] != first["id"]
        assert second["params"]["requestState"] == state
        assert second["params"]["inputResponses"] == {"a": {"action": "accept", "content": {"ok": True}}}
        assert second["params"]["name"] == "t"
        assert second["params"]["arguments"] == {"x": 1}
        await wire.answer(second, resultType="input_required", inputRequests={"b": question()})
        third = await wire.take()
        assert "requestState" not in third["params"]
        assert set(third["params"]["inputResponses"]) == {"b"}
        await finish(wire, third)

    async with connect(scripted(serve), protocol=NEWEST, elicit=lambda _: {"ok": True}) as client:
        assert (await client.call_tool("t", {"x": 1})).content


async def test_every_request_says_who_sends_it() -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        request = await wire.take()
        meta = request["params"]["_meta"]
        prefix = "io.modelcontextprotocol/"
        assert meta[prefix + "protocolVersion"] == NEWEST
        assert meta[prefix + "clientInfo"]["name"] == "mcptrio"
        assert meta[prefix + "clientCapabilities"] == {"elicitation": {"form": {}}, "roots": {}}
        assert meta[prefix + "logLevel"] == "warning"
        assert meta["mine"] == 1
        await finish(wire, request)

    options: dict[str, Any] = {"elicit": lambda _: None, "elicit_modes": ("form",), "roots": [], "log_level": "warning"}
    async with connect(scripted(serve), protocol=NEWEST, **options) as client:
        await client.call_tool("t", meta={"mine": 1})


async def test_a_result_without_a_type_is_complete() -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        await wire.answer(await wire.take(), content=[])

    async with connect(scripted(serve), protocol=NEWEST) as client:
        assert (await client.call_tool("t")).content == ()


@pytest.mark.parametrize(
    "result",
    [
        {"resultType": "something"},
        {"resultType": 7},
        {"resultType": "input_required"},
        {"resultType": "input_required", "inputRequests": "no"},
        {"resultType": "input_required", "inputRequests": {"a": {"params": {}}}},
        {"resultType": "input_required", "requestState": 7},
        {"resultType": "input_required", "inputRequests": {str(n): question() for n in range(200)}},
    ],
)
async def test_a_result_that_cannot_be_used_is_the_servers_fault(result: dict[str, Any]) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        await wire.answer(await wire.take(), **result)

    async with connect(scripted(serve), protocol=NEWEST, elicit=lambda _: {"ok": True}) as client:
        with pytest.raises(RemoteProtocolError):
            await client.call_tool("t")


async def test_a_list_that_asks_for_input_is_an_error_of_the_server() -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        await wire.answer(await wire.take(), resultType="input_required", inputRequests={"a": question()})

    async with connect(scripted(serve), protocol=NEWEST, elicit=lambda _: {"ok": True}) as client:
        with pytest.raises(RemoteProtocolError):
            await client.list_tools()


async def test_the_number_of_rounds_of_input_is_limited() -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        while True:
            await wire.answer(await wire.take(), resultType="input_required", requestState="again")

    server = scripted(serve)
    async with connect(server, protocol=NEWEST, max_rounds=3) as client:
        with pytest.raises(InputRequired) as caught:
            await client.call_tool("t")
        assert caught.value.state == "again"
        assert len(server.wires[0].received) == 1 + 4


async def test_a_question_that_the_client_did_not_offer_to_answer_is_an_error() -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        await wire.answer(await wire.take(), resultType="input_required", inputRequests={"a": question()})

    async with connect(scripted(serve), protocol=NEWEST) as client:
        with pytest.raises(MCPTrioError, match="not offered"):
            await client.call_tool("t")


async def test_an_error_of_a_callback_ends_the_request_alone() -> None:
    def refuse(_: Any) -> Any:
        raise MCPError(-1, "the person refused")

    async with connect(make_server(), protocol=NEWEST, sample=refuse) as client:
        with pytest.raises(MCPError, match="the person refused"):
            await client.call_tool("think")
        assert await client.call_tool("count", {"a": 1, "b": 1}, into=int) == 2


async def test_rounds_can_be_driven_by_hand() -> None:
    async with connect(make_server(), protocol=NEWEST, elicit=lambda _: None) as client:
        with pytest.raises(InputRequired) as caught:
            await client.call_tool("shirt", max_rounds=0)
        (key,) = caught.value.questions
        assert caught.value.questions[key].method == "elicitation/create"
        answers = {key: ElicitResult(action="accept", content={"size": "l", "count": 4})}
        result = await client.call_tool("shirt", answers=answers, state=caught.value.state, into=str)
        assert result == "accept Shirt(size='l', count=4)"


async def test_the_total_limit_is_one_for_all_rounds_without_the_time_of_the_callbacks(
    autojump_clock: trio.abc.Clock,
) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateless()
        while True:
            request = await wire.take("tools/call")
            await trio.sleep(4)
            await wire.answer(request, resultType="input_required", inputRequests={"a": question()})

    async def person(_: Any) -> dict[str, Any]:
        await trio.sleep(30)
        return {"ok": True}

    async with connect(scripted(serve), protocol=NEWEST, elicit=person) as client:
        began = trio.current_time()
        with pytest.raises(RequestTimeout, match="within 10 s"):
            await client.call_tool("t", timeout=5, total_timeout=10)
        assert trio.current_time() - began == pytest.approx(4 + 30 + 4 + 30 + 2, abs=0.1)


async def test_a_callback_that_never_returns_ends_the_request(autojump_clock: trio.abc.Clock) -> None:
    async def never(_: Any) -> None:
        await trio.sleep_forever()

    async with connect(make_server(), protocol=NEWEST, elicit=never, callback_timeout=50) as client:
        with pytest.raises(RequestTimeout, match="questions were not answered within 50 s"):
            await client.call_tool("shirt")
        assert await client.call_tool("count", {"a": 1, "b": 1}, into=int) == 2
