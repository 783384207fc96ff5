"""Peers that are slow, stop, or vanish."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from .actions import Scene, action, start
from .wire import Connection, Reply


def trickle(connection: Connection, data: bytes, pause: float, within: float = 30.0) -> None:
    """Send byte by byte until the server has had enough."""
    end = time.monotonic() + within
    connection.socket.settimeout(pause)
    for at in range(len(data)):
        connection.send(data[at : at + 1])
        try:
            if connection.socket.recv(1, socket.MSG_PEEK) is not None:
                break
        except TimeoutError:
            assert time.monotonic() < end, "the server is still waiting"
    connection.socket.settimeout(20)


@action
def slow_head(scene: Scene) -> Reply:
    head = scene.speaker.head("POST", b"{}")
    with Connection(scene.speaker.port) as connection:
        if scene.case.data["pause"] < 1:
            trickle(connection, head, scene.case.data["pause"])
        else:
            connection.send(head[: len(head) // 2])
        return connection.read()


@action
def slow_body(scene: Scene) -> Reply:
    body = scene.speaker.message("tools/list")
    chunks = scene.case.data.get("chunks", False)
    change = {"content-length": None, "transfer-encoding": "chunked"} if chunks else {}
    with Connection(scene.speaker.port) as connection:
        connection.send(scene.speaker.head("POST", body, headers=change))
        if scene.case.data["pause"] < 1:
            trickle(connection, body, scene.case.data["pause"])
        else:
            connection.send(b"%x\r\n%b\r\n" % (len(body), body) if chunks else body[: len(body) // 2])
        return connection.read()


@action
def silence(scene: Scene) -> Reply:
    with Connection(scene.speaker.port) as connection:
        time.sleep(scene.case.data.get("pause", 0))
        connection.socket.settimeout(20)
        said = connection.receive()
        assert said == b"", said
    return Reply()


def open_connections(scene: Scene) -> int:
    return sum(name.startswith("connection ") for name in scene.server.state()["names"])


@action
def stalled_reader(scene: Scene) -> Reply:
    """A stateless call is cancelled with it; a stateful one goes on without its connection, until its session ends."""
    speaker = scene.speaker
    meta = {"_meta": {"io.modelcontextprotocol/logLevel": "debug"}} if speaker.modern else {}
    stalled = []
    for number in range(scene.case.data.get("times", 1)):
        connection = Connection(speaker.port, receive_buffer=4096)
        body = speaker.message("tools/call", {"name": "flood", "arguments": {}, **meta}, number)
        connection.send(speaker.head("POST", body) + body)
        reply = connection.read_start()
        stalled.append(connection)
    before = open_connections(scene)
    end = time.monotonic() + 30
    while open_connections(scene) > before - len(stalled):
        assert time.monotonic() < end, "the server still waits for a reader that has stopped"
        time.sleep(0.05)
    for connection in stalled:
        connection.socket.close()
    return reply


@action
def gone_after_request(scene: Scene) -> Reply:
    """Whether the call went on to its end is asked of the server afterwards."""
    mark = f"{time.monotonic()}"
    modern = scene.speaker.modern  # it is cancelled; otherwise it goes on to its end
    connection = start(scene, scene.speaker, "slow_mark", 4, text=mark, seconds=20 if modern else 0.25)
    connection.send(scene.case.data.get("behind", "").encode())
    wait_until(lambda: "true" in str(scene.speaker.call("marked", text=f"{mark} begun").body))
    assert not modern or is_running(scene, "slow_mark")
    match scene.case.data["how"]:
        case "half":
            connection.socket.shutdown(socket.SHUT_WR)
        case "close":
            connection.socket.close()
        case "reset":
            connection.reset()
    if modern:
        wait_until(lambda: not is_running(scene, "slow_mark"))
    else:
        wait_until(lambda: "true" in str(scene.speaker.call("marked", text=mark).body))
    connection.socket.close()
    return scene.speaker.call("marked", text=mark)


def is_running(scene: Scene, tool: str) -> bool:
    return any(tool in name for name in scene.server.state()["names"])


def wait_until(condition: Callable[[], bool], within: float = 30.0) -> None:
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@action
def reset_in(scene: Scene) -> Reply:
    speaker = scene.speaker
    body = speaker.message("tools/list")
    connection = Connection(speaker.port)
    match scene.case.data["where"]:
        case "head":
            connection.send(speaker.head("POST", body)[:60])
        case "body":
            connection.send(speaker.head("POST", body) + body[:10])
        case "chunk":
            change = {"content-length": None, "transfer-encoding": "chunked"}
            connection.send(speaker.head("POST", body, headers=change) + b"ff\r\n" + body[:10])
        case "answer":
            call = speaker.message("tools/call", {"name": "wait", "arguments": {"seconds": 0.2}}, 8)
            connection.send(speaker.head("POST", call) + call)
            connection.read_start()
    time.sleep(0.02)
    connection.reset()
    return speaker.call("echo", text="still here")


@action
def quiet_listener(scene: Scene) -> Reply:
    with Connection(scene.speaker.port) as connection:
        connection.send(scene.speaker.head("GET", headers={"content-length": None}))
        reply = connection.read_start("GET")
        assert not connection.is_closed(scene.case.data.get("seconds", 1.0))
    reply.body = b""
    return reply


@action
def leaves_early(scene: Scene) -> Reply:
    speaker = scene.speaker
    for number in range(scene.case.data["times"]):
        connection = start(scene, speaker, "count", number, to=3)
        connection.read_start()
        if scene.case.data.get("reset"):
            connection.reset()
        connection.socket.close()
    return speaker.call("echo", text="still here")
