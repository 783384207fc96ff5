"""Tasks that run in one worker, answered and cancelled over a WebSocket at another: the socket stays where it is."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from attrs import define

from mcptrio.auth.server import Principal
from mcptrio.cluster.cluster import WorkerCluster
from mcptrio.extensions.tasks import Tasks
from mcptrio.extensions.tasks.running import RunningTasks
from mcptrio.stores.redis.tasks import SharedTasks
from mcptrio.transports.http_server.endpoint.message import HttpRequest
from mcptrio.transports.websocket.server import serve_websocket
from tests.extensions.kit import WITH_TASKS
from tests.redis_server import RedisServer
from tests.stateless.kit import Json, accept, meta

from .posting import ADA, EVE, PostingWorker, posting_workers
from .test_tasks_across import about, answer, begin, look, make_server, text_of
from .two_workers import until


@define(eq=False)
class TaskSocket:
    """A client with a WebSocket to one worker."""

    to_app: trio.MemorySendChannel[Json]
    from_app: trio.MemoryReceiveChannel[Json]
    last_id: int = 0

    async def ask(self, method: str, task: str, **more: Any) -> Json:
        """Send a request about a task; return the whole response."""
        self.last_id += 1
        params = {"taskId": task, "_meta": meta(WITH_TASKS), **more}
        frame = {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}
        await self.to_app.send({"type": "websocket.receive", "text": json.dumps(frame)})
        with trio.fail_after(30):
            while (event := await self.from_app.receive())["type"] != "websocket.send":
                pass
        response: Json = json.loads(event["text"])
        assert response["id"] == self.last_id
        return response


@asynccontextmanager
async def socket_to(worker: PostingWorker, principal: Principal | None = None) -> AsyncIterator[TaskSocket]:
    to_app, receive = trio.open_memory_channel[Json](10)
    send, from_app = trio.open_memory_channel[Json](100)
    endpoint = worker.poster.endpoint

    async def sign_in(head: HttpRequest) -> Principal | None:
        return principal

    if principal is not None:
        endpoint.authenticator = sign_in
    scope = {
        "type": "websocket",
        "path": "/mcp",
        "headers": [(b"host", b"localhost")],
        "subprotocols": ["mcp"],
        "extensions": {},
        "query_string": b"",
        "client": ("127.0.0.1", 1000),
        "http_version": "1.1",
    }
    async with trio.open_nursery() as nursery:
        await to_app.send({"type": "websocket.connect"})
        nursery.start_soon(serve_websocket, endpoint, scope, receive.receive, send.send)
        yield TaskSocket(to_app, from_app)
        await to_app.send({"type": "websocket.disconnect"})


async def test_a_task_of_another_worker_is_answered_over_a_socket(redis_server: RedisServer) -> None:
    async with posting_workers(make_server, redis_server.url) as (one, other), socket_to(other) as socket:
        task = await begin(one.poster, "plain")
        await look(one.poster, task, "input_required")
        assert (await socket.ask("tasks/get", task))["result"]["status"] == "input_required"
        updated = await socket.ask("tasks/update", task, inputResponses={"name": accept(name="Ada")})
        assert "error" not in updated
        one.cue.set()
        await look(one.poster, task, "completed")
        assert text_of((await socket.ask("tasks/get", task))["result"]) == "ordered for Ada by anyone"
        assert "error" not in await socket.ask("tasks/cancel", task)  # over: nothing to do
        assert other.trail.done == []


async def test_a_task_of_another_worker_is_cancelled_over_a_socket(redis_server: RedisServer) -> None:
    async with posting_workers(make_server, redis_server.url) as (one, other), socket_to(other) as socket:
        task = await begin(one.poster, "plain")
        await look(one.poster, task, "input_required")
        assert "error" not in await socket.ask("tasks/cancel", task)
        await until(lambda: one.trail.done == ["begun", "cancelled"])
        assert (await socket.ask("tasks/get", task))["result"]["status"] == "cancelled"


async def test_the_task_of_another_principal_is_unknown_over_a_socket(redis_server: RedisServer) -> None:
    async with posting_workers(make_server, redis_server.url) as (one, other), socket_to(other, EVE) as socket:
        task = await begin(one.as_principal(ADA), "plain")
        await look(one.as_principal(ADA), task, "input_required")
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            given = {"inputResponses": {"name": accept(name="Eve")}} if method == "tasks/update" else {}
            refusals = [(await socket.ask(method, name, **given))["error"] for name in (task, "invented")]
            assert refusals[0] == refusals[1]
        assert one.trail.done == ["begun"]
        await answer(one.as_principal(ADA), task)
        await until(lambda: "ordered for Ada" in one.trail.done)


async def test_the_owner_of_a_task_is_known_at_its_worker(redis_server: RedisServer) -> None:
    async with posting_workers(make_server, redis_server.url) as (one, other), socket_to(other, ADA) as socket:
        task = await begin(one.as_principal(ADA), "plain")
        await look(one.as_principal(ADA), task, "input_required")
        assert "error" not in await socket.ask("tasks/update", task, inputResponses={"name": accept(name="Ada")})
        await until(lambda: "ordered for Ada" in one.trail.done)


async def test_an_answer_that_comes_as_a_stream(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker of the task takes longer than `stream_after`, as a busy one may."""
    update = Tasks.update

    async def late(self: Tasks, ctx: Any, params: Any) -> Any:
        if self is tasks_of(one):
            await trio.sleep(0.2)
        return await update(self, ctx, params)

    monkeypatch.setattr(Tasks, "update", late)
    async with posting_workers(make_server, redis_server.url) as (one, other), socket_to(other) as socket:
        task = await begin(one.poster, "plain")
        await look(one.poster, task, "input_required")
        assert "error" not in await socket.ask("tasks/update", task, inputResponses={"name": accept(name="Ada")})
        await until(lambda: "ordered for Ada" in one.trail.done)


def tasks_of(worker: PostingWorker) -> object:
    return worker.server._app.extensions.get(Tasks.identifier)


async def test_a_worker_that_refuses_says_why(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with posting_workers(make_server, redis_server.url) as (one, other), socket_to(other) as socket:
        task = await begin(one.poster, "plain")
        await look(one.poster, task, "input_required")
        one.poster.endpoint.runtime.supervisor.begin_drain()  # it gives up what waits for clients
        error = (await socket.ask("tasks/cancel", task))["error"]
        assert "repeat the request" in error["message"]
        assert error["data"]["retryAfter"] == 1


async def test_a_request_that_was_forwarded_is_not_sent_on(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R5: two workers that take each other for the home of a task must not pass a request to and fro."""
    async with posting_workers(make_server, redis_server.url) as (one, other):
        task = await begin(one.poster, "plain")
        await look(one.poster, task, "input_required")
        home, forwards = WorkerCluster.forward_to, list[str]()

        async def counted(self: WorkerCluster, worker: str, *args: Any) -> Any:
            forwards.append(worker)
            return await home(self, worker, *args)

        async def at_the_other(self: SharedTasks, id: str) -> str:
            return other.id if self is one.store.tasks else one.id

        monkeypatch.setattr(WorkerCluster, "forward_to", counted)
        monkeypatch.setattr(SharedTasks, "home", at_the_other)
        monkeypatch.setattr(RunningTasks, "get", lambda self, task: None)
        reply = await about(other.poster, "tasks/cancel", task)
        assert reply.status == 503
        assert forwards == [one.id]
