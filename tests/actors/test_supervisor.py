"""Sessions side by side: one that fails, one that idles, too many of them, and the end of all."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import trio
from attrs import define
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio import telemetry
from mcptrio._actors.limits import Limits
from mcptrio._actors.runtime import Runtime
from mcptrio._actors.session_ids import new_session_id
from mcptrio._peer.messages import Cause
from mcptrio.errors import ConnectionLost, Overloaded

from .kit import App, Ctx, ListLink, Talk, open_runtime, request


async def slow(ctx: Ctx, params: Any) -> dict[str, Any]:
    await trio.sleep(params.get("seconds", 3600))
    return {}


async def new_talk(runtime: Runtime, app: App) -> Talk:
    link = ListLink()
    talk = Talk(runtime.new_session(link, transport="test"), link, app)
    await talk.open()
    return talk


@define(eq=False)
class BrokenLink(ListLink):
    broken: bool = False

    def post(self, data: bytes, *, final: bool = False, status: int = 200) -> None:
        if self.broken:
            raise RuntimeError("a defect in the link")
        super().post(data, final=final, status=status)


async def test_a_session_that_crashes_leaves_the_others_running(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    app = App({"slow": slow})
    async with open_runtime(app) as runtime:
        healthy = await new_talk(runtime, app)
        link = BrokenLink()
        ill = Talk(runtime.new_session(link, transport="test"), link, app)
        await ill.open()
        await ill.deliver(request(1, "slow"))
        await wait_all_tasks_blocked()
        link.broken = True
        waiting: list[str] = []

        async def ask() -> None:
            with suppress(ConnectionLost):
                await ill.session.asks.ask("ping", {})
            waiting.append("told")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        assert ill.session.ended is Cause.CRASH
        assert waiting == ["told"]
        assert ill.session.handlers.left_behind == 0
        assert runtime.supervisor.find(ill.session.id) is None
        assert app.count(telemetry.GuardCaught) == 1
        assert "a defect in the link" in caplog.text
        await healthy.deliver(request(1, "ping"))
        assert len(await healthy.settle()) == 1


async def test_an_idle_session_is_ended(autojump_clock: MockClock) -> None:
    app = App({"slow": slow})
    async with open_runtime(app, Limits(idle_timeout=100)) as runtime:
        idle, busy, used = [await new_talk(runtime, app) for _ in range(3)]
        await busy.deliver(request(1, "slow", seconds=50))
        await trio.sleep(80)
        await used.deliver(request(1, "ping"))
        await trio.sleep(30)
        assert idle.session.ended is Cause.IDLE
        assert busy.session.ended is None
        assert used.session.ended is None
        assert len(runtime.supervisor.sessions) == 2


async def test_a_session_with_an_open_stream_is_not_idle(autojump_clock: MockClock) -> None:
    app = App()
    async with open_runtime(app, Limits(idle_timeout=100)) as runtime:
        session = runtime.new_session(link := ListLink(resting=False), transport="test")
        await trio.sleep(500)
        assert session.ended is None
        link.resting = True
        await trio.sleep(102)
        assert session.ended is Cause.IDLE


async def test_there_is_a_cap_on_sessions(autojump_clock: MockClock) -> None:
    app = App()
    async with open_runtime(app, Limits(max_sessions=2)) as runtime:
        first = runtime.new_session(ListLink(), transport="test")
        runtime.new_session(ListLink(), transport="test")
        with pytest.raises(Overloaded):
            runtime.new_session(ListLink(), transport="test")
        assert app.count(telemetry.LimitHit) == 1
        first.close_nowait(Cause.SESSION_END)
        await wait_all_tasks_blocked()
        runtime.new_session(ListLink(), transport="test")


async def test_draining_lets_calls_finish_and_answers_the_rest(autojump_clock: MockClock) -> None:
    app = App({"slow": slow})
    async with open_runtime(app) as runtime:
        one, two, quiet = [await new_talk(runtime, app) for _ in range(3)]
        await one.deliver(request(1, "slow", seconds=3))
        await two.deliver(request(2, "slow", seconds=3600))
        await wait_all_tasks_blocked()
        began = trio.current_time()
        await runtime.drain(10)
        assert trio.current_time() - began == pytest.approx(10)
        assert one.link.sent == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
        (answer,) = two.link.sent
        assert (answer["id"], answer["error"]["message"]) == (2, Cause.DRAIN.value)
        assert {t.session.ended for t in (one, two, quiet)} == {Cause.DRAIN}
        assert all(t.link.ended for t in (one, two, quiet))
        assert runtime.supervisor.sessions == {}
        with pytest.raises(Overloaded):
            runtime.new_session(ListLink(), transport="test")


async def test_draining_takes_no_longer_than_what_runs(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    app = App({"slow": slow})
    async with open_runtime(app) as runtime:
        talk = await new_talk(runtime, app)
        await talk.deliver(request(1, "slow", seconds=3))
        began = trio.current_time()
        await runtime.drain(25)
        assert trio.current_time() - began == pytest.approx(3)
        assert "draining: 1 session, up to 25 s" in caplog.text


async def test_draining_ends_in_time_although_a_handler_ignores_it(autojump_clock: MockClock) -> None:
    async def shielded(ctx: Ctx, params: Any) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(100)

    app = App({"shielded": shielded}, limits=Limits(end_grace=0.1))
    async with open_runtime(app) as runtime:
        talk = await new_talk(runtime, app)
        await talk.deliver(request(1, "shielded"))
        await wait_all_tasks_blocked()
        began = trio.current_time()
        await runtime.drain(5)
        assert trio.current_time() - began <= 6
        assert [a["id"] for a in talk.link.sent] == [1]
        assert talk.link.ended
        assert talk.session.handlers.left_behind == 1


async def test_leaving_the_runtime_ends_what_is_left(autojump_clock: MockClock) -> None:
    app = App({"slow": slow})
    async with open_runtime(app) as runtime:
        talk = await new_talk(runtime, app)
        await talk.deliver(request(1, "slow"))
        await wait_all_tasks_blocked()
        assert runtime.ready
    assert not runtime.ready
    assert talk.session.ended is not None
    assert talk.session.handlers.left_behind == 0
    assert app.events[-2].outcome == "cancelled"


def test_session_ids_are_long_and_visible_ascii() -> None:
    ids = {new_session_id(b"secret") for _ in range(100)}
    assert len(ids) == 100
    assert all(len(i) >= 32 and all("!" <= c <= "~" for c in i) for i in ids)


@pytest.mark.defect("E27")
async def test_a_sleeping_session_that_can_get_no_task_ends_in_place() -> None:
    """Its connection may end after the supervisor's last task: Trio chooses the order."""
    app = App()
    async with open_runtime(app) as runtime:
        session = runtime.new_session(ListLink(), transport="test")
        ended: list[Cause | None] = []
        session.on_end.append(lambda: ended.append(session.ended))
        async with trio.open_nursery() as closed:
            pass
        runtime.supervisor._nursery = closed
        session.close_nowait(Cause.DISCONNECT)
        assert ended == [Cause.DISCONNECT]
        assert runtime.supervisor.sessions == {}
        assert app.count(telemetry.SessionClosed) == 1
