"""Clients of a cluster that stream, lose their connections, and resume, and what they saw."""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import h11
import trio

from mcptrio._wire.sse import SseReader
from tests.stateless.kit import DATE as STATELESS
from tests.stateless.kit import meta

LOST = (OSError, trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError)
ACCEPT = "application/json, text/event-stream"
LATEST = "2025-11-25"


class ClusterClient:
    """One session; every request has a connection of its own, which any worker may accept."""

    def __init__(self, *ports: int) -> None:
        self.ports = ports
        self.session: str | None = None
        self.failures: list[str] = []
        self.resumes: list[float] = []
        """Seconds from a lost stream to the next event."""
        self.unavailable: list[str] = []
        """The texts of responses with the status 503."""
        self.last_trouble = 0.0
        """The time of the last response with 503, or of the first event after a lost stream."""
        self.errors = 0
        """Calls that ended with the error that they may have been done."""
        self.results = 0

    @property
    def port(self) -> int:
        """Any of the ports, each time."""
        return random.choice(self.ports)

    async def open(self) -> None:
        params = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        status, headers, _ = await self.ask(_request(0, "initialize", params))
        assert status == 200, status
        self.session = headers["mcp-session-id"]
        status, _, _ = await self.ask(_notification("notifications/initialized"))
        assert status == 202, status

    async def ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send a request and return the whole response; 503 is retried."""
        while True:
            response = Incoming(self.port)
            try:
                await response.start("POST", body, self.session)
                data = await response.body()
            finally:
                await response.close()
            if response.status != 503:
                return response.status, response.headers, data
            self._note_unavailable(response, data)
            await trio.sleep(0.1)

    async def refused(self, response: Incoming) -> bool:
        """Return whether a response has the status 503; wait then, as the client repeats its request."""
        if response.status != 503:
            return False
        self._note_unavailable(response, await response.body())
        await trio.sleep(0.1)
        return True

    def _note_unavailable(self, response: Incoming, data: bytes) -> None:
        self.unavailable.append(data.decode())
        self.last_trouble = time.monotonic()
        if not response.headers.get("retry-after", "").isdecimal():
            self.failures.append(f"503 without Retry-After: {response.headers} {data!r}")

    async def ping(self, number: int) -> None:
        status, _, body = await self.ask(_request(f"ping{number}", "ping", {}))
        said = json.loads(body) if status == 200 else {}
        died = said.get("error", {}).get("data") == {"mayHaveRun": True}  # its worker was killed just then
        if "result" not in said and not died:
            self.failures.append(f"ping: {status} {body!r}")

    async def count(self, number: int, to: int, every: float) -> None:
        """Make one call, resume its stream as often as it breaks, and check what it says."""
        params = {
            "name": "count",
            "arguments": {"to": to, "every": every, "name": f"{self.session}/{number}"},
            "_meta": {"progressToken": number},
        }
        reader = StreamReading(self, number)
        try:
            await reader.begin(_request(number, "tools/call", params))
            while reader.answer is None:
                await reader.resume()
        except AssertionError as error:
            self.failures.append(f"call {number}: {error}")
            return
        seen, answer = reader.progress, reader.answer
        if "result" in answer:
            self.results += 1
            wanted = list(range(1, to + 1))
        else:
            self.errors += 1
            wanted = list(range(1, len(seen) + 1))
            if answer["error"].get("data") != {"mayHaveRun": True}:
                self.failures.append(f"call {number}: {answer}")
        if seen != wanted:
            self.failures.append(f"call {number}: progress {seen}")


class StreamReading:
    """The stream of one call, over several connections."""

    def __init__(self, client: ClusterClient, number: int) -> None:
        self.client = client
        self.number = number
        self.cursor: str | None = None
        self.progress: list[int] = []
        self.answer: dict[str, Any] | None = None
        self._lost: float | None = None

    async def begin(self, body: bytes) -> None:
        while self.answer is None and self.cursor is None:
            response = Incoming(self.client.port)
            try:
                await response.start("POST", body, self.client.session)
                if await self.client.refused(response):
                    continue
                assert response.status == 200, f"{response.status} {await response.body()!r}"
                if response.headers["content-type"].startswith("application/json"):
                    self.answer = json.loads(await response.body())
                else:
                    await self._read(response)
            except LOST:
                if self.cursor is None:  # the client knows nothing of the call: it may have run, so it does not repeat
                    self.answer = {"error": {"data": {"mayHaveRun": True}}}
            finally:
                await response.close()

    async def resume(self) -> None:
        if self._lost is None:
            self._lost = time.monotonic()
        response = Incoming(self.client.port)
        try:
            await response.start("GET", b"", self.client.session, last_event_id=self.cursor or "")
            if await self.client.refused(response):
                return
            assert response.status == 200, f"resume {self.cursor}: {response.status} {await response.body()!r}"
            await self._read(response)
        except LOST:
            await trio.sleep(0.02)
        finally:
            await response.close()

    async def _read(self, response: Incoming) -> None:
        parser = SseReader(2**20)
        while (data := await response.piece()) is not None:
            for event in parser.feed(data):
                if event.id:
                    self.cursor = event.id
                if not event.data:
                    continue
                if self._lost is not None:
                    self.client.last_trouble = time.monotonic()
                    self.client.resumes.append(self.client.last_trouble - self._lost)
                    self._lost = None
                message = json.loads(event.data)
                if message.get("id") == self.number:
                    self.answer = message
                elif message.get("method") == "notifications/progress":
                    self.progress.append(int(message["params"]["progress"]))


class Incoming:
    """One request and its response, as it arrives."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.stream: trio.SocketStream | None = None
        self.parser = h11.Connection(h11.CLIENT)
        self.status = 0
        self.headers: dict[str, str] = {}

    async def start(self, method: str, body: bytes, session: str | None, **more: str) -> None:
        with trio.fail_after(30):
            self.stream = await trio.open_tcp_stream("127.0.0.1", self.port)
            headers = {"host": "localhost", "accept": ACCEPT, "mcp-protocol-version": LATEST}
            if method == "POST":
                headers |= {"content-type": "application/json", "content-length": str(len(body))}
            if session:
                headers["mcp-session-id"] = session
            headers |= {name.replace("_", "-"): value for name, value in more.items()}
            data = self.parser.send(h11.Request(method=method, target="/mcp", headers=list(headers.items()))) or b""
            if body:
                data += self.parser.send(h11.Data(data=body)) or b""
            self.parser.send(h11.EndOfMessage())
            await self.stream.send_all(data)
            event = await self._next()
        assert isinstance(event, h11.Response)
        self.status = event.status_code
        self.headers = {name.decode(): value.decode() for name, value in event.headers}

    async def _next(self) -> Any:
        assert self.stream is not None
        while (event := self.parser.next_event()) is h11.NEED_DATA:
            self.parser.receive_data(await self.stream.receive_some(65536))
        return event

    async def piece(self) -> bytes | None:
        with trio.fail_after(60):
            event = await self._next()
        return bytes(event.data) if isinstance(event, h11.Data) else None

    async def body(self) -> bytes:
        found = b""
        while (data := await self.piece()) is not None:
            found += data
        return found

    async def close(self) -> None:
        if self.stream is not None:
            with suppress(*LOST):
                await trio.aclose_forcefully(self.stream)


class StatelessCaller:
    """Makes one stateless call after the other, each on a connection of its own."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.results = 0
        self.failures: list[str] = []

    async def run(self) -> None:
        """Call until cancelled."""
        headers = {"mcp_protocol_version": STATELESS, "mcp_method": "tools/call", "mcp_name": "pid"}
        while True:
            body = _request(self.results, "tools/call", {"name": "pid", "arguments": {}, "_meta": meta()})
            response = Incoming(self.port)
            try:
                await response.start("POST", body, None, **headers)
                data = await response.body()
            except LOST as error:
                self.failures.append(repr(error))
            else:
                if response.status == 200 and b'"result"' in data:
                    self.results += 1
                else:
                    self.failures.append(f"{response.status} {data!r}")
            finally:
                await response.close()
            await trio.sleep(0.02)


class ConnectionProbe:
    """Connects and asks for /livez again and again."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.refused = 0.0
        """Seconds of the longest time in which connections were refused."""
        self.slowest = 0.0
        """Seconds of the longest time from a connection to its answer."""

    async def run(self) -> None:
        """Ask until cancelled."""
        refused_since: float | None = None
        while True:
            began = time.monotonic()
            try:
                stream = await trio.open_tcp_stream("127.0.0.1", self.port)
            except OSError:
                refused_since = refused_since or began
            else:
                if refused_since is not None:
                    self.refused, refused_since = max(self.refused, began - refused_since), None
                async with stream:  # also when the probe is cancelled
                    with suppress(*LOST):
                        await stream.send_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
                        if await stream.receive_some(65536):
                            self.slowest = max(self.slowest, time.monotonic() - began)
            await trio.sleep(0.01)

    def __str__(self) -> str:
        return f"connections refused for {self.refused:.2f} s at most, slowest answer {self.slowest:.2f} s"


def _request(id: Any, method: str, params: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()


def _notification(method: str) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method}).encode()


async def stream_until(
    stop: Callable[[], bool], clients: list[ClusterClient], *, to: int = 20, every: float = 0.02
) -> None:
    """Let every client make call after call, with a plain one in between, until `stop`."""

    async def go(client: ClusterClient) -> None:
        number = 0
        while not stop():
            number += 1
            await client.count(number, to, every)
            with suppress(*LOST):  # the connection was cut by a kill: the client may try again
                await client.ping(number)

    async with trio.open_nursery() as nursery:
        for client in clients:
            nursery.start_soon(go, client)


def summary(clients: list[ClusterClient]) -> str:
    """The figures of all clients, on one line."""
    resumes = sorted(second for client in clients for second in client.resumes)
    worst = statistics.quantiles(resumes, n=100)[98] if len(resumes) > 1 else (resumes or [0.0])[0]
    return (
        f"{len(clients)} clients, {sum(c.results for c in clients)} results, {sum(c.errors for c in clients)} errors, "
        f"{len(resumes)} resumes, p99 {worst:.2f} s, {sum(len(c.unavailable) for c in clients)} x 503, "
        f"{sum(len(c.failures) for c in clients)} failures"
    )
