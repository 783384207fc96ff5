"""The process is killed while calls stream, and started again on the same file: no event is lost, doubled or mixed up.

`make kill-test N=200` does it more often.
"""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path

import pytest
import trio

from mcptrio._wire.sse import ServerSentEvent, SseReader
from tests.transports.app_for_tests import request as frame_of

from .http_peer import HttpClient, Response
from .server_process import ServerProcess, free_port, running

KILLS = int(os.environ.get("MCPTRIO_KILLS", "3"))
"""On each engine."""
CLIENTS = 4


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
async def test_no_event_is_lost_or_doubled_when_the_process_is_killed(
    engine: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    dice = random.Random(KILLS)
    port = free_port()
    sqlite = f"sqlite:///{tmp_path / 'events.db'}"
    store = sqlite if kind == "sqlite" else request.getfixturevalue("redis_server").url
    for _ in range(KILLS):
        with running("busy.py", tmp_path / "log", "--store", store, port=port) as server:
            await server.wait_ready()
            histories = await stream_until_killed(server, after=dice.uniform(0.02, 0.4))
        with running("busy.py", tmp_path / "log", "--store", store, port=port) as server:
            await server.wait_ready()
            for history in histories:
                await check(server, history)


class History:
    """What one client saw of its stream."""

    def __init__(self, client: HttpClient) -> None:
        self.client = client
        self.cursor = ""
        self.events: list[ServerSentEvent] = []


async def stream_until_killed(server: ServerProcess, *, after: float) -> list[History]:
    histories = [History(await HttpClient.open(server)) for _ in range(CLIENTS)]

    async def read(history: History, number: int) -> None:
        # All clients use the same ids and the same progress token: only the session tells them apart.
        params = {"name": "count", "arguments": {"to": 1000 + number, "pause": 0.001}, "_meta": {"progressToken": 1}}
        try:
            response = await history.client.send("POST", frame_of(1, "tools/call", **params))
            await read_events(response, history)
        except (OSError, trio.BrokenResourceError, RuntimeError):
            pass  # killed before anything was read
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "h11":
                raise  # h11 says that the stream was cut

    async with trio.open_nursery() as nursery:
        for number, history in enumerate(histories):
            nursery.start_soon(read, history, number)
        await trio.sleep(after)
        server.signal(signal.SIGKILL)
    return histories


async def read_events(response: Response, history: History) -> None:
    reader = SseReader()
    while (piece := await response.piece()) is not None:
        for event in reader.feed(piece):
            if event.data:
                history.events.append(event)
            elif not history.cursor and event.id:
                history.cursor = event.id
        if not history.cursor:
            history.cursor = reader.last_event_id


async def check(server: ServerProcess, history: History) -> None:
    if not history.cursor:
        return  # killed before the stream began: nothing was promised
    seen = [progress_of(event) for event in history.events]
    assert seen == list(range(1, len(seen) + 1))
    client = HttpClient(server, history.client.session_id)
    again = await client.listen(history.cursor)
    if again.status == 404:
        assert not seen  # nothing was stored, so nothing can have been sent
        return
    assert again.status == 200
    replayed = await again.rest()
    # Whatever was seen is there again, in order; what was stored and never sent follows it.
    assert [event.id for event in replayed][: len(seen)] == [event.id for event in history.events]
    assert [progress_of(event) for event in replayed] == list(range(1, len(replayed) + 1))
    if history.events:
        cut = len(history.events) // 2
        rest = await client.listen(history.events[cut].id)
        expected = [event.id for event in replayed][cut + 1 :]
        assert rest.status == (200 if expected else 404)
        if expected:
            assert [event.id for event in await rest.rest()] == expected


def progress_of(event: ServerSentEvent) -> int:
    number: int = json.loads(event.data)["params"]["progress"]
    return number
