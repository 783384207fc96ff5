"""Timeouts of a request: they are paused while the host answers the server, and only then."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from mcptrio import MCPError, Overloaded, Reconnect, RequestTimeout, connect
from mcptrio.transports.http_client import AuthRequest, AuthResponse
from mcptrio.types import ElicitParams
from tests.client.kit import BOTH, STATEFUL, Wire, make_server, scripted
from tests.transports.scripted_http import URL, Answer, Asked, Web, result, stateful

OLD = BOTH[0]
FORM = {"type": "object", "properties": {}}


async def ask_the_person(wire: Wire, number: int = 1) -> dict[str, Any]:
    params = {"message": f"question {number}", "requestedSchema": FORM}
    await wire.say(id=f"q{number}", method="elicitation/create", params=params)
    return await wire.take()


async def slowly(params: ElicitParams) -> dict[str, Any]:
    await trio.sleep(60)
    return {}


@pytest.mark.parametrize("date", [*STATEFUL[-2:], BOTH[1]])
async def test_the_timeout_of_a_call_is_paused_while_the_user_is_asked(
    autojump_clock: trio.abc.Clock, date: str
) -> None:
    async with connect(make_server(), protocol=date, elicit=slowly, total_timeout=20) as client:
        assert "accept" in await client.call_tool("shirt", into=str, timeout=5)
    assert trio.current_time() >= 60


@pytest.mark.parametrize(("timeout", "total"), [(5, 900), (5, 5)])
async def test_a_server_that_hangs_after_the_answer_has_the_time_that_was_left(
    autojump_clock: trio.abc.Clock, timeout: float, total: float
) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        await wire.take("tools/call")
        await trio.sleep(2)
        await ask_the_person(wire)
        assert (await wire.take())["method"] == "notifications/cancelled"

    async with connect(scripted(serve), protocol=OLD, elicit=slowly) as client:
        began = trio.current_time()
        with pytest.raises(RequestTimeout):
            await client.call_tool("t", timeout=timeout, total_timeout=total)
        assert trio.current_time() - began == pytest.approx(2 + 60 + 3, abs=0.1)


async def test_progress_while_a_person_thinks_gives_the_whole_time_again(autojump_clock: trio.abc.Clock) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        call = await wire.take("tools/call")
        await trio.sleep(4)
        await wire.say(id="q", method="elicitation/create", params={"message": "?", "requestedSchema": FORM})
        await trio.sleep(30)
        token = call["params"]["_meta"]["progressToken"]
        await wire.say(method="notifications/progress", params={"progressToken": token, "progress": 1})
        await wire.take()
        await trio.sleep(4.5)
        await wire.answer(call, content=[])

    async with connect(scripted(serve), protocol=OLD, elicit=slowly) as client:
        assert not (await client.call_tool("t", timeout=5)).is_error


async def test_progress_does_not_lift_the_total_limit(autojump_clock: trio.abc.Clock) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        call = await wire.take("tools/call")
        await ask_the_person(wire)
        token = call["params"]["_meta"]["progressToken"]
        for step in range(1, 100):
            await wire.say(method="notifications/progress", params={"progressToken": token, "progress": step})
            await trio.sleep(4)

    async with connect(scripted(serve), protocol=OLD, elicit=slowly) as client:
        began = trio.current_time()
        with pytest.raises(RequestTimeout):
            await client.call_tool("t", timeout=5, total_timeout=20)
        assert trio.current_time() - began == pytest.approx(60 + 20, abs=0.1)


async def test_timeouts_of_earlier_requests_are_paused_until_all_questions_are_answered(
    autojump_clock: trio.abc.Clock,
) -> None:
    ended: dict[str, float] = {}

    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        first, second = await wire.take(), await wire.take()
        assert {first["params"]["name"], second["params"]["name"]} == {"answered", "forgotten"}
        await wire.say(id=1, method="elicitation/create", params={"message": "a", "requestedSchema": FORM})
        await trio.sleep(30)
        await wire.say(id=2, method="elicitation/create", params={"message": "b", "requestedSchema": FORM})
        await wire.take()
        await wire.take()
        answered = first if first["params"]["name"] == "answered" else second
        await trio.sleep(1)
        await wire.answer(answered, content=[])
        await wire.take("notifications/cancelled")

    async def call(name: str, client: Any) -> None:
        try:
            await client.call_tool(name, timeout=5)
        finally:
            ended[name] = trio.current_time()

    async def fail(name: str, client: Any) -> None:
        with pytest.raises(RequestTimeout):
            await call(name, client)

    async with connect(scripted(serve), protocol=OLD, elicit=slowly) as client, trio.open_nursery() as nursery:
        began = trio.current_time()
        nursery.start_soon(call, "answered", client)
        nursery.start_soon(fail, "forgotten", client)
    assert ended["answered"] - began == pytest.approx(90 + 1, abs=0.1)
    assert ended["forgotten"] - began == pytest.approx(90 + 5, abs=0.1)


async def test_a_request_of_a_callback_has_the_usual_timeout(autojump_clock: trio.abc.Clock) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        call = await wire.take("tools/call")
        await wire.say(id=1, method="elicitation/create", params={"message": "a", "requestedSchema": FORM})
        await wire.take("tools/list")  # and no answer
        while (message := await wire.take()).get("id") != 1:
            pass
        await wire.answer(call, content=[{"type": "text", "text": message["result"]["action"]}])

    async def curious(params: ElicitParams) -> str:
        with pytest.raises(RequestTimeout):
            await client.list_tools()
        return "decline"

    async with connect(scripted(serve), protocol=OLD, elicit=curious, timeout=7) as client:
        began = trio.current_time()
        assert await client.call_tool("t", into=str) == "decline"
        assert trio.current_time() - began == pytest.approx(7, abs=0.1)


async def test_a_callback_that_never_returns_is_ended(autojump_clock: trio.abc.Clock) -> None:
    async def never(params: ElicitParams) -> None:
        await trio.sleep_forever()

    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        await wire.take("tools/call")
        answer = await ask_the_person(wire)
        assert "error" in answer
        await wire.take("notifications/cancelled")

    async with connect(scripted(serve), protocol=OLD, elicit=never, callback_timeout=100) as client:
        began = trio.current_time()
        with pytest.raises(RequestTimeout):
            await client.call_tool("t", timeout=5)
        assert trio.current_time() - began == pytest.approx(105, abs=1)


async def test_a_callback_that_fails_lets_the_clocks_run_again(autojump_clock: trio.abc.Clock) -> None:
    async def angry(params: ElicitParams) -> None:
        await trio.sleep(60)
        raise MCPError(-1, "go away")

    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        await wire.take("tools/call")
        assert (await ask_the_person(wire))["error"]["code"] == -1
        await wire.take("notifications/cancelled")

    async with connect(scripted(serve), protocol=OLD, elicit=angry) as client:
        began = trio.current_time()
        with pytest.raises(RequestTimeout):
            await client.call_tool("t", timeout=5)
        assert trio.current_time() - began == pytest.approx(65, abs=0.1)


async def test_a_handler_of_the_users_own_is_a_callback_like_the_others(autojump_clock: trio.abc.Clock) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        call = await wire.take("tools/call")
        await wire.say(id=1, method="acme/weigh", params={})
        text = str((await wire.take())["result"]["kilos"])
        await wire.answer(call, content=[{"type": "text", "text": text}])

    async def scale(ctx: Any, params: dict[str, Any]) -> dict[str, Any]:
        await trio.sleep(60)
        return {"kilos": 3}

    async with connect(scripted(serve), protocol=OLD, routes={"acme/weigh": scale}) as client:
        assert await client.call_tool("t", into=str, timeout=5) == "3"


async def test_an_answer_that_comes_while_the_clocks_stand_still_is_the_answer(autojump_clock: trio.abc.Clock) -> None:
    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        call = await wire.take("tools/call")
        await wire.say(id="q", method="elicitation/create", params={"message": "?", "requestedSchema": FORM})
        await trio.sleep(10)
        await wire.answer(call, content=[])
        await wire.answer(await wire.take("tools/call"), content=[])
        await wire.take()

    async with connect(scripted(serve), protocol=OLD, elicit=slowly) as client:
        began = trio.current_time()
        for _ in range(2):
            await client.call_tool("t", timeout=5)
        assert trio.current_time() - began == pytest.approx(10, abs=0.1)


async def test_a_request_that_times_out_is_cancelled_at_the_server(autojump_clock: trio.abc.Clock) -> None:
    received: list[dict[str, Any]] = []

    async def serve(wire: Wire) -> None:
        await wire.open_stateful()
        call = await wire.take("tools/call")
        received.append((await wire.take("notifications/cancelled"))["params"])
        await wire.answer(call, content=[])  # too late
        await wire.answer(await wire.take("tools/call"), content=[])

    async with connect(scripted(serve), protocol=OLD) as client:
        with pytest.raises(RequestTimeout, match="tools/call was not answered within 5 s"):
            await client.call_tool("t", timeout=5)
        assert not (await client.call_tool("t")).is_error
    assert [one["reason"] for one in received] == ["timeout"]


def busy(times: int) -> Web:
    """A server that answers the first requests with 503."""
    left = times

    def answer(asked: Asked) -> Answer:
        nonlocal left
        left -= 1
        return Answer(503, b"later", {"retry-after": "3"}) if left >= 0 else Answer(200, result(asked, tools=[]))

    return Web(stateful(OLD, answer))


@pytest.mark.parametrize("times", [1, 2])
async def test_a_busy_server_is_asked_again_when_it_says(times: int, autojump_clock: trio.abc.Clock) -> None:
    web = busy(times)
    async with connect(URL, http_client=web.client(), protocol=OLD, reconnect=Reconnect(first=0.01)) as client:
        began = trio.current_time()
        await client.list_tools()
        assert trio.current_time() - began == pytest.approx(3 * times, abs=0.2)
    assert len(web.of("tools/list")) == times + 1


async def test_a_busy_server_is_asked_again_only_while_there_is_time(autojump_clock: trio.abc.Clock) -> None:
    web = busy(100)
    async with connect(URL, http_client=web.client(), protocol=OLD, reconnect=Reconnect(first=0.01)) as client:
        began = trio.current_time()
        with pytest.raises(RequestTimeout, match="tools/list was not answered within 4 s"):
            await client.request("tools/list", total_timeout=4)
        assert trio.current_time() - began == pytest.approx(4, abs=0.01)
        began = trio.current_time()
        with pytest.raises(Overloaded):
            await client.request("tools/list")
        assert trio.current_time() - began == pytest.approx(8 * 3, abs=1)
    assert len(web.of("tools/list")) == 2 + 9


async def test_a_busy_server_is_not_asked_twice_to_do_something(autojump_clock: trio.abc.Clock) -> None:
    web = Web(stateful(OLD, lambda _: Answer(503, b"later", {"retry-after": "3"})))
    async with connect(URL, http_client=web.client(), protocol=OLD) as client:
        for how in ({}, {"on_progress": print}):
            with pytest.raises(Overloaded):
                await client.call_tool("t", **how)
    assert len(web.of("tools/call")) == 2


# -- signing in


class SlowPerson:
    """An authorization whose user signs in slowly."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.signed_in = False

    async def authorize(self, request: AuthRequest) -> dict[str, str]:
        await trio.lowlevel.checkpoint()
        return {"Authorization": "Bearer yes"} if self.signed_in else {}

    async def on_response(self, response: AuthResponse) -> bool:
        if response.status == 401:
            await trio.sleep(self.seconds)
            self.signed_in = True
        return response.status == 401


def protected(asked: Asked) -> Any:
    """A server that refuses every request without a token."""
    if "authorization" not in asked.headers:
        return Answer(401)
    return stateful(OLD, lambda one: Answer(200, result(one, tools=[])))(asked)


async def test_signing_in_may_take_longer_than_the_server_may(autojump_clock: trio.abc.Clock) -> None:
    options: dict[str, Any] = {"http_client": Web(protected).client(), "protocol": OLD, "open_timeout": 5, "timeout": 5}
    async with connect(URL, auth=SlowPerson(200), **options) as client:
        assert await client.list_tools() == ()
    assert trio.current_time() >= 200


async def test_a_sign_in_that_is_never_completed_times_out(autojump_clock: trio.abc.Clock) -> None:
    options: dict[str, Any] = {"http_client": Web(protected).client(), "protocol": OLD, "callback_timeout": 100}
    with pytest.raises(RequestTimeout, match="the sign-in was not completed within 100 s"):
        async with connect(URL, auth=SlowPerson(10_000), **options):
            pass
