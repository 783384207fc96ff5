"""Cases on a WebSocket: a handshake that is wrong, or frames that are."""

from __future__ import annotations

import json
import random
import struct
import time
from typing import Any

from .actions import Scene, action
from .catalogue import Case, fill, to_bytes
from .process import ServerUnderTest
from .speaker import Speaker
from .verdicts import judge
from .wire import Connection, Reply

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
MASK = b"\x11\x22\x33\x44"


def handshake(speaker: Speaker, headers: dict[str, Any], extra: tuple[bytes, ...] = ()) -> bytes:
    """A request to become a WebSocket; `headers` replace those it should have."""
    fields: dict[str, Any] = {
        "host": f"127.0.0.1:{speaker.port}",
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": KEY,
        "sec-websocket-protocol": "mcp",
        **{name: fill(value, speaker) if isinstance(value, str) else value for name, value in headers.items()},
    }
    lines = [f"{name}: {value}".encode() for name, value in fields.items() if value is not False]
    return b"\r\n".join([b"GET /mcp HTTP/1.1", *lines, *extra]) + b"\r\n\r\n"


def frame(
    payload: bytes, *, op: int = 1, fin: bool = True, rsv: int = 0, masked: bool = True, length: int | None = None
) -> bytes:
    """One frame (RFC 6455 section 5.2), right or wrong; `length` is what it claims to have."""
    size = len(payload) if length is None else length
    first = (0x80 if fin else 0) | rsv << 4 | op
    mask = 0x80 if masked else 0
    if size < 126:
        head = struct.pack("!BB", first, mask | size)
    elif size < 65536:
        head = struct.pack("!BBH", first, mask | 126, size)
    else:
        head = struct.pack("!BBQ", first, mask | 127, size)
    if not masked:
        return head + payload
    key = int.from_bytes((MASK * (len(payload) // 4 + 1))[: len(payload)], "big")
    return head + MASK + (int.from_bytes(payload, "big") ^ key).to_bytes(len(payload), "big")


class Socket:
    """An open WebSocket, read frame by frame."""

    def __init__(self, speaker: Speaker, connection: Connection) -> None:
        self.connection = connection
        self.speaker = speaker
        connection.send(handshake(speaker, {}))
        head = b""
        while b"\r\n\r\n" not in head:
            piece = connection.receive()
            assert piece, f"no handshake: {head!r}"
            head += piece
        assert head.startswith(b"HTTP/1.1 101"), head
        self._buffer = head.partition(b"\r\n\r\n")[2]

    def _take(self, count: int) -> bytes:
        while len(self._buffer) < count:
            piece = self.connection.receive()
            if not piece:
                raise EOFError
            self._buffer += piece
        data, self._buffer = self._buffer[:count], self._buffer[count:]
        return data

    def receive(self) -> tuple[int, bytes]:
        """The next message, but for pings: its kind and what it carries."""
        kind, payload, last = self._frame()
        while not last:
            _, more, last = self._frame()
            payload += more
        return kind, payload

    def _frame(self) -> tuple[int, bytes, bool]:
        """The next frame, but for pings: its kind, what it carries, and whether it ends its message."""
        first, second = self._take(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", self._take(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", self._take(8))
        payload = self._take(size)
        return self._frame() if first & 0x0F in (9, 10) else (first & 0x0F, payload, first >= 0x80)

    def open_session(self) -> None:
        if not self.speaker.modern:
            self.connection.send(frame(self.speaker.initialize()))
            assert json.loads(self.receive()[1])["result"]["protocolVersion"] == self.speaker.date
            self.connection.send(frame(self.speaker.message("notifications/initialized", None, None)))

    def closing_code(self) -> int:
        """The code in the closing frame, whatever comes before it; 0 if there is none."""
        while True:
            try:
                kind, payload = self.receive()
            except (EOFError, TimeoutError):
                return 0
            if kind == 8:
                return int.from_bytes(payload[:2], "big")


def run(case: Case, server: ServerUnderTest) -> None:
    data, speaker = case.data["ws"], server.speaker(case.date)
    with Connection(server.port) as connection:
        if "frames" not in data and "say" not in data:
            extra = tuple(to_bytes(line, speaker) for line in data.get("extra", ()))
            connection.send(handshake(speaker, data.get("headers", {}), extra))
            judge(connection.read("GET"), case.expect)
            return
        socket = Socket(speaker, connection)
        if data.get("session", True):
            socket.open_session()
        if "say" in data:
            connection.send(frame(to_bytes(data["say"], speaker)))
            kind, payload = socket.receive()
            assert kind == 1
            reply = Reply()
            reply.status, reply.headers, reply.body = 200, {"content-type": "application/json"}, payload
            judge(reply, {"status": 200, **case.expect})
            return
        for one in data["frames"]:
            options = {key: one[key] for key in ("op", "fin", "rsv", "masked", "length") if key in one}
            connection.send(frame(to_bytes(one.get("payload", ""), speaker), **options))
        assert socket.closing_code() == case.expect["close"]
        assert connection.is_closed()


# -- what takes more


@action
def garbage_in_handshakes(scene: Scene) -> Reply:
    """Random bytes in random places of a handshake: each is refused, none is left without a reply."""
    chance = random.Random(scene.case.data["seed"])
    good = handshake(scene.speaker, {})
    begin = good.index(b"connection:")
    for _ in range(scene.case.data["times"]):
        at = chance.randrange(begin, len(good) - 4)
        garbage = bytes(chance.choices((*range(0x80, 0x100), *range(0x20), 0x7F), k=chance.randrange(1, 6)))
        with Connection(scene.speaker.port) as connection:
            connection.send(good[:at] + garbage + good[at + chance.randrange(3) :])
            status = connection.read("GET").status
            assert status in (400, 403, 404, 405, 406, 415, 421, 426, 431, 505), (status, at, garbage)
    reply = Reply()
    reply.status = 400
    return reply


@action
def garbage_after_handshakes(scene: Scene) -> Reply:
    """Random bytes right behind a good handshake: the socket ends with a code, and nothing else does."""
    chance = random.Random(scene.case.data["seed"])
    for _ in range(scene.case.data["times"]):
        with Connection(scene.speaker.port) as connection:
            connection.send(handshake(scene.speaker, {}) + chance.randbytes(chance.randrange(1, 40)))
            end = time.monotonic() + 5
            connection.socket.settimeout(0.05)
            try:
                while connection.socket.recv(4096) and time.monotonic() < end:
                    pass
            except (TimeoutError, ConnectionResetError):
                pass  # it may be waiting for the rest of a frame that began well
    reply = Reply()
    reply.status = 400
    return reply


@action
def aborted_handshakes(scene: Scene) -> Reply:
    """Handshakes that are left in the middle, or right after them."""
    good = handshake(scene.speaker, {})
    for number in range(scene.case.data["times"]):
        with Connection(scene.speaker.port) as connection:
            connection.send(good if number % 2 else good[: len(good) // 2])
            if number % 3:
                connection.reset()
    reply = Reply()
    reply.status = 400
    return reply


@action
def socket_that_does_not_read(scene: Scene) -> Reply:
    """More is sent than any buffer holds: the socket ends after the deadline of a write, and its call with it."""
    with Connection(scene.speaker.port, receive_buffer=4096) as connection:
        socket = Socket(scene.speaker, connection)
        socket.open_session()
        meta = {"_meta": {"io.modelcontextprotocol/logLevel": "debug"}} if scene.speaker.modern else {}
        call = scene.speaker.message("tools/call", {"name": "flood", "arguments": {}, **meta})
        connection.send(frame(call))
        end = time.monotonic() + 8
        while time.monotonic() < end and scene.server.state()["sessions"] > scene.server.baseline["sessions"]:
            time.sleep(0.05)
        assert time.monotonic() < end, "the session is still there"
    reply = Reply()
    reply.status = 400
    return reply
