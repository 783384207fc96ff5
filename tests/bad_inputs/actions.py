"""Cases of more than one step. Each function is named by cases of the catalogue and returns the reply to compare."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from attrs import evolve, frozen

from .catalogue import Case
from .process import ServerUnderTest
from .requests import compose
from .speaker import Speaker
from .wire import Connection, Reply


@frozen(kw_only=True)
class Scene:
    """The case, the server and the speaker that an action works with."""

    case: Case
    server: ServerUnderTest
    speaker: Speaker

    def send(self, data: bytes, method: str = "POST") -> Reply:
        """Send bytes on a connection of their own and read one reply."""
        with Connection(self.speaker.port) as connection:
            connection.send(data)
            return connection.read(method)


Action = Callable[[Scene], Reply]
ACTIONS: dict[str, Action] = {}


def action(fn: Action) -> Action:
    ACTIONS[fn.__name__] = fn
    return fn


# -- JSON


@action
def body_of_4_mib(scene: Scene) -> Reply:
    """A good request, padded to exactly the limit."""
    body = scene.speaker.message("tools/list")
    padded = body[:-1] + b" " * (4 * 1024 * 1024 - len(body)) + b"}"
    case = evolve(scene.case, kind="body", data={**scene.case.data, "body": [{"hex": padded.hex()}]})
    return scene.send(compose(case, scene.speaker))


# -- the envelope and the life of a session


@action
def long_id(scene: Scene) -> Reply:
    data = scene.case.data
    request_id: Any = int("9" * data["digits"]) if "digits" in data else "x" * data["letters"]
    reply = scene.speaker.ask("tools/list", None, request_id)
    assert reply.answer["id"] == request_id
    return reply


def start(scene: Scene, speaker: Speaker, tool: str, request_id: Any, **arguments: Any) -> Connection:
    """A call under way on a connection of its own."""
    connection = Connection(speaker.port)
    body = speaker.message("tools/call", {"name": tool, "arguments": arguments}, request_id)
    connection.send(speaker.head("POST", body) + body)
    return connection


def another(scene: Scene) -> Speaker:
    speaker = scene.server.speaker(scene.speaker.date)
    speaker.open_session()
    return speaker


@action
def answer_of_a_stranger(scene: Scene) -> Reply:
    """The owner of the question answers after a stranger did, and its answer counts."""
    asked, stranger = another(scene), scene.speaker
    with start(scene, asked, "ask", 1) as connection:
        reply = connection.read_until(connection.read_start(), b"elicitation/create")
        question = next(m for m in reply.messages if m.get("method") == "elicitation/create")
        kind = '"error":{"code":1,"message":"no"}' if scene.case.data.get("error") else '"result":{"action":"cancel"}'
        received = stranger.exchange(f'{{"jsonrpc":"2.0","id":{json.dumps(question["id"])},{kind}}}'.encode())
        result = {"action": "accept", "content": {"size": "XL"}}
        asked.exchange(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": result}).encode())
        while connection.read_more(reply):
            pass
        assert "XL" in json.dumps(reply.answer)
    asked.end_session()
    asked.close()
    return received


@action
def id_in_use(scene: Scene) -> Reply:
    request_id = scene.case.data.get("request_id", 1)
    with start(scene, scene.speaker, "wait", request_id, seconds=1.5) as first:
        reply = first.read_start() if not scene.speaker.modern else None  # it is under way: its stream has begun
        second = scene.speaker.call("echo", request_id, text="me too")
        if reply is None:
            reply = first.read_start()
        while first.read_more(reply):
            pass
        assert reply.answer["result"]["content"][0]["text"] == "waited"
        assert reply.answer["id"] == request_id
    return second


@action
def typed_ids(scene: Scene) -> Reply:
    one, two = scene.case.data["ids"]
    with start(scene, scene.speaker, "wait", one, seconds=0.3) as first:
        started = first.read_start()
        reply = scene.speaker.call("echo", two, text="quick")
        while first.read_more(started):
            pass
    assert started.answer["id"] == one
    assert type(started.answer["id"]) is type(one)
    return reply


@action
def id_again(scene: Scene) -> Reply:
    scene.speaker.ask(scene.case.data.get("first", "tools/list"))
    return scene.speaker.call("echo", 1, text="again")


@action
def early_request(scene: Scene) -> Reply:
    early = Speaker(scene.speaker.port, scene.speaker.date)
    early.session = early.exchange(early.initialize()).headers["mcp-session-id"]
    reply = early.ask(scene.case.data["method_called"])
    early.end_session()
    early.close()
    return reply


@action
def open_with(scene: Scene) -> Reply:
    client = Speaker(scene.speaker.port, "2025-11-25")
    reply = client.exchange(client.initialize(protocolVersion=scene.case.data["version"]))
    client.session = reply.headers.get("mcp-session-id")
    client.end_session()
    client.close()
    return reply


@action
def cancel_of_a_stranger(scene: Scene) -> Reply:
    request_id = scene.case.data.get("request_id", 77)
    victim = another(scene)
    with start(scene, victim, "wait", request_id, seconds=0.3) as connection:
        reply = connection.read_start()
        received = scene.speaker.tell("notifications/cancelled", {"requestId": request_id})
        assert received.status == 202
        while connection.read_more(reply):
            pass
    victim.end_session()
    victim.close()
    return reply


@action
def cursor_of_another_list(scene: Scene) -> Reply:
    page = scene.speaker.ask("tools/list").answer["result"]
    return scene.speaker.ask("prompts/list", {"cursor": page["nextCursor"]})


@action
def answers(scene: Scene) -> Reply:
    """Ask, and repeat the request with what the case says."""
    data = scene.case.data
    call = {"name": "ask", "arguments": {}}
    asked = scene.speaker.ask("tools/call", call).answer["result"]
    assert asked["resultType"] == "input_required"
    state = data.get("state", asked["requestState"])
    again = {**call, "inputResponses": json.loads(data["answers"]), "requestState": state}
    reply = scene.speaker.ask("tools/call", again, 2)
    result = reply.answer.get("result", {"resultType": "refused", "requestState": asked["requestState"]})
    if result["resultType"] != "complete":  # nothing is lost: the right answer still ends the call
        good = {"size": {"action": "accept", "content": {"size": "M"}}}
        last = {**call, "inputResponses": good, "requestState": result["requestState"]}
        assert scene.speaker.ask("tools/call", last, 3).answer["result"]["content"][0]["text"] == "M"
    return reply


@action
def listen_to_many(scene: Scene) -> Reply:
    uris = [f"note://{number}" for number in range(20_000)]
    return scene.speaker.ask("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})


# -- HTTP


@action
def expect_continue(scene: Scene) -> Reply:
    body = scene.speaker.message("tools/list")
    with Connection(scene.speaker.port) as connection:
        connection.send(scene.speaker.head("POST", body, headers={"expect": "100-continue"}))
        received = b""
        while b"\r\n\r\n" not in received:
            received += connection.receive()
        assert received.startswith(b"HTTP/1.1 100"), received
        connection.send(body)
        reply = connection.read()
        reply.informational.append(100)
        return reply


@action
def pipelined(scene: Scene) -> Reply:
    """Each request has its own id, so an answer in the wrong place is seen."""
    times = scene.case.data["times"]
    bodies = [scene.speaker.message("tools/list", None, number) for number in range(times)]
    with Connection(scene.speaker.port) as connection:
        connection.send(b"".join(scene.speaker.head("POST", body) + body for body in bodies))
        for number in range(times):
            reply = connection.read()
            assert reply.answer["id"] == number
    return reply


# -- URIs


@action
def long_uri(scene: Scene) -> Reply:
    """Over HTTP the name would not fit into its header, so the stateless form goes through its encoding on a socket."""
    uri = "note://" + "x" * (scene.case.data["size"] - 7)
    body = scene.speaker.message("resources/read", {"uri": uri})
    if not scene.speaker.modern:
        return scene.speaker.exchange(body)
    from .sockets import Socket, frame

    with Connection(scene.speaker.port) as connection:
        socket = Socket(scene.speaker, connection)
        connection.send(frame(body))
        reply = Reply()
        reply.status, reply.headers, reply.body = 200, {"content-type": "application/json"}, socket.receive()[1]
        return reply
