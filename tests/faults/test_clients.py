"""Clients that vanish, come back, do not read, do not answer, or answer too late."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.hypercorn.asgi import AsgiApp
from tests.e2e.canary import StatefulCanary, StatelessCanary

from .conftest import CANARIES, Open
from .serving import Trail, make_server

every_kind = pytest.mark.parametrize("kind", CANARIES)


@every_kind
async def test_fault_client_gone_mid_call(kind: str, open_watched: Open, autojump_clock: MockClock) -> None:
    """F01, F02: with sessions the call goes on and its answer is kept; without, it is cancelled at once."""
    trail = Trail()
    async with open_watched(make_server(trail)) as watched:
        guest = await watched.guest(kind)
        frames: list[dict[str, Any]] = []
        answer = await watched.begin(guest, "wait", {"seconds": 5.0})
        assert trail.done == ["begun"]
        if isinstance(guest, StatefulCanary):
            await guest.read(answer, frames, only=0)
            cursor = (await answer.next() or b"").split(b"\n")[0].removeprefix(b"id: ").decode()
            answer.cut()
            await trio.sleep(10)
            assert trail.done == ["begun", "finished"]
            again = await guest.wire.send("GET", {**guest.headers("", None), "last-event-id": cursor}, b"")
            await guest.read(again, frames)
            assert guest.text(guest.outcome(frames, 1)) == guest.word
        else:
            answer.cut()
            await trio.sleep(0.1)
            assert trail.done == ["begun", "cancelled"]
            assert await answer.next() is None


async def test_fault_client_gone_and_never_back(open_watched: Open, autojump_clock: MockClock) -> None:
    """F01: a call whose client does not come back ends with the grace period."""
    trail = Trail()
    async with open_watched(make_server(trail, call_timeout=900), HttpConfig(resume_grace=30)) as watched:
        guest = await watched.guest("stateful")
        answer = await watched.begin(guest, "wait", {"seconds": 600.0})
        answer.cut()
        await trio.sleep(29)
        assert trail.done == ["begun"]
        await trio.sleep(2)
        assert trail.done == ["begun", "cancelled"]


@every_kind
async def test_fault_client_vanishes_silently(kind: str, open_watched: Open, autojump_clock: MockClock) -> None:
    """F03: no FIN, no RST, nothing is taken any more; the connection ends with a heartbeat and the write deadline."""
    trail = Trail()
    async with open_watched(make_server(trail, call_timeout=900)) as watched:
        guest = await watched.guest(kind)
        app = AsgiApp(watched.endpoint)
        ended: list[float] = []

        async def hole() -> None:
            began = trio.current_time()
            await app(*black_hole(guest, {"name": "wait", "arguments": {"text": guest.word, "seconds": 600}}))
            ended.append(trio.current_time() - began)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hole)
        assert ended[0] <= 15 + 30 + 1
        await wait_all_tasks_blocked()
        assert trail.done == (["begun"] if kind == "stateful" else ["begun", "cancelled"])
        assert watched.count("write timeout") == (1 if kind == "stateful" else 0)


def black_hole(guest: Any, params: dict[str, Any]) -> tuple[Any, Any, Any]:
    """An ASGI request of a client whose network swallows everything after the first bytes of the answer."""
    import json

    frame = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": guest.params(params)}
    body = [{"type": "http.request", "body": json.dumps(frame).encode(), "more_body": False}]
    headers = {"host": "localhost", **guest.headers("tools/call", "wait")}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    sent = 0

    async def receive() -> Any:
        if body:
            return body.pop()
        return await trio.sleep_forever()

    async def send(message: Any) -> None:
        nonlocal sent
        sent += 1
        if sent > 1:
            await trio.sleep_forever()

    return scope, receive, send


ASKS = {"person": ("elicitation/create", False), "model": ("sampling/createMessage", True)}
catching = pytest.mark.parametrize("catch", [False, True], ids=["not caught", "caught"])


@catching
@pytest.mark.parametrize("asked", ASKS)
async def test_fault_client_gone_before_it_answers_a_question(
    asked: str, catch: bool, open_watched: Open, autojump_clock: MockClock
) -> None:
    """F05: the handler that waits for the answer gets a typed error when the session ends; no task is left waiting."""
    trail = Trail()
    method, model = ASKS[asked]
    async with open_watched(make_server(trail)) as watched:
        guest = await watched.guest("stateful")
        assert isinstance(guest, StatefulCanary)
        frames: list[dict[str, Any]] = []
        answer = await watched.begin(guest, "ask", {"model": model, "catch": catch})
        await guest.read(answer, frames, only=1)
        assert frames[0]["method"] == method
        session = watched.runtime.supervisor.find(guest.session)
        assert session is not None
        assert watched.waiters(guest) == 1
        answer.cut()
        assert trail.done == [], "a lost connection is not the end of a session"
        await guest.close()
        await wait_all_tasks_blocked()
        assert trail.done == ["ConnectionLost"]
        assert watched.runtime.supervisor.find(guest.session) is None
        assert list(session.peer.ledger.asks()) == []
        assert watched.counted(f'mcptrio_asks_ended_total{{method="{method}",outcome="error"}}') == 1


@catching
@pytest.mark.parametrize("asked", ASKS)
async def test_fault_client_never_answers_a_question(
    asked: str, catch: bool, open_watched: Open, autojump_clock: MockClock
) -> None:
    """F05: a connected client does not answer: the question times out, and the session goes on."""
    trail = Trail()
    method, model = ASKS[asked]
    async with open_watched(make_server(trail, ask_timeout=10)) as watched:
        guest = await watched.guest("stateful")
        frames: list[dict[str, Any]] = []
        began = trio.current_time()
        answer = await watched.begin(guest, "ask", {"model": model, "catch": catch})
        await guest.read(answer, frames)
        assert trio.current_time() - began == pytest.approx(10, abs=0.5)
        assert trail.done == ["RequestTimeout"]
        assert [frame.get("method") for frame in frames] == [method, "notifications/cancelled", None]
        outcome = guest.outcome(frames, 1)["result"]
        assert outcome.get("isError", False) is not catch
        assert ("without an answer" in str(outcome)) is catch
        assert watched.waiters(guest) == 0
        assert watched.counted(f'mcptrio_asks_ended_total{{method="{method}",outcome="timeout"}}') == 1
        await guest.echo()


async def test_fault_question_answered_too_late(open_watched: Open, autojump_clock: MockClock) -> None:
    """F06: the call was answered long ago; the late answer is dropped, and counted."""
    trail = Trail()
    async with open_watched(make_server(trail, ask_timeout=10)) as watched:
        guest = await watched.guest("stateful")
        frames: list[dict[str, Any]] = []
        answer = await watched.begin(guest, "ask")
        await guest.read(answer, frames)
        question = frames[0]
        assert guest.outcome(frames, 1)["result"]["isError"]
        assert trail.done == ["RequestTimeout"]
        dropped = 'mcptrio_dropped_total{kind="unknown_response"}'
        assert watched.counted(dropped) == 0
        late = {"id": question["id"], "result": {"action": "accept", "content": {"word": guest.word}}}
        assert (await guest.post(late, guest.headers("", None))).status == 202
        await wait_all_tasks_blocked()  # it was accepted, and is taken in its turn
        assert watched.counted(dropped) == 1
        refusal = {"id": question["id"], "error": {"code": -1, "message": "no"}}
        assert (await guest.post(refusal, guest.headers("", None))).status == 202
        await wait_all_tasks_blocked()
        assert watched.counted(dropped) == 2
        assert trail.done == ["RequestTimeout"]
        await guest.echo()


async def test_fault_questions_that_are_never_answered(open_watched: Open, autojump_clock: MockClock) -> None:
    """F07: what is parked is bounded in number and in age."""
    async with open_watched(make_server(parked_max=10, parked_ttl=30)) as watched:
        guest = await watched.guest("stateless")
        for _ in range(50):
            assert "inputRequests" in (await watched.call(guest, "ask"))["result"]
        assert len(watched.runtime.parking) == 10
        await trio.sleep(31)
        assert len(watched.runtime.parking) == 0
        watched.blame_limits()


@every_kind
@pytest.mark.parametrize("kib", [1, 63, 64, 65, 200, 1500])
async def test_fault_flood_of_large_events(kind: str, kib: int, open_watched: Open, autojump_clock: MockClock) -> None:
    """F14, F37: however large the events are, the handler that writes them goes on as soon as they are read."""
    async with open_watched(make_server(call_timeout=20)) as watched:
        guest = await watched.guest(kind)
        frames: list[dict[str, Any]] = []
        times = 3000 // kib + 2
        answer = await watched.begin(guest, "tell", {"times": min(times, 400), "kib": kib, "pause": 0})
        await guest.read(answer, frames)
        received = [frame["params"]["progress"] for frame in frames if "method" in frame]
        assert received == list(range(1, min(times, 400) + 1))
        assert guest.text(guest.outcome(frames, 1)) == guest.word
        watched.blame_limits()


async def test_fault_reader_comes_and_goes_while_events_arrive(open_watched: Open, autojump_clock: MockClock) -> None:
    """F04, F38: lost after every single event, taken up again, and again by a second connection: nothing is missing."""
    async with open_watched(make_server()) as watched:
        guest = await watched.guest("stateful")
        frames: list[dict[str, Any]] = []
        answer = await watched.begin(guest, "tell", {"times": 12, "pause": 0.2})
        cursor = ""
        while not frames or "method" in frames[-1]:
            cursor = await guest.read(answer, frames, only=len(frames) + 1) or cursor
            answer.cut()
            if "method" in frames[-1]:
                headers = {**guest.headers("", None), "last-event-id": cursor}
                loser = await guest.wire.send("GET", headers, b"")
                answer = await guest.wire.send("GET", headers, b"")  # a new one wins
                assert (loser.status, answer.status) == (200, 200)
                assert await loser.next() is None
        guest.check_progress(frames, 1, 12)


async def test_fault_session_expires_before_its_answer_is_read(open_watched: Open, autojump_clock: MockClock) -> None:
    """F40: the answer is there whole, or the session is unknown; never half of it."""
    async with open_watched(make_server(idle_timeout=5)) as watched:
        guest = await watched.guest("stateful")
        frames: list[dict[str, Any]] = []
        answer = await watched.begin(guest, "tell", {"times": 2, "pause": 3})
        cursor = await guest.read(answer, frames, only=1)
        answer.cut()
        await trio.sleep(20)  # the call ends, the client does not read, and the session has been idle for too long
        assert watched.runtime.supervisor.find(guest.session) is None  # type: ignore[attr-defined]
        late = await guest.wire.send("GET", {**guest.headers("", None), "last-event-id": cursor}, b"")
        if late.status == 200:
            await guest.read(late, frames)
            guest.check_progress(frames, 1, 2)
        else:
            assert late.status == 404
        gone = await guest.begin_call("echo", 2)
        assert gone.status == 404
        await guest.read(gone, [])


async def test_fault_a_disconnect_cancels_a_stateless_call_only(open_watched: Open, autojump_clock: MockClock) -> None:
    """A stateless call is cancelled by a disconnect, a stateful one goes on."""
    trail = Trail()
    async with open_watched(make_server(trail)) as watched:
        stateful, stateless = await watched.guest("stateful"), await watched.guest("stateless")
        assert isinstance(stateless, StatelessCanary)
        answers = [await watched.begin(guest, "wait", {"seconds": 5.0}) for guest in (stateful, stateless)]
        for answer in answers:
            answer.cut()
        await trio.sleep(10)
        assert sorted(trail.done) == ["begun", "begun", "cancelled", "finished"]
