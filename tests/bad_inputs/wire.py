"""A minimal HTTP client: bytes are sent as they are, replies are read with h11. Every wait has a deadline."""

from __future__ import annotations

import json
import socket
import struct
import time
from contextlib import suppress
from typing import Any

import h11

from mcptrio._wire.sse import SseReader

TIMEOUT = 10.0
"""The longest time to wait for anything, in seconds."""


class Reply:
    """One response."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.complete = False
        self.informational: list[int] = []

    @property
    def messages(self) -> list[Any]:
        """The JSON-RPC messages in it, from plain JSON or from events."""
        kind = self.headers.get("content-type", "")
        if kind.startswith("application/json"):
            found = json.loads(self.body)
            return found if isinstance(found, list) else [found]
        if kind.startswith("text/event-stream"):
            return [json.loads(event.data) for event in SseReader().feed(self.body) if event.data]
        return []

    @property
    def answer(self) -> dict[str, Any]:
        """The message that is a result or an error."""
        for message in self.messages:
            if "result" in message or "error" in message:
                return dict(message)
        return {}

    def __repr__(self) -> str:
        return f"<{self.status} {self.headers} {self.body[:400]!r}>"


class Connection:
    """One connection to the server under test."""

    def __init__(self, port: int, *, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(TIMEOUT)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._parser = self._fresh("POST")
        self._spare = b""

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    @staticmethod
    def _fresh(method: str) -> h11.Connection:
        parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        parser.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        parser.send(h11.EndOfMessage())
        return parser

    def send(self, data: bytes) -> None:
        """Send everything; a server that stops reading and closes is not an error of the test."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def receive(self) -> bytes:
        if self._spare:
            data, self._spare = self._spare, b""
            return data
        try:
            return self.socket.recv(65536)
        except ConnectionResetError:
            return b""

    def read_start(self, method: str = "POST") -> Reply:
        """The head of the next response."""
        self._parser = self._fresh(method)
        reply = Reply()
        while True:
            event = self._parser.next_event()
            if event is h11.NEED_DATA:
                data = self.receive()
                if not data:
                    raise EOFError("the server closed without a response")
                self._parser.receive_data(data)
            elif isinstance(event, h11.InformationalResponse):
                reply.informational.append(event.status_code)
            else:
                assert isinstance(event, h11.Response)
                reply.status = event.status_code
                reply.headers = {name.decode(): value.decode("latin-1") for name, value in event.headers}
                return reply

    def read_more(self, reply: Reply) -> bool:
        """Another piece of the body; False at its end."""
        while True:
            event = self._parser.next_event()
            if event is h11.NEED_DATA:
                self._parser.receive_data(self.receive())
            elif isinstance(event, h11.Data):
                reply.body += bytes(event.data)
                return True
            else:
                reply.complete = isinstance(event, h11.EndOfMessage)
                self._spare = self._parser.trailing_data[0]
                return False

    def read(self, method: str = "POST") -> Reply:
        reply = self.read_start(method)
        while self.read_more(reply):
            pass
        return reply

    def read_until(self, reply: Reply, text: bytes) -> Reply:
        while text not in reply.body:
            assert self.read_more(reply), f"the stream ended without {text!r}: {reply}"
        return reply

    def is_closed(self, within: float = 3.0) -> bool:
        """Whether the server ends the connection soon, and says nothing more before it does."""
        end = time.monotonic() + within
        while (left := end - time.monotonic()) > 0:
            self.socket.settimeout(left)
            try:
                if not self.socket.recv(65536):
                    return True
            except TimeoutError:
                return False
            except OSError:
                return True
            finally:
                self.socket.settimeout(TIMEOUT)
        return False

    def reset(self) -> None:
        """Reset the connection."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
