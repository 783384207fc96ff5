"""A hostile peer: `python -m tests.faults.hostile_peer ATTACK PORT SECONDS`, with its token in `MCPTRIO_TEST_TOKEN`.

`MCPTRIO_TEST_BOUND` has a token that is bound to a key (DPoP), and the key.

It is a process of its own, so that its work does not delay the clients that a test measures, and it has an address of
its own where the system allows (127.0.0.2).
"""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, Final

import trio
from attrs import define, field
from joserfc.jwk import ECKey

from tests.auth.server.kit import b64, claims, proof
from tests.extensions.kit import WITH_TASKS
from tests.stateless.kit import DATE, meta

Json = dict[str, Any]
BODY: Final = 4 * 1024 * 1024
STATEFUL: Final = "2025-11-25"
BATCHES: Final = "2025-03-26"
BASIC: Final = ("Content-Type: application/json", "Accept: application/json, text/event-stream")
UPGRADE: Final = (
    "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: mcp",
)  # fmt: skip
NAMED: Final = {"tools/call": "name", "resources/read": "uri"}


@define(eq=False)
class Peer:
    """One hostile client. Its connections end with it."""

    port: int
    token: str
    ids: Any = field(factory=lambda: count(1))
    requests: int = 0

    # -- connections

    async def connect(self, receive_buffer: int | None = None) -> trio.SocketStream:
        sock = trio.socket.socket()
        try:
            if receive_buffer is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            if sys.platform == "linux":
                await sock.bind(("127.0.0.2", 0))
            await sock.connect(("127.0.0.1", self.port))
        except BaseException:
            sock.close()
            raise
        return trio.SocketStream(sock)

    def head(self, *lines: str, length: int | None = None, method: str = "POST", token: str | None = None) -> bytes:
        fields = [f"{method} /mcp HTTP/1.1", f"Host: 127.0.0.1:{self.port}", *BASIC]
        fields.append(f"Authorization: Bearer {token or self.token}")
        if length is not None:
            fields.append(f"Content-Length: {length}")
        return "\r\n".join([*fields, *lines, "", ""]).encode("latin-1")

    def alone(self, method: str, params: Json, capabilities: Json | None = None, token: str | None = None) -> bytes:
        """A request of 2026-07-28."""
        params = {"_meta": meta(capabilities), **params}
        body = self.frame(method, params)
        lines = [f"MCP-Protocol-Version: {DATE}", f"Mcp-Method: {method}"]
        if method in NAMED:
            lines.append(f"Mcp-Name: {params[NAMED[method]]}")
        return self.head(*lines, length=len(body), token=token) + body

    def call(self, tool: str, arguments: Json, **more: Any) -> bytes:
        return self.alone("tools/call", {"name": tool, "arguments": arguments}, **more)

    def inside(self, session: str, body: bytes, date: str = STATEFUL) -> bytes:
        """A request of a session."""
        return self.head(f"Mcp-Session-Id: {session}", f"MCP-Protocol-Version: {date}", length=len(body)) + body

    def frame(self, method: str, params: Json) -> bytes:
        return json.dumps({"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": params}).encode()

    def initialize(self, date: str = STATEFUL) -> bytes:
        info = {"name": "hostile", "version": "1"}
        return self.frame("initialize", {"protocolVersion": date, "capabilities": {}, "clientInfo": info})

    async def open_session(self, stream: trio.SocketStream, date: str = STATEFUL) -> str:
        body = self.initialize(date)
        head = await self.ask(stream, self.head(length=len(body)) + body)
        found = [line for line in head.split(b"\r\n") if line.lower().startswith(b"mcp-session-id:")]
        if not found:
            raise Refused
        session = found[0].partition(b":")[2].strip().decode()
        ready = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
        await self.ask(stream, self.inside(session, ready, date))
        return session

    async def ask(self, stream: trio.SocketStream, request: bytes) -> bytes:
        """Send a request and read its response roughly to the end; return its head."""
        await stream.send_all(request)
        self.requests += 1
        data = bytearray()
        while b"\r\n\r\n" not in data:
            data += await self.some(stream)
        head, _, body = bytes(data).partition(b"\r\n\r\n")
        lower = head.lower()
        if b"content-length:" in lower:
            left = int(lower.split(b"content-length:")[1].split(b"\r\n")[0]) - len(body)
            while left > 0:
                left -= len(await self.some(stream))
        elif b"transfer-encoding:" in lower:
            end = body[-5:]
            while end != b"0\r\n\r\n":
                end = (end + await self.some(stream))[-5:]
        if b"connection: close" in lower:
            raise Refused
        return head

    async def some(self, stream: trio.SocketStream) -> bytes:
        data = await stream.receive_some(65536)
        if not data:
            raise Refused
        return bytes(data)

    async def many(self, tasks: int, work: Callable[[trio.SocketStream], Awaitable[None]], **options: Any) -> None:
        """Run the work in so many tasks, each on a connection of its own, again and again."""

        async def one() -> None:
            while True:
                try:
                    async with await self.connect(**options) as stream:
                        await work(stream)
                except (OSError, trio.BrokenResourceError, Refused):
                    await trio.sleep(0.02)

        async with trio.open_nursery() as nursery:
            for _ in range(tasks):
                nursery.start_soon(one)

    async def repeat(self, tasks: int, make: Callable[[], bytes]) -> None:
        """Send requests one after the other on so many connections."""

        async def work(stream: trio.SocketStream) -> None:
            while True:
                await self.ask(stream, make())

        await self.many(tasks, work)


class Refused(Exception):
    """The server closed the connection, or answered otherwise than the attack needs."""


def masked(message: bytes) -> bytes:
    """A WebSocket frame of a client with a text."""
    if len(message) < 126:
        size = bytes([0x80 | len(message)])
    elif len(message) < 2**16:
        size = b"\xfe" + len(message).to_bytes(2, "big")
    else:
        size = b"\xff" + len(message).to_bytes(8, "big")
    return b"\x81" + size + b"\0\0\0\0" + message


async def announce_bodies(peer: Peer) -> None:
    async def work(stream: trio.SocketStream) -> None:
        await stream.send_all(peer.head(length=BODY) + b'{"jsonrpc"')
        peer.requests += 1
        await peer.some(stream)

    await peer.many(64, work)


async def send_large_bodies(peer: Peer) -> None:
    request = peer.call("echo", {"text": "x" * (BODY - 4096)})
    await peer.repeat(8, lambda: request)


async def listen_to_thousands(peer: Peer) -> None:
    uris = [f"notes://{number:05}" for number in range(4000)]
    request = peer.alone("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})

    async def work(stream: trio.SocketStream) -> None:
        await stream.send_all(request)
        peer.requests += 1
        await peer.some(stream)

    await peer.many(8, work)


async def listen_widely(peer: Peer) -> None:
    uris = [f"notes://{number:050}" for number in range(1000)]
    request = peer.alone("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})

    async def work(stream: trio.SocketStream) -> None:
        await stream.send_all(request)
        peer.requests += 1
        while True:
            await peer.some(stream)

    await peer.many(200, work)


async def leave_listeners(peer: Peer) -> None:
    request = peer.alone("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["notes://a"]}})

    async def work(stream: trio.SocketStream) -> None:
        await stream.send_all(request)
        peer.requests += 1
        while True:
            await peer.some(stream)

    await peer.many(400, work)


async def encode_uris(peer: Peer) -> None:
    uri = "files://all/" + "%41" * 20_000
    body = peer.frame("resources/read", {"_meta": meta(), "uri": uri})
    lines = (f"MCP-Protocol-Version: {DATE}", "Mcp-Method: resources/read")
    without_name = peer.head(*lines, length=len(body)) + body
    short = peer.alone("resources/read", {"uri": "files://all/" + "%41" * 4000})
    await peer.repeat(8, lambda: random.choice((without_name, short)))


async def send_batches(peer: Peer) -> None:
    one = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "x"}}}
    batch = json.dumps([{**one, "id": number} for number in range(100)]).encode()

    async def work(stream: trio.SocketStream) -> None:
        session = await peer.open_session(stream, BATCHES)
        while True:
            await peer.ask(stream, peer.inside(session, batch, BATCHES))

    await peer.many(4, work)


async def park_questions(peer: Peer) -> None:
    await peer.repeat(8, lambda: peer.call("ask", {"text": str(random.random())}))


async def ask_in_threads(peer: Peer) -> None:
    await peer.repeat(64, lambda: peer.call("ask_in_thread", {"text": str(random.random())}))


async def delete_sessions(peer: Peer) -> None:
    async def work(stream: trio.SocketStream) -> None:
        while True:
            session = await peer.open_session(stream)
            await peer.ask(stream, peer.head(f"Mcp-Session-Id: {session}", method="DELETE"))

    await peer.many(8, work)


async def leave_sessions(peer: Peer) -> None:
    async def work(stream: trio.SocketStream) -> None:
        while True:
            await peer.open_session(stream)

    await peer.many(8, work)


async def subscribe(peer: Peer) -> None:
    async def work(stream: trio.SocketStream) -> None:
        session = await peer.open_session(stream)
        for number in range(1000):  # as many as a session may have; the next session follows
            uri = f"notes://{number}" + "x" * 1000
            await peer.ask(stream, peer.inside(session, peer.frame("resources/subscribe", {"uri": uri})))

    await peer.many(4, work)


async def leave_tasks(peer: Peer) -> None:
    arguments = {"text": "x" * 10_000, "seconds": 0}
    await peer.repeat(4, lambda: peer.call("report", arguments, capabilities=WITH_TASKS))


async def leave_running_tasks(peer: Peer) -> None:
    arguments = {"text": "x" * 1000, "seconds": 3600}
    await peer.repeat(4, lambda: peer.call("report", arguments, capabilities=WITH_TASKS))


async def send_frames(peer: Peer) -> None:
    ping, fragment = b"\x89\x80\0\0\0\0", b"\x01\x81\0\0\0\0{" + b"\x00\x81\0\0\0\0x" * 4000
    empty = b"\x00\x80\0\0\0\0" * 2000
    message = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}'
    small = masked(message) * 200

    async def work(stream: trio.SocketStream) -> None:
        await stream.send_all(peer.head(*UPGRADE, method="GET"))
        await peer.some(stream)
        kind = random.choice((ping * 2000, fragment, b"\x01\x80\0\0\0\0" + empty, small))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(discard, peer, stream)
            while True:
                await stream.send_all(kind)
                peer.requests += 1

    await peer.many(4, flat(work))


async def open_websocket(peer: Peer, stream: trio.SocketStream) -> None:
    await stream.send_all(peer.head(*UPGRADE, method="GET"))
    await peer.some(stream)
    await stream.send_all(masked(peer.initialize()))
    peer.requests += 1
    await peer.some(stream)


async def send_messages(peer: Peer) -> None:
    """Large messages on several sockets."""
    items = [{"n": number, "text": "x" * 20} for number in range(20_000)]
    kinds = (
        peer.frame("tools/list", {"cursor": "A" * 1_000_000}),
        peer.frame("tools/call", {"name": "echo", "arguments": {"text": "x", "items": items}}),
    )

    async def work(stream: trio.SocketStream) -> None:
        await open_websocket(peer, stream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(discard, peer, stream)
            while True:
                await stream.send_all(masked(random.choice(kinds)))
                peer.requests += 1

    await peer.many(8, flat(work))


async def send_parts_of_messages(peer: Peer) -> None:
    """Large messages, each of which stops shortly before its end."""
    part = b"\x01\xff" + (3_900_000).to_bytes(8, "big") + b"\0\0\0\0" + b"x" * 3_800_000

    async def work(stream: trio.SocketStream) -> None:
        await open_websocket(peer, stream)
        await stream.send_all(part)
        peer.requests += 1
        await discard(peer, stream)

    await peer.many(100, flat(work))


async def send_tables(peer: Peer) -> None:
    """Bodies that take much memory when they are decoded."""
    items = [{"n": number, "text": "x" * 20} for number in range(20_000)]
    request = peer.call("echo", {"text": "x", "items": items})
    await peer.repeat(8, lambda: request)


async def keep_arguments(peer: Peer) -> None:
    """Calls and tasks that take long, and questions without an answer, with large arguments."""
    text = "x" * (BODY - 4096)
    requests = (
        peer.call("wait", {"seconds": 30, "text": text}),
        peer.call("report", {"seconds": 3600, "text": text}, capabilities=WITH_TASKS),
        peer.call("ask", {"text": "x", "more": text}),
    )
    await peer.repeat(16, lambda: random.choice(requests))


async def open_websockets(peer: Peer) -> None:
    async def work(stream: trio.SocketStream) -> None:
        await open_websocket(peer, stream)

    await peer.many(8, work)


async def hold_websockets(peer: Peer) -> None:
    """Sessions that answer no ping."""

    async def work(stream: trio.SocketStream) -> None:
        await open_websocket(peer, stream)
        await discard(peer, stream)

    await peer.many(300, work)


async def hold_connections(peer: Peer) -> None:
    """Heads that arrive byte by byte."""

    async def work(stream: trio.SocketStream) -> None:
        peer.requests += 1
        for byte in peer.call("echo", {"text": "x"}):
            await stream.send_all(bytes([byte]))
            await trio.sleep(1)

    await peer.many(400, work)


async def discard(peer: Peer, stream: trio.SocketStream) -> None:
    while True:
        await peer.some(stream)


def flat(work: Callable[[trio.SocketStream], Awaitable[None]]) -> Callable[[trio.SocketStream], Awaitable[None]]:
    """Let the work end with one plain exception, whatever its nursery raised."""

    async def run(stream: trio.SocketStream) -> None:
        try:
            await work(stream)
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError, Refused):
            pass
        await trio.sleep(0.02)

    return run


async def read_slowly(peer: Peer) -> None:
    log_level = {"io.modelcontextprotocol/logLevel": "debug"}
    params = {"_meta": {**meta(), **log_level}, "name": "pour", "arguments": {"messages": 400, "kib": 64}}

    async def work(stream: trio.SocketStream) -> None:
        await stream.send_all(peer.alone("tools/call", params))
        peer.requests += 1
        while True:
            await stream.receive_some(1)
            await trio.sleep(0.5)

    await peer.many(40, work, receive_buffer=4096)


async def leave_answers(peer: Peer) -> None:
    """Answers that are not read, each of them small enough to take little of the processor."""
    request = peer.call("give", {"kib": 256})

    async def work(stream: trio.SocketStream) -> None:
        await stream.send_all(request)
        peer.requests += 1
        await trio.sleep(random.uniform(1, 9))

    await peer.many(300, work, receive_buffer=4096)


async def read_old_streams_slowly(peer: Peer) -> None:
    """Sessions whose calls pour into streams that are not read."""

    async def work(stream: trio.SocketStream) -> None:
        session = await peer.open_session(stream)
        body = peer.frame("tools/call", {"name": "pour", "arguments": {"messages": 400, "kib": 64}})
        await stream.send_all(peer.inside(session, body))
        peer.requests += 1
        await trio.sleep(3600)

    await peer.many(40, work, receive_buffer=4096)


async def hold_threads(peer: Peer) -> None:
    await peer.repeat(64, lambda: peer.call("hold", {"seconds": 1.0}))


async def hold_and_leave_threads(peer: Peer) -> None:
    async def work(stream: trio.SocketStream) -> None:
        await stream.send_all(peer.call("hold", {"seconds": 1.0}))
        peer.requests += 1
        await trio.sleep(0.05)

    await peer.many(16, work)


async def hold_calls(peer: Peer) -> None:
    await peer.repeat(400, lambda: peer.call("wait", {"seconds": 30}))


async def call_at_once(peer: Peer) -> None:
    await peer.repeat(200, lambda: peer.call("echo", {"text": "x"}))


async def try_tokens(peer: Peer) -> None:
    await peer.repeat(8, lambda: peer.call("echo", {"text": "x"}, token=b64(random.randbytes(24))))


async def try_key_ids(peer: Peer) -> None:
    def unknown() -> bytes:
        header = {"alg": "RS256", "typ": "at+jwt", "kid": str(random.random())}
        signed = b64(json.dumps(header).encode()) + "." + b64(json.dumps(claims()).encode())
        return peer.call("echo", {"text": "x"}, token=f"{signed}.{b64(random.randbytes(256))}")

    await peer.repeat(8, unknown)


async def send_proofs(peer: Peer) -> None:
    """Proofs of possession, each of which has to be remembered until it expires."""
    bound = json.loads(os.environ["MCPTRIO_TEST_BOUND"])
    key, call = ECKey.import_key(bound["key"]), peer.call("echo", {"text": "x"}, token=bound["token"])

    def proven() -> bytes:
        header = "DPoP: " + proof(bound["token"], key, jti=str(random.random()), iat=time.time())
        return call.replace(b"Authorization: Bearer ", f"{header}\r\nAuthorization: DPoP ".encode())

    await peer.repeat(8, proven)


async def invent_names(peer: Peer) -> None:
    """Tools, prompts, resources, methods and revisions that do not exist: nothing may be kept for each of them."""

    def request() -> bytes:
        name = f"{random.random()} " + "x" * random.choice((1, 500))
        method, params = random.choice(
            (
                ("tools/call", {"name": name, "arguments": {}}),
                ("prompts/get", {"name": name}),
                ("resources/read", {"uri": f"evil://{name}"}),
                (f"evil/{name}", {}),
            )
        )
        return peer.alone(method, params).replace(DATE.encode(), random.choice((DATE.encode(), b"9999-01-01")), 1)

    await peer.repeat(8, request)


async def send_huge_headers(peer: Peer) -> None:
    one, many = f"X-Large: {'x' * 1_000_000}", [f"X-{number}: {number}" for number in range(50_000)]
    heads = (peer.head(one), peer.head(*many), peer.head(*[f"X-{number}: {number}" for number in range(99)], length=0))

    async def work(stream: trio.SocketStream) -> None:
        await stream.send_all(random.choice(heads))
        peer.requests += 1
        await peer.some(stream)

    await peer.many(8, work)


async def pipeline_garbage(peer: Peer) -> None:
    good = peer.call("echo", {"text": "x"})

    async def work(stream: trio.SocketStream) -> None:
        garbage = random.choice(
            (b"\r\n" * 5000, random.randbytes(20_000), b"GET / HTTP/1.1\r\n" * 1000, b"\0" * 50_000)
        )
        await stream.send_all(good * 50 + garbage + good)
        peer.requests += 1
        while True:
            await peer.some(stream)

    await peer.many(4, work)


async def open_and_close(peer: Peer) -> None:
    async def work(stream: trio.SocketStream) -> None:
        peer.requests += 1
        if random.random() < 0.5:
            await stream.send_all(peer.call("wait", {"seconds": 30})[: random.randrange(1, 600)])

    await peer.many(16, work)


async def flood_cancels(peer: Peer) -> None:
    async def work(stream: trio.SocketStream) -> None:
        session = await peer.open_session(stream)
        while True:
            params = {"requestId": random.randrange(10**9), "reason": "x" * 1000}
            body = json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}).encode()
            await peer.ask(stream, peer.inside(session, body))

    await peer.many(8, work)


async def send_progress_tokens(peer: Peer) -> None:
    def request() -> bytes:
        token = "x" * random.choice((10, 1000, 100_000))
        params = {"_meta": {**meta(), "progressToken": token}, "name": "tell", "arguments": {"times": 50}}
        return peer.alone("tools/call", params)

    await peer.repeat(4, request)


async def send_cursors(peer: Peer) -> None:
    cursors = ("A" * 1_000_000, b64(b'{"after":1}'), "\u00e9" * 10_000, "A" * 100, "=" * 50_000)
    await peer.repeat(8, lambda: peer.alone("tools/list", {"cursor": random.choice(cursors)}))


ATTACKS: Final[dict[str, Callable[[Peer], Awaitable[None]]]] = {
    function.__name__: function
    for function in (
        announce_bodies, send_large_bodies, listen_to_thousands, listen_widely, leave_listeners, encode_uris,
        send_batches, park_questions, leave_sessions, subscribe, leave_tasks, leave_running_tasks, send_frames,
        read_slowly, read_old_streams_slowly, hold_threads, hold_and_leave_threads, hold_calls, call_at_once,
        try_tokens, try_key_ids, send_huge_headers, pipeline_garbage, open_and_close, flood_cancels,
        send_progress_tokens, send_cursors, ask_in_threads, delete_sessions, send_messages, keep_arguments, send_tables,
        open_websockets, hold_websockets, hold_connections, send_proofs, invent_names, send_parts_of_messages,
        leave_answers,
    )
}  # fmt: skip


async def main(attack: str, port: int, seconds: float) -> None:
    peer = Peer(port, os.environ["MCPTRIO_TEST_TOKEN"])
    print("ready", flush=True)
    with trio.move_on_after(seconds):
        await ATTACKS[attack](peer)
    print(peer.requests)


if __name__ == "__main__":
    trio.run(main, sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
