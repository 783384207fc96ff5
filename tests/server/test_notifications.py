"""Notifications of a server: log messages, progress, changed lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import trio
from trio.testing import MockClock, assert_checkpoints

from mcptrio import Context, Limits, Server, telemetry
from mcptrio._peer.era import Era
from mcptrio.errors import INVALID_PARAMS
from mcptrio.types import LOGGING_LEVELS, LoggingLevel, ServerCapabilities, TextContent, ToolsCapability
from tests.server.talk import Talk, every_era, initialize, open_server, refusal, talking

MESSAGE = "notifications/message"
PROGRESS = "notifications/progress"


# -- logging


def chatty() -> Server:
    server = Server("chatty")

    @server.tool
    async def chat(ctx: Context) -> str:
        for level in LOGGING_LEVELS:
            await ctx.log(level, f"at {level}")
        return "done"

    @server.tool
    async def words(ctx: Context) -> str:
        await ctx.debug("d")
        await ctx.info({"i": [1]}, logger="desk")
        await ctx.warning("w")
        await ctx.error(None)
        return "done"

    return server


async def levels_heard(talk: Talk) -> list[str]:
    talk.notified.clear()
    await talk.text("chat")
    return [params["level"] for params in talk.heard(MESSAGE)]


@every_era
@pytest.mark.parametrize("level", LOGGING_LEVELS)
async def test_a_client_gets_messages_of_its_level_and_above(era: Era, level: LoggingLevel) -> None:
    async with talking(chatty(), era) as talk:
        assert await talk.request("logging/setLevel", level=level) == {}
        assert await levels_heard(talk) == list(LOGGING_LEVELS[LOGGING_LEVELS.index(level) :])


async def test_a_client_that_set_no_level_gets_info_and_above() -> None:
    async with talking(chatty()) as talk:
        assert await levels_heard(talk) == list(LOGGING_LEVELS[LOGGING_LEVELS.index("info") :])


async def test_levels_belong_to_a_session() -> None:
    async with open_server(chatty()) as join, join() as one, join() as other:
        await one.request("logging/setLevel", level="emergency")
        assert await levels_heard(one) == ["emergency"]
        assert "info" in await levels_heard(other)


async def test_an_unknown_level_is_refused() -> None:
    async with talking(chatty()) as talk:
        assert (await refusal(talk, "logging/setLevel", level="loud")).code == INVALID_PARAMS
        assert (await refusal(talk, "logging/setLevel")).code == INVALID_PARAMS


async def test_messages_carry_data_and_logger_before_the_answer() -> None:
    async with talking(chatty()) as talk:
        await talk.request("logging/setLevel", level="debug")
        await talk.text("words")
        assert talk.heard(MESSAGE) == [
            {"level": "debug", "data": "d"},
            {"level": "info", "data": {"i": [1]}, "logger": "desk"},
            {"level": "warning", "data": "w"},
            {"level": "error", "data": None},
        ]
        assert [MESSAGE.encode() in frame for frame in talk.raw[-5:]] == [True, True, True, True, False]


@dataclass
class Step:
    name: str


@pytest.mark.parametrize(
    ("data", "sent"), [(Step("one"), {"name": "one"}), (TextContent(text="x"), {"type": "text", "text": "x"})]
)
async def test_typed_values_can_be_logged(data: Any, sent: Any) -> None:
    server = Server("typed")

    @server.tool
    async def log(ctx: Context) -> str:
        await ctx.info(data)
        return "done"

    async with talking(server) as talk:
        await talk.text("log")
        assert talk.heard(MESSAGE) == [{"level": "info", "data": sent}]


async def test_log_data_without_a_json_form_fails_the_tool_and_not_the_session() -> None:
    server = Server("odd")

    @server.tool
    async def log(ctx: Context) -> str:
        await ctx.info(object())
        return "never"

    async with talking(server) as talk:
        assert await talk.fault("log") == "The tool failed. The server log has the details."
        assert await talk.request("ping") == {}


# -- progress


def working(*steps: tuple[float, float | None, str | None]) -> Server:
    server = Server("working")

    @server.tool
    async def work(ctx: Context) -> str:
        for step in steps:
            await ctx.progress(*step)
        return "done"

    return server


@every_era
@pytest.mark.parametrize("token", [7, "seven", 0])
async def test_progress_goes_to_the_caller_that_gave_a_token(era: Era, token: int | str) -> None:
    async with talking(working((1, 4, "a quarter"), (2.5, None, None)), era) as talk:
        await talk.call("work", _meta={"progressToken": token})
    first, second = talk.heard(PROGRESS)
    message = {"message": "a quarter"} if era.features.progress_message else {}
    assert first == {"progressToken": token, "progress": 1, "total": 4, **message}
    assert second == {"progressToken": token, "progress": 2.5}


@pytest.mark.parametrize(
    "meta", [{}, {"_meta": {}}, {"_meta": {"progressToken": [1]}}, {"_meta": {"progressToken": True}}]
)
async def test_without_a_token_there_is_no_progress(meta: dict[str, Any]) -> None:
    async with talking(working((1, None, None))) as talk:
        await talk.call("work")
        await talk.call("work", _meta=meta)
        assert talk.heard(PROGRESS) == []


async def test_progress_never_goes_back_or_stands_still() -> None:
    """basic/utilities/progress: the value MUST increase; a client may hang up on one that does not."""
    steps = [(value, None, None) for value in (0, 1, 1, 0.5, 2)]
    async with talking(working(*steps)) as talk:
        await talk.call("work", _meta={"progressToken": 1})
        assert [params["progress"] for params in talk.heard(PROGRESS)] == [0, 1, 2]


async def test_progress_beyond_the_rate_is_dropped_and_counted_but_the_last_arrives(autojump_clock: MockClock) -> None:
    server = working(*[(value, None, None) for value in range(2000)])
    events: list[Any] = []
    server.on_event(events.append)
    async with talking(server) as talk:
        await talk.call("work", _meta={"progressToken": 1})
    heard = [params["progress"] for params in talk.heard(PROGRESS)]
    assert heard[:3] == [0, 1, 2]
    assert heard[-1] == 1999
    assert len(heard) < 600
    dropped = [event for event in events if isinstance(event, telemetry.Dropped) and event.kind == "progress_rate"]
    assert len(heard) + len(dropped) >= 2000


@pytest.mark.defect("C21")
@pytest.mark.parametrize("burst", [100, 1])
@pytest.mark.parametrize("meta", [{}, {"_meta": {"progressToken": 1}}], ids=["no token", "token"])
async def test_progress_is_a_checkpoint(meta: dict[str, Any], burst: int) -> None:
    server = Server("steps", limits=Limits(notify_burst=burst, notify_rate=0.001))

    @server.tool
    async def work(ctx: Context) -> str:
        for value in (1, 2, 2, 1, 3):
            with assert_checkpoints():
                await ctx.report_progress(value)
        return "done"

    async with talking(server) as talk:
        assert (await talk.call("work", **meta))["content"][0]["text"] == "done"
        assert len(talk.heard(PROGRESS)) == (min(burst + 1, 3) if meta else 0)  # the last one held back is sent


async def test_a_background_task_cannot_notify_about_an_ended_call(autojump_clock: MockClock) -> None:
    server = Server("late")

    @server.tool
    async def begin(ctx: Context) -> str:
        async def later() -> None:
            await trio.sleep(1)
            await ctx.progress(1)
            await ctx.info("late")

        ctx.session.start_soon(later)
        return "begun"

    async with talking(server) as talk:
        await talk.call("begin", _meta={"progressToken": 1})
        await trio.sleep(2)
        assert (talk.heard(PROGRESS), talk.heard(MESSAGE)) == ([], [])
        assert await talk.request("ping") == {}


# -- lists that change


async def _nothing() -> str:
    return ""


CHANGES = {
    "tools": (lambda s: s.add_tool(_nothing, name="new"), lambda s: s.remove_tool("new")),
    "prompts": (lambda s: s.add_prompt(_nothing, name="new"), lambda s: s.remove_prompt("new")),
    "resources": (lambda s: s.add_resource("new://", _nothing, name="new"), lambda s: s.remove_resource("new://")),
    "templates": (lambda s: s.add_resource("new://{x}", _of_x), lambda s: s.remove_resource("new://{x}")),
}


async def _of_x(x: str) -> str:
    return x


def full() -> Server:
    server = Server("full")
    server.add_tool(_nothing, name="old")
    server.add_prompt(_nothing, name="old")
    server.add_resource("old://", _nothing)
    return server


@every_era
@pytest.mark.parametrize("kind", CHANGES)
async def test_every_client_is_notified_of_a_changed_list(era: Era, kind: str) -> None:
    server = full()
    add, remove = CHANGES[kind]
    listed = "resources" if kind == "templates" else kind
    method = f"notifications/{listed}/list_changed"
    async with open_server(server) as join, join(era) as one, join(era) as other:
        add(server)
        await one.settled()
        assert (len(one.heard(method)), len(other.heard(method))) == (1, 1)
        names = str(await one.request("resources/templates/list" if kind == "templates" else f"{listed}/list"))
        assert "new" in names
        await trio.to_thread.run_sync(remove, server)
        await one.settled()
        assert len(one.heard(method)) == 2
        assert {name for name, _ in one.notified} == {method}


@every_era
@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
async def test_a_change_that_the_server_cannot_see_can_be_announced(era: Era, kind: str) -> None:
    server = full()
    method = f"notifications/{kind}/list_changed"
    async with open_server(server) as join, join(era) as one, join(era) as other:
        notify = getattr(server, f"notify_{kind}_changed")
        notify()
        await trio.to_thread.run_sync(notify)
        await one.settled()
        assert (len(one.heard(method)), len(other.heard(method))) == (2, 2)
    notify()  # not served: nothing happens


@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
async def test_a_changed_list_can_be_announced_to_one_client_alone(kind: str) -> None:
    server = full()
    method = f"notifications/{kind}/list_changed"

    @server.tool
    async def whisper(ctx: Context) -> str:
        getattr(ctx.session, f"notify_{kind}_changed")()
        return "told"

    async with open_server(server) as join, join() as one, join() as other:
        await one.text("whisper")
        await one.settled()
        assert (len(one.heard(method)), len(other.heard(method))) == (1, 0)


async def test_a_list_that_depends_on_the_caller_can_be_announced() -> None:
    shown: list[str] = []
    server = Server("visible")
    server.add_tool(_nothing, name="hidden", visible=lambda ctx: bool(shown))
    async with talking(server) as talk:
        assert (await talk.request("tools/list"))["tools"] == []
        shown.append("yes")
        server.notify_tools_changed()
        await talk.settled()
        assert talk.heard("notifications/tools/list_changed") == [{}]
        assert len((await talk.request("tools/list"))["tools"]) == 1


async def test_nothing_is_announced_before_a_session_is_open() -> None:
    server = full()
    async with open_server(server) as join, join(opened=False) as talk:
        server.add_tool(_nothing, name="early")
        await talk.settled()
        assert talk.raw == []
        await initialize(talk)
        server.add_tool(_nothing, name="late")
        await talk.settled()
        assert [name for name, _ in talk.notified] == ["notifications/tools/list_changed"]


async def test_a_list_that_was_not_offered_is_not_announced() -> None:
    """server/tools: only servers that declared `listChanged` send it, and what was declared cannot change."""
    server = Server("empty")
    server.add_tool(_nothing, name="old")

    @server.session
    async def narrow(session: Any) -> Any:
        session.capabilities = ServerCapabilities(tools=ToolsCapability())
        yield None

    async with talking(server) as talk:
        server.add_tool(_nothing, name="new")
        server.add_prompt(_nothing, name="new")
        await talk.settled()
        assert talk.notified == []
