"""A worker is killed with a task, or with a call that waits for an answer: the other workers go on, or say so."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from mcptrio._actors.parking import REFUSED
from mcptrio._eras.stateless import NAMED_BY
from mcptrio._wire.sse import SseReader
from mcptrio.extensions.tasks.running import STOPPED
from tests.cli.test_workers import Cluster, serving
from tests.extensions.kit import WITH_TASKS
from tests.redis_server import running_server
from tests.stateless.kit import DATE, accept, meta

from .cluster_clients import Incoming

APP = str(Path(__file__).with_name("killed_work_app.py"))

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="--workers is refused there")


class StatelessClient:
    """Every request has a connection of its own, which any worker may accept."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder

    async def post(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return the answer; 503 is repeated."""
        named = {"mcp_name": params[NAMED_BY[method]]}
        frame = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta(WITH_TASKS)}}
        with trio.fail_after(60):
            while True:
                response = Incoming(self.cluster.port)
                try:
                    body = json.dumps(frame).encode()
                    await response.start("POST", body, None, mcp_protocol_version=DATE, mcp_method=method, **named)
                    data = await response.body()
                finally:
                    await response.close()
                if response.status != 503:
                    break
                await trio.sleep(0.1)
        if response.headers["content-type"].startswith("text/event-stream"):
            data = [event.data for event in SseReader(2**20).feed(data) if event.data][-1]
        answer: dict[str, Any] = json.loads(data)
        return answer

    async def call(self, tool: str, **more: Any) -> dict[str, Any]:
        return await self.post("tools/call", {"name": tool, "arguments": {}, **more})

    async def look(self, task: str, status: str) -> dict[str, Any]:
        """Poll a task until it has a status."""
        with trio.fail_after(60):
            while (seen := (await self.post("tasks/get", {"taskId": task}))["result"])["status"] != status:
                await trio.sleep(0.05)
        return dict(seen)

    async def notes(self, text: str, count: int = 0) -> list[int]:
        """Return the processes that have left a note, as soon as there are so many of them."""
        with trio.fail_after(60):
            while True:
                path = self.folder / "notes"
                lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
                found = [int(pid) for said, pid in lines if said == text]
                if len(found) >= count:
                    return found
                await trio.sleep(0.02)

    async def kill(self, worker: int) -> None:
        """Kill a worker, and wait until another one has taken its place."""
        os.kill(worker, signal.SIGKILL)
        with trio.fail_after(60):
            while worker in self.cluster.workers or len(self.cluster.workers) < 2:
                await trio.sleep(0.02)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[StatelessClient]:
    # The parent says which worker died: a lease that no load on this machine ends.
    options = ("--lease", "60", "--drain-timeout", "1")
    with (
        running_server() as redis,
        serving(tmp_path, "--store", redis.url, *options, app=APP, env={"WORK_FOLDER": str(tmp_path)}) as cluster,
    ):
        yield StatelessClient(cluster, tmp_path)


async def test_a_task_of_a_killed_worker_that_may_not_run_again_fails(client: StatelessClient) -> None:
    task = (await client.call("work"))["result"]["taskId"]
    (worker,) = await client.notes("begun", 1)
    await client.kill(worker)
    assert (await client.look(task, "failed"))["error"]["message"] == STOPPED
    assert await client.notes("begun") == [worker]


async def test_a_task_of_a_killed_worker_that_may_run_again_is_done(client: StatelessClient) -> None:
    task = (await client.call("work_again"))["result"]["taskId"]
    (worker,) = await client.notes("begun", 1)
    await client.kill(worker)
    _, next_worker = await client.notes("begun", 2)
    assert next_worker != worker
    await client.look(task, "working")
    (client.folder / "go").touch()
    assert (await client.look(task, "completed"))["result"]["content"][0]["text"] == "done"
    assert len(await client.notes("begun")) == 2


async def test_an_answer_to_a_killed_worker_is_refused_if_its_call_may_not_run_again(client: StatelessClient) -> None:
    asked = (await client.call("order"))["result"]
    (worker,) = await client.notes("begun", 1)
    await client.kill(worker)
    given = {"requestState": asked["requestState"], "inputResponses": {"name": accept(name="Ada")}}
    assert (await client.call("order", **given))["error"]["message"] == REFUSED
    assert await client.notes("begun") == [worker]


async def test_an_answer_to_a_killed_worker_is_used_once_if_its_call_may_run_again(client: StatelessClient) -> None:
    asked = (await client.call("order_again"))["result"]
    (worker,) = await client.notes("begun", 1)
    await client.kill(worker)
    given = {"requestState": asked["requestState"], "inputResponses": {"name": accept(name="Ada")}}
    answer = await client.call("order_again", **given)
    assert answer["result"]["content"][0]["text"] == "ordered-for-Ada"
    assert (await client.call("order_again", **given))["error"]["message"] == REFUSED
    first, second = await client.notes("begun")
    assert first == worker != second
    assert await client.notes("ordered-for-Ada") == [second]
