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
from tests.ports import free_port
from tests.transports.app_for_tests import request as frame_of

from .http_peer import HttpClient, Response
from .server_process import ServerProcess, running

KILLS = int(os.environ.get("MCPTRIO_KILLS", "3"))
"""On each engine."""
CLIENTS = 4


@pytest.mark.slow
async def test_no_event_is_lost_or_doubled_when_the_process_is_killed(engine: str, tmp_path: Path) -> None:
    dice = random.Random(KILLS)
    port = free_port()
    store = f"sqlite:///{tmp_path / 'events.db'}"
    for _ in range(KILLS):
        with running("busy.py", tmp_path / "log", "--store", store, port=port) as server:
            await server.wait_ready()
            histories = await stream_until_killed(server, after=dice.uniform(0.02, 0.4))
        with running("busy.py", tmp_path / "log", "--store", store, port=port) as server:
            await server.wait_ready()
            for history in histories:
                await check(server, history)


class History:
    """The part of its stream that one client saw."""

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
    assert again.status == 200
    *replayed, answer = await again.rest()
    # Whatever was seen is there again, in order; what was stored and never sent follows it, and then the error.
    assert [event.id for event in replayed][: len(seen)] == [event.id for event in history.events]
    assert [progress_of(event) for event in replayed] == list(range(1, len(replayed) + 1))
    assert json.loads(answer.data)["error"]["data"] == {"mayHaveRun": True}
    ids = [event.id for event in (*replayed, answer)]
    for position in {0, len(seen) // 2, len(ids) - 1}:
        rest = await client.listen(ids[position])
        assert [event.id for event in await rest.rest()] == ids[position + 1 :], "every id is a valid cursor"
    # The session itself goes on.
    call = await client.send("POST", frame_of(2, "tools/call", name="count", arguments={"to": 2, "pause": 0}))
    assert call.status == 200


def progress_of(event: ServerSentEvent) -> int:
    number: int = json.loads(event.data)["params"]["progress"]
    return number
