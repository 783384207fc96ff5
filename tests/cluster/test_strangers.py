"""One principal tries to reach the session of another at both workers: before, during and after a takeover."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from mcptrio.stores.redis.directory import RedisDirectory
from tests.transports.app_for_tests import Client, Reader, notification, plain, request, result_of

from .test_remembered import drain
from .test_two_workers import by_header, kill
from .two_workers import Worker, two_workers, until

ADA, EVE = {"x_user": "ada"}, {"x_user": "eve"}


def answer_to(question: Any, uri: str) -> bytes:
    result = {"roots": [{"uri": uri}]}
    return json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": result}).encode()


async def attack(worker: Worker, session_id: str, question: Any, cursor: str) -> None:
    """Send every kind of request for the session of another, and for an invented one: the answers are the same."""
    letter = "A" if session_id[5] != "A" else "B"
    invented = session_id[:5] + letter + session_id[6:]
    answers = []
    for name in (session_id, invented):
        eve = Client(worker.endpoint, name, EVE)
        answers.append(
            [
                await eve.post(request(1, "ping")),
                await eve.post(request(2, "echo", say="hello")),
                await eve.post(notification("notifications/cancelled", requestId=1)),
                await eve.post(answer_to(question, "file:///eve")),
                await eve.refused(),
                await eve.refused(cursor),
                await plain(worker.endpoint, eve.head("DELETE")),
            ]
        )
    assert answers[0] == answers[1]
    assert {reply.status for reply in answers[0]} == {404}


async def ask(client: Client) -> tuple[Reader, Any, str]:
    """Begin a call that asks; return its stream, the question, and the id of an event before it."""
    reader = await client.stream(request(1, "ask", tell=1))
    cursor = ""
    while (event := await reader.event()) is not None:
        frame = json.loads(event.data) if event.data else {}
        if frame.get("method") == "roots/list":
            return reader, frame, cursor
        cursor = event.id
    raise AssertionError("the stream ended without a question")


async def test_the_session_of_another_at_its_home_and_elsewhere(url: str) -> None:
    async with two_workers(url, authenticator=by_header) as (one, other):
        ada = await Client.open(one.endpoint, extra=ADA, roots={})
        eves = [await Client.open(worker.endpoint, extra=EVE, roots={}) for worker in (one, other)]
        reader, question, cursor = await ask(other.client(ada))
        for worker in (one, other):
            await attack(worker, ada.session_id, question, cursor)
            for eve in eves:  # the same id of a question, call and event, in sessions of her own
                here = worker.client(eve)
                assert (await here.post(answer_to(question, "file:///eve"))).status == 202
                assert (await here.post(notification("notifications/cancelled", requestId=1))).status == 202
                assert (await here.refused(cursor)).status == 400
        assert (await other.client(ada).post(answer_to(question, "file:///ada"))).status == 202
        assert (await reader.frame())["result"] == {"answer": {"roots": [{"uri": "file:///ada"}]}}


async def test_the_session_of_another_while_it_is_taken_over(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with two_workers(url, authenticator=by_header) as (one, other), trio.open_nursery() as nursery:
        ada = await Client.open(one.endpoint, extra=ADA, roots={})
        eve = await Client.open(other.endpoint, extra=EVE)
        reader, question, cursor = await ask(ada)
        reader.hang_up()
        claim, claims, goes_on = RedisDirectory.claim, list[str](), trio.Event()

        async def slow(self: RedisDirectory, session: str, *args: Any) -> Any:
            claims.append(session)
            found = await claim(self, session, *args)
            await goes_on.wait()
            return found

        replies = list[Any]()

        async def come_back() -> None:
            replies.append(await other.client(ada).post(request(2, "echo", say="ada")))

        await kill(one, other)
        monkeypatch.setattr(RedisDirectory, "claim", slow)
        await attack(other, ada.session_id, question, cursor)
        assert claims == []  # they do not begin a takeover either
        nursery.start_soon(come_back)
        await until(lambda: claims == [ada.session_id])
        with trio.fail_after(10):  # they do not wait for it
            await attack(other, ada.session_id, question, cursor)
        goes_on.set()
        await until(lambda: replies)
        assert result_of(replies[0]) == {"echo": "ada"}
        await attack(other, ada.session_id, question, cursor)
        assert (await eve.refused(cursor)).status == 400
        assert other.client(ada).session.principal.subject == "ada"
        *_, last = await (await other.client(ada).listen(cursor)).rest()
        assert json.loads(last.data)["error"]["data"] == {"mayHaveRun": True}


async def test_the_session_of_another_while_its_worker_drains(url: str) -> None:
    async with two_workers(url, authenticator=by_header) as (one, other):
        ada = await Client.open(one.endpoint, extra=ADA)
        await drain(one)
        for worker in (one, other):
            await attack(worker, ada.session_id, {"id": 1}, "1.1.x")
        assert list(other.sessions) == []
        assert result_of(await ada.post(request(2, "ping"))) == {}
        assert list(other.sessions) == [ada.session_id]
        for worker in (one, other):
            await attack(worker, ada.session_id, {"id": 1}, "1.1.x")
