"""Streams that are cut and taken up again over real sockets, and after a restart from the file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from mcptrio._wire.sse import ServerSentEvent
from mcptrio.auth.server import Principal
from mcptrio.stores.sqlite import SqliteStore
from mcptrio.transports.http_server.endpoint.message import HttpRequest
from tests.transports.app_for_tests import Client, error_of, head, make_runtime, open_endpoint, plain, request, stage_of

from .http_peer import HttpClient, serving_endpoint


def numbers(events: list[ServerSentEvent]) -> list[int]:
    return [frame["params"]["progress"] for event in events if "params" in (frame := json.loads(event.data))]


async def test_a_client_whose_connection_dies_after_every_event_misses_none(engine: str) -> None:
    """The worst network: one event, then a reset, again and again until the answer is there."""
    async with serving_endpoint() as (server, endpoint):
        client = await HttpClient.open(server)
        stage = stage_of(endpoint)
        reader = await client.send("POST", request(1, "follow"))
        await reader.piece()
        cursor, seen = reader.cursor, []
        for number in range(8):
            stage.cues.send_nowait("tell" if number < 7 else "end")
            if number % 2:  # half of the events come while the client is disconnected
                await trio.sleep(0.01)
            reader.reset()
            reader = await client.listen(cursor)
            assert reader.status == 200
            event = await reader.event()
            assert event is not None
            seen.append(event)
            cursor = event.id
        assert numbers(seen) == list(range(7))
        assert json.loads(seen[-1].data)["result"] == {"followed": 7}
        assert await reader.rest() == []
        again = await client.listen(seen[2].id)
        assert await again.rest() == seen[3:]


async def test_the_connection_that_is_polled_is_closed_with_retry_and_the_answer_is_fetched(engine: str) -> None:
    async with serving_endpoint() as (server, endpoint):
        client = await HttpClient.open(server)
        stage = stage_of(endpoint)
        stage.cues.send_nowait("close")
        reader = await client.send("POST", request(1, "follow"))
        assert await reader.rest() == []
        assert reader.complete
        assert b"retry: 1000" in reader.raw
        stage.cues.send_nowait("end")
        back = await client.listen(reader.cursor)
        assert [json.loads(event.data)["id"] for event in await back.rest()] == [1]


async def test_a_new_resume_takes_over_a_connection_that_still_lives(engine: str) -> None:
    async with serving_endpoint() as (server, endpoint):
        client = await HttpClient.open(server)
        stage = stage_of(endpoint)
        old = await client.send("POST", request(1, "follow"))
        await old.piece()
        new = await client.listen(old.cursor)
        assert await old.rest() == []
        assert old.complete
        stage.cues.send_nowait("end")
        assert len(await new.rest()) == 1


@pytest.mark.parametrize("ending", ["drain", "abandon"])
async def test_after_a_restart_the_file_gives_out_what_was_missed_and_the_session_goes_on(
    tmp_path: Path, ending: str
) -> None:
    path = tmp_path / "events.db"
    async with open_endpoint(runtime=make_runtime(store=SqliteStore(path))) as endpoint:
        client = await Client.open(endpoint)
        other = await Client.open(endpoint)
        finished = await client.stream(request(1, "count", to=4))
        whole = await finished.rest()
        for _ in range(3):
            stage_of(endpoint).cues.send_nowait("tell")
        unfinished = await client.stream(request(2, "follow"))
        begun = [await unfinished.event() for _ in range(3)]
        unfinished.hang_up()
        deleted = await Client.open(endpoint)
        theirs = await (await deleted.stream(request(1, "count", to=1))).rest()
        assert (await plain(endpoint, deleted.head("DELETE"))).status == 200
        await trio.testing.wait_all_tasks_blocked()
        if ending == "drain":
            await endpoint.runtime.drain(0)

    async with open_endpoint(runtime=make_runtime(store=SqliteStore(path))) as endpoint:
        client.endpoint = other.endpoint = deleted.endpoint = endpoint
        for position in range(4):
            again = await client.listen(whole[position].id)
            assert await again.rest() == whole[position + 1 :]
        rest = await (await client.listen(begun[0].id)).rest()  # type: ignore[union-attr]
        assert rest[:2] == begun[1:]
        error = json.loads(rest[2].data)["error"]
        if ending == "drain":
            assert error["message"] == "the server is shutting down"
        else:
            assert (error["code"], error["data"]) == (-32603, {"mayHaveRun": True})
        assert len(rest) == 3
        assert await (await client.listen(whole[-1].id)).rest() == [], "the last event is a valid cursor"
        assert (await client.post(request(3, "ping"))).status == 200
        stranger = await plain(endpoint, head("GET", mcp_session_id=other.session_id, last_event_id=whole[0].id))
        assert (stranger.status, error_of(stranger)["code"]) == (400, -32600)
        assert (await deleted.refused(theirs[0].id)).status == 404


async def test_after_a_restart_a_session_still_belongs_to_the_principal_that_opened_it(tmp_path: Path) -> None:
    async def who(request_head: HttpRequest) -> Principal:
        return Principal(subject=request_head.text(b"authorization") or "anyone")

    path = tmp_path / "events.db"
    async with open_endpoint(runtime=make_runtime(store=SqliteStore(path)), authenticator=who) as endpoint:
        client = await Client.open(endpoint, extra={"authorization": "ann"})
        events = await (await client.stream(request(1, "count", to=2))).rest()
    async with open_endpoint(runtime=make_runtime(store=SqliteStore(path)), authenticator=who) as endpoint:
        client.endpoint = endpoint
        for other in ("bob", None):
            stolen = client.head("GET", last_event_id=events[0].id, authorization=other)
            reply = await plain(endpoint, stolen)
            unknown = await plain(endpoint, client.head("GET", mcp_session_id="unknown", last_event_id=events[0].id))
            assert (reply.status, reply.body) == (404, unknown.body)
        assert await (await client.listen(events[0].id)).rest() == events[1:]
