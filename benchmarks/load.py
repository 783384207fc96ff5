"""The load client: raw sockets and pipes without a library, so that it uses less CPU time than any measured server.

It runs in the process of `run.py`; the servers run in child processes. `python benchmarks/load.py` prints the client's
own cost, measured against a server that always sends the same response.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import messages

TIMEOUT = 30.0


class Broken(Exception):
    """A contender did not send the expected response."""


class Connection:
    """One blocking HTTP connection."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def close(self) -> None:
        self.sock.close()

    def more(self) -> None:
        data = self.sock.recv(262144)
        if not data:
            raise Broken("the connection was closed")
        self.buffer += data

    def head(self, request: bytes) -> bytes:
        """Send a request and read the head of its response."""
        self.sock.sendall(request)
        while b"\r\n\r\n" not in self.buffer:
            self.more()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        return head

    def ask(self, request: bytes) -> tuple[bytes, bytes]:
        """Send a request and read its response: the head, and the body as received."""
        head = self.head(request)
        length = length_of(head)
        if length is None:
            while not self.buffer.endswith(b"0\r\n\r\n"):
                self.more()
            length = len(self.buffer)
        while len(self.buffer) < length:
            self.more()
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return head, body

    def until(self, text: bytes) -> bytes:
        """Read a stream until `text` was received; return everything up to and including it."""
        while text not in self.buffer:
            self.more()
        before, _, self.buffer = self.buffer.partition(text)
        return before + text


def length_of(head: bytes) -> int | None:
    """Return the length of the body, None if it is chunked."""
    head = head.lower()
    at = head.find(b"content-length:")
    if at >= 0:
        return int(head[at + 15 :].split(b"\r\n", 1)[0])
    return None if b"chunked" in head else 0


def open_session(port: int, **capabilities: dict[str, object]) -> tuple[Connection, str]:
    """Open a connection and a session on it; return both."""
    connection = Connection(port)
    head, body = connection.ask(messages.post(port, messages.initialize(capabilities)))
    at = head.lower().find(b"mcp-session-id:")
    if at < 0:
        raise Broken(f"initialize was answered with {head!r} {body!r}")
    session = head[at + 15 :].split(b"\r\n", 1)[0].strip().decode()
    connection.ask(messages.post(port, messages.INITIALIZED, session))
    return connection, session


def send_repeatedly(
    connections: Sequence[Connection], requests: Sequence[bytes], seconds: float, expect: bytes, rate: float = 0
) -> tuple[int, list[float]]:
    """Send each connection's request repeatedly for `seconds`, one at a time on each connection.

    Returns the number of responses and the duration of each. With `rate`, that many requests are started per second, on
    any free connection; without it, a request is started as soon as the previous one on its connection is answered.
    """
    epoll = select.epoll()
    socks = {c.sock.fileno(): (c.sock, request) for c, request in zip(connections, requests, strict=True)}
    for fileno, (sock, _) in socks.items():
        sock.setblocking(False)
        epoll.register(fileno, select.EPOLLIN)
    began = dict.fromkeys(socks, 0.0)
    wanted = dict.fromkeys(socks, 0)  # length of the whole response; -1: it is chunked
    parts: dict[int, bytes] = {}
    took: list[float] = []
    free = list(socks)
    start = time.perf_counter()
    end = start + seconds
    sent = 0
    clock = time.perf_counter
    try:
        while True:
            now = clock()
            if now < end:
                while free and (not rate or sent < (now - start) * rate):
                    fileno = free.pop()
                    # A late request counts from the time at which it was due.
                    began[fileno] = start + sent / rate if rate else clock()
                    socks[fileno][0].send(socks[fileno][1])
                    sent += 1
            elif len(free) == len(socks):
                return sent, took
            elif now > end + TIMEOUT:
                raise Broken(f"no response within {TIMEOUT:.0f} s")
            for fileno, _ in epoll.poll(0.001 if rate else 1.0):
                data = socks[fileno][0].recv(262144)
                if not data:
                    raise Broken("the connection was closed")
                if fileno in parts:
                    data = parts.pop(fileno) + data
                if not wanted[fileno]:
                    at = data.find(b"\r\n\r\n")
                    if at < 0:
                        parts[fileno] = data
                        continue
                    length = length_of(data[:at])
                    wanted[fileno] = -1 if length is None else at + 4 + length
                if len(data) < wanted[fileno] or (wanted[fileno] < 0 and not data.endswith(b"0\r\n\r\n")):
                    parts[fileno] = data
                    continue
                if expect not in data:
                    raise Broken(f"answered with {data[:500]!r}")
                wanted[fileno] = 0
                took.append(clock() - began[fileno])
                free.append(fileno)
    finally:
        epoll.close()
        for sock, _ in socks.values():
            sock.setblocking(True)
            sock.settimeout(TIMEOUT)


class Pipe:
    """The client end of a child process that serves stdio."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        self.to, self.from_ = child.stdin.fileno(), child.stdout.fileno()
        self.rest = b""

    def open(self) -> None:
        self.ask([messages.initialize()])
        os.write(self.to, messages.INITIALIZED + b"\n")

    def ask(self, requests: Sequence[bytes]) -> bytes:
        """Send requests in one write, wait until all are answered, and return the last response."""
        os.write(self.to, b"\n".join(requests) + b"\n")
        left = len(requests)
        line = b""
        while left:
            data = os.read(self.from_, 262144)
            if not data:
                raise Broken("the pipe was closed")
            *lines, self.rest = (self.rest + data).split(b"\n")
            for line in lines:
                left -= b'"result"' in line
        return line


# -- the client's own cost


def serve_one_answer(port: int) -> None:
    """Send the same response to everything that ends with a brace."""
    body = b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"3"}]}}'
    answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    epoll = select.epoll()
    with socket.create_server(("127.0.0.1", port)) as listener:
        epoll.register(listener.fileno(), select.EPOLLIN)
        open_: dict[int, socket.socket] = {}
        while True:
            for fileno, _ in epoll.poll():
                if fileno == listener.fileno():
                    sock, _address = listener.accept()
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    open_[sock.fileno()] = sock
                    epoll.register(sock.fileno(), select.EPOLLIN)
                elif data := open_[fileno].recv(65536):
                    if data.endswith(b"}"):
                        open_[fileno].send(answer)
                else:
                    epoll.unregister(fileno)
                    open_.pop(fileno).close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def wait_for(port: int, child: subprocess.Popen[bytes]) -> None:
    for _ in range(int(TIMEOUT / 0.01)):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if child.poll() is not None:
                raise Broken(f"the server ended with exit code {child.returncode}") from None
            time.sleep(0.01)
    raise Broken(f"the server did not listen within {TIMEOUT:.0f} s")


def own_cost(seconds: float = 1.0) -> float:
    """Return the CPU seconds that the client needs for one call, at sixteen connections."""
    port = free_port()
    child = subprocess.Popen([sys.executable, __file__, "--serve", str(port)])
    try:
        wait_for(port, child)
        connections = [Connection(port) for _ in range(16)]
        requests = [messages.post(port, messages.call("add", {"a": 1, "b": 2}), "x" * 32)] * 16
        before = time.process_time()
        count, _ = send_repeatedly(connections, requests, seconds, b'"3"')
        return (time.process_time() - before) / count
    finally:
        child.kill()
        child.wait()


def main(arguments: Sequence[str]) -> Iterator[str]:
    if arguments[:1] == ["--serve"]:
        serve_one_answer(int(arguments[1]))
    yield f"the client itself: {own_cost() * 1e6:.0f} µs of CPU time per call"


if __name__ == "__main__":
    for said in main(sys.argv[1:]):
        print(said)
