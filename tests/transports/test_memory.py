"""The pipe inside one process."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, assert_checkpoints, wait_all_tasks_blocked

from mcptrio._actors.limits import Limits
from mcptrio._wire.jsonrpc import encode
from mcptrio.errors import ConnectionLost, Overloaded
from mcptrio.transports.memory.server import open_memory_link
from tests.actors.kit import App, Ctx, initialize, open_runtime, request


async def echo(ctx: Ctx, params: Any) -> Any:
    return params


async def forever(ctx: Ctx, params: Any) -> None:
    await trio.sleep_forever()


async def test_a_client_talks_to_a_session(autojump_clock: MockClock) -> None:
    async with open_runtime(App({"echo": echo})) as runtime, open_memory_link(runtime) as end:
        await end.send(encode(initialize()))
        assert b'"protocolVersion"' in await end.receive()
        await end.send(encode(request(1, "echo", a=1)))
        assert msgspec.json.decode(await end.receive())["result"] == {"a": 1}


async def test_leaving_ends_the_session_and_what_runs_in_it(autojump_clock: MockClock) -> None:
    async with open_runtime(App({"forever": forever})) as runtime:
        async with open_memory_link(runtime) as end:
            await end.send(encode(initialize()))
            await end.receive()
            await end.send(encode(request(1, "forever")))
            await wait_all_tasks_blocked()
            (session,) = runtime.supervisor
            assert session.peer.calls == 1
        assert session.handlers.left_behind == 0
        assert runtime.supervisor.sessions == {}


async def test_a_client_learns_that_the_session_ended(autojump_clock: MockClock) -> None:
    async with open_runtime(App()) as runtime, open_memory_link(runtime) as end:
        await wait_all_tasks_blocked()
        await runtime.drain(0)
        with pytest.raises(ConnectionLost):
            await end.receive()
        with pytest.raises(ConnectionLost):
            await end.send(b"{}")


async def test_a_closed_end_says_so(autojump_clock: MockClock) -> None:
    async with open_runtime(App()) as runtime, open_memory_link(runtime) as end:
        end.close()
        end.close()
        with pytest.raises(ConnectionLost):
            await end.send(b"{}")
        with pytest.raises(ConnectionLost):
            await end.receive()


async def test_both_directions_are_bounded(autojump_clock: MockClock) -> None:
    async with open_runtime(App()) as runtime, open_memory_link(runtime, max_frames=4) as end:
        await end.send(encode(initialize()))
        sent = 0
        with trio.move_on_after(1):
            while True:
                await end.send(encode(request(sent, "ping")))
                sent += 1
        assert sent < 1000


async def test_the_callers_own_error_comes_out_as_it_is(autojump_clock: MockClock) -> None:
    async with open_runtime(App()) as runtime:
        with pytest.raises(KeyError):
            async with open_memory_link(runtime):
                raise KeyError("mine")


async def test_there_must_be_room_for_another_session(autojump_clock: MockClock) -> None:
    async with open_runtime(App(), Limits(max_sessions=1)) as runtime, open_memory_link(runtime):
        await wait_all_tasks_blocked()
        with pytest.raises(Overloaded):
            async with open_memory_link(runtime):
                pass


async def test_messages_leave_in_the_order_in_which_they_were_sent(autojump_clock: MockClock) -> None:
    sent: list[int] = []

    async def send(number: int) -> None:
        sent.append(number)
        await end.send(encode(request(number, "echo")))

    async with open_runtime(App({"echo": echo})) as runtime, open_memory_link(runtime, max_frames=100) as end:
        await end.send(encode(initialize()))
        await end.receive()
        async with trio.open_nursery() as nursery:
            for number in range(1, 30):
                nursery.start_soon(send, number)
        assert [msgspec.json.decode(await end.receive())["id"] for _ in sent] == sent


async def test_sending_and_receiving_are_checkpoints(autojump_clock: MockClock) -> None:
    async with open_runtime(App({"echo": echo})) as runtime, open_memory_link(runtime) as end:
        with assert_checkpoints():
            await end.send(encode(initialize()))
        for number in (1, 2):
            await end.send(encode(request(number, "echo")))
        await wait_all_tasks_blocked()
        for _ in range(3):
            with assert_checkpoints():
                await end.receive()


@pytest.mark.parametrize("wanted", [True, False])
async def test_an_answer_is_handed_over_when_the_client_has_nothing_left_to_read(
    wanted: bool, autojump_clock: MockClock
) -> None:
    handed: list[bytes] = []
    received: list[bytes] = []

    def take(answer: bytes) -> bool:
        handed.append(answer)
        return wanted

    async def receive() -> None:
        while True:
            received.append(await end.receive())

    async with open_runtime(App({"echo": echo})) as runtime, open_memory_link(runtime) as end:
        await end.send(encode(initialize()))
        await end.receive()
        end.hand_to(take)
        await end.send(encode(request(1, "echo")))
        await wait_all_tasks_blocked()
        assert handed == []  # there is no reader yet: it would overtake the messages before it
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await wait_all_tasks_blocked()
            await end.send(encode(request(2, "echo")))
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert [msgspec.json.decode(answer)["id"] for answer in handed] == [2]
    assert [msgspec.json.decode(answer)["id"] for answer in received] == ([1] if wanted else [1, 2])
