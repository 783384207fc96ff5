"""Steps around sessions, cursors and streams."""

from __future__ import annotations

import re
import time
from typing import Any

from .actions import Scene, action, another, start
from .program import token_of
from .speaker import Speaker
from .wire import Connection, Reply


def get(speaker: Speaker, **headers: Any) -> Connection:
    """A GET of events under way."""
    connection = Connection(speaker.port)
    connection.send(speaker.head("GET", headers={"content-length": None, **headers}))
    return connection


def ask(speaker: Speaker, method: str, **headers: Any) -> Reply:
    """One request on a connection of its own."""
    with Connection(speaker.port) as connection:
        body = speaker.message("tools/list") if method == "POST" else b""
        removed = {} if body else {"content-length": None}
        connection.send(speaker.head(method, body, headers={**removed, **headers}) + body)
        return connection.read(method)


@action
def long_session_id(scene: Scene) -> Reply:
    return ask(scene.speaker, "POST", **{"mcp-session-id": "x" * 8192})


@action
def two_session_ids(scene: Scene) -> Reply:
    one, two = another(scene), another(scene)
    reply = ask(scene.speaker, "POST", **{"mcp-session-id": f"{one.session}\r\nmcp-session-id: {two.session}"})
    for speaker in (one, two):
        assert speaker.call("echo", text="x").status == 200
        speaker.end_session()
        speaker.close()
    return reply


@action
def session_of_somebody_else(scene: Scene) -> Reply:
    """Compared byte by byte with the answer about a session that does not exist."""
    method = scene.case.data["http_method"]
    bob = f"Bearer {token_of('bob')}"
    theirs = ask(scene.speaker, method, authorization=bob)
    none = ask(scene.speaker, method, authorization=bob, **{"mcp-session-id": "unknown"})
    assert (theirs.status, theirs.body) == (none.status, none.body)
    assert {**theirs.headers, "date": ""} == {**none.headers, "date": ""}
    assert scene.speaker.call("echo", text="x").status == 200
    return theirs


@action
def after_delete(scene: Scene) -> Reply:
    assert ask(scene.speaker, "DELETE").status == 200
    return ask(scene.speaker, scene.case.data["http_method"])


@action
def delete_under_a_call(scene: Scene) -> Reply:
    connections = [start(scene, scene.speaker, "wait", 5, seconds=60)]
    if scene.case.data.get("stream"):
        connections.append(get(scene.speaker))
    replies = [connection.read_start() for connection in connections]
    deleted = ask(scene.speaker, "DELETE")
    for connection, reply in zip(connections, replies, strict=True):
        while connection.read_more(reply):
            pass
        assert reply.complete, "the stream was cut and not ended"
        connection.socket.close()
    return deleted


@action
def second_stream(scene: Scene) -> Reply:
    with get(scene.speaker) as first:
        assert first.read_start("GET").status == 200
        for _ in range(scene.case.data["times"]):
            reply = ask(scene.speaker, "GET")
        assert not first.is_closed(0.05)
    return reply


def call_with_cursor(scene: Scene, speaker: Speaker, seconds: float) -> tuple[Connection, Reply, str]:
    """A call whose stream has begun, and an id of an event on it."""
    connection = start(scene, speaker, "tell_and_wait", 9, seconds=seconds)
    reply = connection.read_start()
    while (found := re.search(rb"id: (\S+)", reply.body)) is None:
        assert connection.read_more(reply), f"the stream ended without an id: {reply}"
    return connection, reply, found[1].decode()


@action
def cursor(scene: Scene) -> Reply:
    """A cursor of one's own, changed; or that of a stranger."""
    change = scene.case.data["change"]
    owner = another(scene) if change.startswith("stranger") else scene.speaker
    connection, _, text = call_with_cursor(scene, owner, 0.2)
    with connection:
        stream, number, mac = text.split(".")
        changed = {
            "future": f"{stream}.{int(number) + 5}.{mac}",
            "mac": f"{stream}.{number}.{'A' * 16}",
            "stream": f"{int(stream) + 1}.{number}.{mac}",
            "double": f"{text}, {text}",
        }.get(change, text)
        reply = ask(scene.speaker, "GET", **{"last-event-id": changed})
    if owner is not scene.speaker:
        owner.end_session()
        owner.close()
    return reply


@action
def expired_cursor(scene: Scene) -> Reply:
    """Good while the stream is kept, and then never again."""
    connection, reply, text = call_with_cursor(scene, scene.speaker, 0.05)
    with connection:
        while connection.read_more(reply):
            pass
    end = time.monotonic() + 5
    while (again := ask(scene.speaker, "GET", **{"last-event-id": text})).status == 200:
        assert again.answer == reply.answer
        assert time.monotonic() < end, "the stream is still kept"
        time.sleep(0.1)
    return again


@action
def resume_while_connected(scene: Scene) -> Reply:
    connection, old, text = call_with_cursor(scene, scene.speaker, 0.4)
    readers = [(connection, old)]
    for _ in range(2 if scene.case.data.get("again") else 1):
        resumed = get(scene.speaker, **{"last-event-id": text})
        readers.append((resumed, resumed.read_start("GET")))
    for reader, reply in readers:
        while reader.read_more(reply):
            pass
        reader.socket.close()
    answered = [reply for _, reply in readers if reply.answer]
    assert answered == [readers[-1][1]], "exactly the newest reader has the answer"
    return answered[0]


@action
def resume_after(scene: Scene) -> Reply:
    connection, reply, text = call_with_cursor(scene, scene.speaker, 0.1)
    with connection:
        while connection.read_more(reply):
            pass
    replies = [ask(scene.speaker, "GET", **{"last-event-id": text}) for _ in range(2)]
    assert replies[0].answer == replies[1].answer == reply.answer
    return replies[0]
