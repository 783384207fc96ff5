"""Sessions and lifespans: what a server keeps for one client, and for all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from mcptrio import Context, Server, SessionHandle, SessionRefused
from mcptrio._actors.limits import Limits
from mcptrio._peer.era import Era
from mcptrio._peer.messages import Cause
from mcptrio.errors import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, ConnectionLost, DeclarationError
from mcptrio.types import Icon, PromptsCapability, ServerCapabilities, ToolsCapability
from tests.server.talk import NEWEST, every_era, initialize, open_server, refusal, talking
from tests.stateless.kit import posting


async def _nothing() -> str:
    return ""


@every_era
async def test_a_server_says_who_it_is_in_the_words_of_the_date(era: Era) -> None:
    server = Server(
        "shop",
        "2.1",
        title="The shop",
        description="Sells things.",
        website_url="https://example.org",
        icons=[Icon(src="https://example.org/i.png")],
        instructions="Be kind.",
        experimental={"magic": {}},
    )
    server.add_tool(_nothing)
    async with talking(server, era) as talk:
        info = talk.opening["serverInfo"]
        assert (info["name"], info["version"]) == ("shop", "2.1")
        assert set(info) == era.shapes["implementation"]
        assert talk.opening["instructions"] == "Be kind."
        assert talk.opening["capabilities"] == {
            "experimental": {"magic": {}},
            "logging": {},
            "tools": {"listChanged": True},
        }
        for method in ("prompts/list", "resources/list", "resources/templates/list"):
            assert (await refusal(talk, method)).code == METHOD_NOT_FOUND


async def test_only_the_chosen_protocol_versions_are_spoken() -> None:
    server = Server("picky", protocols=[NEWEST.date])
    async with open_server(server) as join, join(opened=False) as talk:
        params = {"protocolVersion": "1999-01-01", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        assert (await talk.request("initialize", **params))["protocolVersion"] == NEWEST.date
    with pytest.raises(DeclarationError, match=r"unknown protocol version 1999-01-01; known are .*" + NEWEST.date):
        Server("odd", protocols=["1999-01-01"])


def counting(seen: list[Any]) -> Server:
    server = Server("counting")

    @server.session
    async def state(session: SessionHandle) -> AsyncIterator[dict[str, int]]:
        assert session.client_info is not None
        seen.append(("begins", session.protocol_version, session.client_info.name, session.ended))
        count = {"n": 0}
        try:
            yield count
        finally:
            seen.append(("ends", session.ended, count["n"]))

    @server.tool
    async def more(ctx: Context) -> str:
        ctx.state["n"] += 1
        return str(ctx.state["n"])

    return server


@every_era
async def test_each_session_has_its_own_state_and_learns_why_it_ended(era: Era) -> None:
    seen: list[Any] = []
    async with open_server(counting(seen)) as join:
        async with join(era) as one, join(era) as other:
            assert [await one.text("more"), await one.text("more"), await other.text("more")] == ["1", "2", "1"]
            assert seen == [("begins", era.date, "talk", None)] * 2
    ended = sorted(entry[2] for entry in seen[2:])
    assert ended == [1, 2]
    assert {entry[:2] for entry in seen[2:]} == {("ends", Cause.DISCONNECT.value)}


async def test_requests_wait_for_a_session_function_that_takes_its_time(autojump_clock: MockClock) -> None:
    server = Server("slow")

    @server.session
    async def state(session: SessionHandle) -> AsyncIterator[str]:
        await trio.sleep(3)
        yield "ready"

    @server.tool
    async def read(ctx: Context) -> str:
        return str(ctx.state)

    async with open_server(server) as join, join(opened=False) as talk, trio.open_nursery() as nursery:
        nursery.start_soon(initialize, talk)
        await talk.settled()
        assert await talk.text("read") == "ready"


async def test_a_session_function_may_refuse_and_the_client_may_try_again() -> None:
    server = Server("strict")
    tries: list[int] = []

    @server.session
    async def state(session: SessionHandle) -> AsyncIterator[None]:
        tries.append(1)
        if len(tries) == 1:
            raise SessionRefused("come back with a name")
        yield

    server.add_tool(_nothing, name="x")
    async with open_server(server) as join, join(opened=False) as talk:
        params = {"protocolVersion": NEWEST.date, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        error = await refusal(talk, "initialize", **params)
        assert (error.code, error.message) == (INVALID_REQUEST, "come back with a name")
        assert (await refusal(talk, "tools/list")).code == INVALID_REQUEST
        await initialize(talk)
        assert (await talk.request("tools/list"))["tools"]


async def test_a_session_function_that_crashes_ends_only_that_session() -> None:
    server = Server("shaky")

    @server.session
    async def state(session: SessionHandle) -> AsyncIterator[None]:
        if session.client_capabilities.roots:
            raise ValueError("canary")
        yield

    server.add_tool(_nothing, name="x")
    async with open_server(server) as join, join() as well, join(opened=False) as ill:
        params = {
            "protocolVersion": NEWEST.date,
            "capabilities": {"roots": {}},
            "clientInfo": {"name": "x", "version": "1"},
        }
        assert (await refusal(ill, "initialize", **params)).code == INTERNAL_ERROR
        assert not any(b"canary" in frame for frame in ill.raw)
        assert await well.text("x") == ""


async def test_a_session_function_that_fails_at_the_end_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("shaky")

    @server.session
    async def state(session: SessionHandle) -> AsyncIterator[None]:
        yield
        raise ValueError("at the end")

    async with open_server(server) as join:
        async with join():
            pass
        async with join() as talk:
            assert await talk.request("ping") == {}
    assert any("session function failed" in record.message for record in caplog.records)


async def test_a_session_function_may_offer_less() -> None:
    server = Server("narrow")
    server.add_tool(_nothing, name="x")
    server.add_prompt(_nothing, name="x")

    @server.session
    async def state(session: SessionHandle) -> AsyncIterator[None]:
        if not session.client_capabilities.roots:
            assert session.capabilities.prompts == PromptsCapability(list_changed=True)
            session.capabilities = ServerCapabilities(tools=ToolsCapability())
        yield

    async with open_server(server) as join, join() as less, join(capabilities={"roots": {}}) as more:
        assert less.opening["capabilities"] == {"tools": {}}
        assert set(more.opening["capabilities"]) == {"logging", "tools", "prompts"}
        assert (await refusal(less, "prompts/list")).code == METHOD_NOT_FOUND
        assert (await refusal(less, "logging/setLevel", level="info")).code == METHOD_NOT_FOUND
        assert (await less.request("tools/list"))["tools"]
        assert (await more.request("prompts/list"))["prompts"]


async def test_a_context_manager_may_be_the_session_function() -> None:
    server = Server("manager")

    @server.session
    @asynccontextmanager
    async def state(session: SessionHandle) -> AsyncIterator[str]:
        yield session.id

    @server.tool
    async def same(ctx: Context) -> bool:
        return bool(ctx.state == ctx.session.id)

    async with talking(server) as talk:
        assert await talk.text("same") == "true"


async def test_background_work_of_a_session_ends_with_it() -> None:
    ended = trio.Event()
    server = Server("busy")

    @server.session
    async def state(session: SessionHandle) -> AsyncIterator[None]:
        async def work() -> None:
            try:
                await trio.sleep_forever()
            finally:
                ended.set()

        async def fail() -> None:
            raise ValueError("logged, no more")

        session.start_soon(work)
        session.start_soon(fail)
        yield

    async with open_server(server) as join:
        async with join() as talk:
            await talk.settled()
            assert not ended.is_set()
            assert await talk.request("ping") == {}
        assert ended.is_set()


async def test_nothing_can_be_started_in_the_background_of_a_session_that_is_over() -> None:
    """Neither while it is torn down nor later; the error says why."""
    received: list[str] = []
    handles: list[SessionHandle] = []
    server = Server("over")

    def start(session: SessionHandle) -> None:
        with pytest.raises(ConnectionLost) as caught:
            session.start_soon(trio.sleep_forever)
        received.append(str(caught.value))

    @server.session
    async def state(session: SessionHandle) -> AsyncIterator[None]:
        handles.append(session)
        yield
        start(session)

    async with open_server(server) as join:
        async with join() as talk:
            await talk.settled()
        start(handles[0])
    assert received == ["nothing can be started for a session that is over: the peer hung up"] * 2


async def test_nothing_can_be_started_in_the_background_of_a_request_that_was_answered() -> None:
    handles: list[SessionHandle] = []
    server = Server("over")

    @server.tool
    async def keep(ctx: Context) -> str:
        handles.append(ctx.session)
        ctx.session.start_soon(trio.sleep_forever)
        return "kept"

    async with posting(server) as poster:
        reply = await poster.post("tools/call", {"name": "keep", "arguments": {}})
        assert reply.status == 200
        with pytest.raises(ConnectionLost, match="a request that is over"):
            handles[0].start_soon(trio.sleep_forever)


async def test_the_lifespan_is_entered_once_and_left_after_the_sessions() -> None:
    order: list[str] = []

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[dict[str, str]]:
        order.append(f"open {server.info.name}")
        try:
            yield {"db": "connected"}
        finally:
            order.append("closed")

    server = Server("alive", lifespan=lifespan)

    @server.session
    async def state(session: SessionHandle) -> AsyncIterator[None]:
        yield
        order.append("session over")

    @server.tool
    async def look(ctx: Context) -> str:
        return str(ctx.lifespan["db"])

    async with open_server(server) as join:
        async with join() as one, join() as other:
            assert [await one.text("look"), await other.text("look")] == ["connected", "connected"]
    assert order == ["open alive", "session over", "session over", "closed"]


async def generated(owner: object) -> AsyncIterator[str]:
    yield "value"


class Managed:
    """An async context manager that is not made with `asynccontextmanager`."""

    def __init__(self, owner: object) -> None: ...

    async def __aenter__(self) -> str:
        return "value"

    async def __aexit__(self, *error: object) -> None: ...


FORMS: list[Any] = [generated, asynccontextmanager(generated), Managed, partial(generated)]


@pytest.mark.defect("U8")
@pytest.mark.parametrize("form", FORMS)
async def test_lifespan_and_session_functions_have_either_form(form: Any) -> None:
    server = Server("forms", lifespan=form)
    server.session(form)

    @server.tool
    async def look(ctx: Context[str, str]) -> str:
        return f"{ctx.lifespan} {ctx.state}"

    async with talking(server) as talk:
        assert await talk.text("look") == "value value"
    async with posting(server) as poster:
        reply = await poster.post("tools/call", {"name": "look", "arguments": {}})
        assert reply.result["content"] == [{"type": "text", "text": "value value"}]


def plain_generator(owner: object) -> Iterator[str]:
    yield "value"


async def coroutine(owner: object) -> str:
    return "value"


@pytest.mark.defect("U8")
@pytest.mark.parametrize("form", [plain_generator, contextmanager(plain_generator), coroutine, "value"])
def test_a_lifespan_or_session_function_of_another_kind_is_refused(form: Any) -> None:
    with pytest.raises(DeclarationError, match="a lifespan function is async and yields once: async def lifespan"):
        Server("forms", lifespan=form)
    with pytest.raises(DeclarationError, match="a session function is async and yields once: async def session"):
        Server("forms").session(form)


async def test_a_server_can_be_served_again() -> None:
    server = Server("again")
    server.add_tool(_nothing, name="x")
    for _ in range(2):
        async with talking(server) as talk:
            assert await talk.text("x") == ""


async def test_a_servers_own_memory_link_speaks_frames() -> None:
    server = Server("link")
    async with server.open_memory_link() as end:
        await end.send(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
        assert await end.receive() == b'{"jsonrpc":"2.0","id":1,"result":{}}'


async def test_calls_beyond_the_bound_wait_their_turn(autojump_clock: MockClock) -> None:
    server = Server("bounded", limits=Limits(running=2))
    inside: list[int] = [0, 0]

    @server.tool
    async def work() -> str:
        inside[0] += 1
        inside[1] = max(inside)
        await trio.sleep(1)
        inside[0] -= 1
        return "done"

    async with talking(server) as talk, trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(talk.text, "work")
    assert inside == [0, 2]
