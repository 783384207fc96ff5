"""The WebSocket transport behind a fake ASGI server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
from attrs import define, field
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio._actors.limits import Limits
from mcptrio._actors.runtime import Runtime
from mcptrio._actors.turns import Turns
from mcptrio._wire.jsonrpc import encode
from mcptrio.auth.server import Principal
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Authenticator, Endpoint
from mcptrio.transports.http_server.endpoint.message import HttpRequest, Plain
from mcptrio.transports.websocket.server import serve_websocket
from tests.actors.kit import App, Ctx, ListLink, initialize, notification, open_runtime, request


async def slow(ctx: Ctx, params: Any) -> Any:
    await trio.sleep(params.get("seconds", 3600))
    return {}


async def where(ctx: Ctx, params: Any) -> dict[str, Any]:
    return {"path": ctx.call.start.link.head.path, "who": ctx.session.principal and ctx.session.principal.subject}


@define(eq=False)
class FakeSocket:
    """An ASGI server, seen from the client."""

    to_app: trio.MemorySendChannel[dict[str, Any]]
    events: list[dict[str, Any]] = field(factory=list)
    stalled: bool = False
    done: bool = False

    async def send(self, event: dict[str, Any]) -> None:
        if self.stalled and event["type"] == "websocket.send":
            await trio.sleep_forever()
        self.events.append(event)

    async def say(self, *frames: Any) -> None:
        for frame in frames:
            text = frame if isinstance(frame, str) else encode(frame).decode()
            await self.to_app.send({"type": "websocket.receive", "text": text, "bytes": None})

    async def heard(self) -> list[Any]:
        await wait_all_tasks_blocked()
        texts = [e["text"] for e in self.events if e["type"] == "websocket.send"]
        self.events = [e for e in self.events if e["type"] != "websocket.send"]
        return [msgspec.json.decode(text) for text in texts]

    async def close_code(self) -> int | None:
        """The code the server closed with; None if it left that to the client."""
        while not self.done:
            await trio.sleep(0.01)
        codes = [e["code"] for e in self.events if e["type"] == "websocket.close"]
        assert len(codes) <= 1
        return codes[0] if codes else None


@asynccontextmanager
async def open_socket(
    headers: Mapping[str, str] | None = None,
    *,
    path: str = "/mcp",
    subprotocols: tuple[str, ...] = ("mcp",),
    extensions: Mapping[str, Any] | None = None,
    config: HttpConfig | None = None,
    authenticator: Authenticator | None = None,
    max_sessions: int = 10,
    sessions: int = 0,
) -> AsyncIterator[tuple[FakeSocket, Runtime]]:
    app = App({"slow": slow, "where": where})
    to_app, from_client = trio.open_memory_channel[dict[str, Any]](1000)
    socket = FakeSocket(to_app)
    fields = {"host": "localhost:8000", **(headers or {})}
    scope = {
        "type": "websocket",
        "path": path,
        "scheme": "ws",
        "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
        "subprotocols": list(subprotocols),
        "extensions": {"websocket.http.response": {}} if extensions is None else extensions,
    }
    async with open_runtime(app, Limits(max_sessions=max_sessions)) as runtime:
        for _ in range(sessions):
            runtime.new_session(ListLink(), transport="memory")
        endpoint = Endpoint(runtime, config or HttpConfig(), None, authenticator)
        async with trio.open_nursery() as nursery:

            async def serve() -> None:
                await serve_websocket(endpoint, scope, from_client.receive, socket.send)
                socket.done = True

            await to_app.send({"type": "websocket.connect"})
            nursery.start_soon(serve)
            await wait_all_tasks_blocked()
            yield socket, runtime
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_talk(**options: Any) -> AsyncIterator[tuple[FakeSocket, Runtime]]:
    async with open_socket(**options) as (socket, runtime):
        assert socket.events == [{"type": "websocket.accept", "subprotocol": "mcp", "headers": []}]
        await socket.say(initialize(), notification("notifications/initialized"))
        assert len(await socket.heard()) == 1
        yield socket, runtime


@pytest.mark.defect("S4")
async def test_messages_on_many_sockets_of_one_client_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    async def take(self: Turns, owner: str) -> None:
        taken.append(owner)

    monkeypatch.setattr(Turns, "take", take)
    async with open_talk() as (socket, _):
        taken.clear()
        await socket.say(request(1, "where"), request(2, "where"))
        assert len(await socket.heard()) == 2
        assert taken == ["\0"] * 2


async def test_the_calls_of_nameless_clients_count_too(autojump_clock: MockClock) -> None:
    async with open_talk(config=HttpConfig(max_calls=3)) as (socket, _):
        await socket.say(*[request(number, "slow", seconds=10) for number in range(1, 6)])
        refused = [(frame["id"], frame["error"]["data"]["limit"]) for frame in await socket.heard()]
        assert refused == [(4, "max_calls"), (5, "max_calls")]
        await trio.sleep(11)
        assert sorted(frame["id"] for frame in await socket.heard()) == [1, 2, 3]
        for number in range(6, 30):
            await socket.say(request(number, "slow", seconds=0))
            assert "result" in (await socket.heard())[0], "a place is free again when its call is done"


# -- the handshake


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"headers": {"host": "evil.example"}}, 421),
        ({"headers": {"origin": "https://evil.example"}}, 403),
        ({"path": "/other"}, 404),
        ({"subprotocols": ()}, 400),
        ({"subprotocols": ("graphql-ws",)}, 400),
        ({"max_sessions": 1, "sessions": 1}, 503),
    ],
    ids=["host", "origin", "path", "no subprotocol", "another subprotocol", "full"],
)
async def test_a_handshake_that_is_refused_is_never_accepted(
    options: dict[str, Any], status: int, autojump_clock: MockClock
) -> None:
    """K01: a page that could open the socket could use every tool."""
    async with open_socket(**options) as (socket, runtime):
        start, body = socket.events
        assert start["type"] == "websocket.http.response.start"
        assert start["status"] == status
        assert msgspec.json.decode(body["body"])["error"]["message"]
        assert socket.done
        assert len(runtime.supervisor.sessions) == options.get("sessions", 0)


async def test_a_server_that_cannot_answer_the_handshake_closes_it(autojump_clock: MockClock) -> None:
    async with open_socket(headers={"host": "evil.example"}, extensions={}) as (socket, _):
        assert [e["type"] for e in socket.events] == ["websocket.close"]


async def test_our_own_pages_may_connect(autojump_clock: MockClock) -> None:
    async with open_talk(headers={"origin": "http://localhost:8000"}):
        pass


async def test_the_caller_is_authenticated_before_the_handshake(autojump_clock: MockClock) -> None:
    async def authenticator(head: HttpRequest) -> Any:
        return Principal(subject="ann") if head.text(b"authorization") == "Bearer a" else Plain(401, (), b"{}")

    async with open_socket(authenticator=authenticator) as (socket, _):
        assert socket.events[0]["status"] == 401
    async with open_talk(authenticator=authenticator, headers={"authorization": "Bearer a"}) as (socket, _):
        await socket.say(request(1, "where"))
        assert [a["result"] for a in await socket.heard()] == [{"path": "/mcp", "who": "ann"}]


@pytest.mark.defect("S5")
async def test_an_auth_function_that_returns_no_principal_opens_no_socket(autojump_clock: MockClock) -> None:
    async def refuse(head: HttpRequest) -> Any:
        return None

    async with open_socket(authenticator=refuse) as (socket, _):
        assert socket.events[0]["status"] == 401


# -- messages


async def test_each_message_is_a_text_of_its_own(autojump_clock: MockClock) -> None:
    async with open_talk() as (socket, _):
        await socket.say(request(1, "ping"), request(2, "ping"))
        await wait_all_tasks_blocked()
        assert [e["type"] for e in socket.events] == ["websocket.accept", "websocket.send", "websocket.send"]
        assert [a["id"] for a in await socket.heard()] == [1, 2]


async def test_an_unreadable_message_is_answered_and_the_next_is_served(autojump_clock: MockClock) -> None:
    async with open_talk() as (socket, _):
        await socket.say("hello", request(1, "ping"))
        assert [a.get("id") for a in await socket.heard()] == [None, 1]


async def test_a_binary_message_closes_with_1003(autojump_clock: MockClock) -> None:
    async with open_talk() as (socket, runtime):
        await socket.to_app.send({"type": "websocket.receive", "text": None, "bytes": b"{}"})
        assert await socket.close_code() == 1003
        assert runtime.supervisor.sessions == {}


@pytest.mark.parametrize("text", ["x" * 1001, "€" * 334])
async def test_a_message_beyond_the_limit_in_bytes_closes_with_1009(text: str, autojump_clock: MockClock) -> None:
    async with open_talk(config=HttpConfig(max_body=1000)) as (socket, _):
        await socket.say(text)
        assert await socket.close_code() == 1009


# -- the end


async def test_the_session_ends_with_the_socket(autojump_clock: MockClock) -> None:
    async with open_talk() as (socket, runtime):
        await socket.say(request(1, "slow"))
        await wait_all_tasks_blocked()
        (session,) = runtime.supervisor
        await socket.to_app.send({"type": "websocket.disconnect", "code": 1001})
        assert await socket.close_code() is None
        assert session.handlers.left_behind == 0
        assert runtime.supervisor.sessions == {}


async def test_draining_answers_what_runs_and_closes_with_1001(autojump_clock: MockClock) -> None:
    async with open_talk() as (socket, runtime):
        await socket.say(request(1, "slow"))
        await wait_all_tasks_blocked()
        await runtime.drain(2)
        assert [a["id"] for a in await socket.heard()] == [1]
        assert await socket.close_code() == 1001


async def test_a_peer_that_does_not_read_is_closed_with_1013(autojump_clock: MockClock) -> None:
    """K10: what it does not take must not pile up here."""
    async with open_talk(config=HttpConfig(write_timeout=30)) as (socket, runtime):
        socket.stalled = True
        await socket.say(request(1, "ping"))
        began = trio.current_time()
        assert await socket.close_code() == 1013
        assert trio.current_time() - began == pytest.approx(30, abs=1)
        assert runtime.supervisor.sessions == {}


async def test_a_cancelled_socket_sends_a_close_frame(autojump_clock: MockClock) -> None:
    async with open_talk() as (socket, _):
        pass
    assert [e["code"] for e in socket.events if e["type"] == "websocket.close"] == [1001]
