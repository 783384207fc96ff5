"""Published ways to see or to touch what belongs to another client (V20 to V25): each attack must fail."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
import trio

from mcptrio.auth import request_state
from tests.bad_inputs.catalogue import Case
from tests.bad_inputs.process import Servers
from tests.bad_inputs.program import make_server
from tests.bad_inputs.runner import run_request
from tests.bad_inputs.session_actions import ask, call_with_cursor
from tests.bad_inputs.speaker import Speaker
from tests.e2e.http_peer import HttpClient, serving_endpoint
from tests.transports.app_for_tests import request

from .cases import cases

GOOD = {"size": {"action": "accept", "content": {"size": "M"}}}


# -- V20


@pytest.mark.parametrize("date", ["2025-11-25", "2026-07-28"])
async def test_neg_colliding_ids_200_clients(date: str, engine: str) -> None:
    """All use the same ids at the same time; each finds its own text in its own answers. `make fault-test` goes on."""
    server = make_server()
    async with trio.open_nursery() as nursery:
        bound = await nursery.start(partial(server.serve_http, port=0, engine=engine))

        def talk(name: str) -> None:
            speaker = Speaker(bound[0].port, date)
            speaker.open_session()
            for request_id in (1, "1", 2):
                answer = speaker.call("echo", request_id, text=f"{name} {request_id}").answer
                assert answer["id"] == request_id
                assert answer["result"]["content"][0]["text"] == f"{name} {request_id}"
            speaker.close()

        limiter = trio.CapacityLimiter(20)
        async with trio.open_nursery() as clients:
            for number in range(200):
                clients.start_soon(partial(trio.to_thread.run_sync, talk, f"client {number}", limiter=limiter))
        nursery.cancel_scope.cancel()


@cases("R17", "R18", "R19", "R32")
def test_neg_ids_are_of_one_session(case: Case, servers: Servers) -> None:
    run_request(case, servers)


# -- V21


@cases("S04")
def test_neg_session_other_principal_404(case: Case, servers: Servers) -> None:
    run_request(case, servers)


# -- V22


@cases("S07")
def test_neg_second_get_stream_409(case: Case, servers: Servers) -> None:
    run_request(case, servers)


# -- V23


@cases("S09", "S10")
def test_neg_replay_other_session_cursor(case: Case, servers: Servers) -> None:
    run_request(case, servers)


async def test_neg_replay_same_request_id(engine: str) -> None:
    """Two sessions, the same request id, the same event numbers: a cursor brings its own session's events only."""
    async with serving_endpoint() as (server, _):
        ann, bob = await HttpClient.open(server), await HttpClient.open(server)
        first = await ann.send("POST", request(7, "count", to=3))
        second = await bob.send("POST", request(7, "count", to=3))
        assert await first.event()
        assert await second.event()
        stolen = await bob.listen(first.cursor)
        assert stolen.status == 400
        own = await bob.listen(second.cursor)
        assert own.status == 200


# -- V25


def asked(speaker: Speaker, **arguments: Any) -> dict[str, Any]:
    call = {"name": "ask", "arguments": arguments}
    result: dict[str, Any] = speaker.ask("tools/call", call).answer["result"]
    assert result["resultType"] == "input_required"
    return {**call, "requestState": result["requestState"]}


def retry(speaker: Speaker, call: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return speaker.ask("tools/call", {**call, "inputResponses": GOOD, **changes}, 2).answer


def refused(answer: dict[str, Any]) -> None:
    assert answer["error"]["code"] == -32602, answer
    assert set(answer["error"]) == {"code", "message"}, "nothing says which check failed"


def test_neg_request_state_tampered(servers: Servers) -> None:
    with servers.use("usual") as server:
        speaker = server.speaker("2026-07-28")
        call = asked(speaker)
        state = call["requestState"]
        for at in range(0, len(state), max(1, len(state) // 25)):
            other = "A" if state[at] != "A" else "B"
            refused(retry(speaker, call, requestState=state[:at] + other + state[at + 1 :]))
        refused(retry(speaker, call, requestState=state[:-1]))
        refused(retry(speaker, call, requestState=state + state))
        assert retry(speaker, call)["result"]["content"][0]["text"] == "M"
        refused(retry(speaker, call))  # once is enough
        speaker.close()


def test_neg_request_state_other_args(servers: Servers) -> None:
    with servers.use("usual") as server:
        speaker = server.speaker("2026-07-28")
        call = asked(speaker)
        refused(retry(speaker, call, arguments={"more": 1}))
        refused(retry(speaker, call, name="keep"))
        prompt = {"name": "greet", "arguments": {"name": "x"}, "requestState": call["requestState"]}
        refused(speaker.ask("prompts/get", {**prompt, "inputResponses": GOOD}, 3).answer)
        assert retry(speaker, call)["result"]["content"][0]["text"] == "M"
        speaker.close()


def test_neg_request_state_other_server(servers: Servers) -> None:
    with servers.use("usual") as one, servers.use("hasty") as two:
        speaker, elsewhere = one.speaker("2026-07-28"), two.speaker("2026-07-28")
        call = asked(speaker)
        refused(retry(elsewhere, call))
        assert retry(speaker, call)["result"]["content"][0]["text"] == "M"
        speaker.close()
        elsewhere.close()


def test_neg_request_state_other_principal(servers: Servers) -> None:
    with servers.use("named") as server:
        ann, bob = server.speaker("2026-07-28", "ann"), server.speaker("2026-07-28", "bob")
        call = asked(ann)
        refused(retry(bob, call))
        assert retry(ann, call)["result"]["content"][0]["text"] == "M"
        ann.close()
        bob.close()


async def test_neg_request_state_expired(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = make_server()
    async with trio.open_nursery() as nursery:
        bound = await nursery.start(partial(server.serve_http, port=0, engine=engine))
        speaker = Speaker(bound[0].port, "2026-07-28")
        call = await trio.to_thread.run_sync(asked, speaker)
        import time

        later = time.time() + 700
        monkeypatch.setattr(time, "time", lambda: later)
        refused(await trio.to_thread.run_sync(retry, speaker, call))
        speaker.close()
        nursery.cancel_scope.cancel()
    assert request_state.__doc__


def test_a_cursor_is_looked_at_only_by_its_own_session(servers: Servers) -> None:
    """The other side of V23: a cursor that is one's own works, so that the tests above can fail."""
    with servers.use("usual") as server:
        speaker = server.speaker("2025-11-25")
        speaker.open_session()
        scene: Any = None
        connection, _, cursor = call_with_cursor(scene, speaker, 0.1)
        with connection:
            reply = ask(speaker, "GET", **{"last-event-id": cursor})
            assert "waited" in json.dumps(reply.answer)
        speaker.end_session()
        speaker.close()
