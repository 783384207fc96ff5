"""Sequences of requests on one connection: no request gets the body, the principal or the answer of another one.

Behind a proxy that shares its upstream connections, the requests of one connection belong to different users.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import trio
from attrs import define, field, frozen
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from mcptrio import Context, Server
from mcptrio.auth.server import Principal
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.http_server.endpoint.message import HttpRequest, Plain, refuse
from mcptrio.transports.http_server.hypercorn.asgi import AsgiApp
from tests import engines
from tests.engines import both_engines
from tests.stateless.kit import DATE, meta
from tests.transports.app_for_tests import LATEST, initialize

from .raw_peer import Served, serving

pytestmark = [both_engines, pytest.mark.defect("S1")]

TOKENS = {"token-of-ada": "ada", "token-of-bob": "bob"}


@frozen
class Step:
    """One request of a sequence.

    `accepted` is what the authenticator says: a token may expire between two requests whose heads are equal.
    """

    kind: str
    who: str = "ada"
    accepted: bool = True
    wait: bool = False


KINDS = ("call", "in session", "delete", "empty", "no length", "chunked", "health")
steps = st.builds(
    Step, st.sampled_from(KINDS), who=st.sampled_from(["ada", "bob"]), accepted=st.booleans(), wait=st.booleans()
)


@define
class World:
    """A server, the requests that are sent to it, and what its tools did."""

    ran: list[tuple[str, str]] = field(factory=list)
    verdicts: deque[tuple[str, bool]] = field(factory=deque)
    """For each request that will be authenticated: whose token it has, and whether it is accepted."""
    session: str = ""
    session_lives: bool = True
    _words: Iterator[int] = field(factory=lambda: iter(range(10_000_000, 99_999_999)))

    async def authenticate(self, request: HttpRequest) -> Principal | Plain:
        who, accepted = self.verdicts.popleft()
        assert TOKENS[(request.text(b"authorization") or "").removeprefix("Bearer ")] == who
        return Principal(subject=who) if accepted else refuse(401, "the token has expired")

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Served]:
        server = Server("isolation", "1")

        @server.tool
        async def whoami(ctx: Context, word: str, wait: bool) -> str:
            if wait:
                await trio.lowlevel.checkpoint()
            assert ctx.principal is not None
            self.ran.append((ctx.principal.subject, word))
            return f"{ctx.principal.subject} {word}"

        async with server._app.make_runtime().open() as runtime:
            # No answer becomes a stream because the machine is busy.
            endpoint = Endpoint(runtime, HttpConfig(stream_after=60), None, self.authenticate)
            direct = endpoint if engines.current() == "direct" else None
            async with serving(AsgiApp(endpoint), direct=direct) as served:
                yield served

    def encode(self, step: Step) -> tuple[bytes, Expected]:
        """Return the bytes of a request, and what must come of it."""
        word = str(next(self._words))
        if step.kind == "health":
            return b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", Expected(200, "ok")
        if step.kind == "delete":
            head = self._head("DELETE", "ada", f"Mcp-Session-Id: {self.session}", f"MCP-Protocol-Version: {LATEST}")
            status = 401 if not step.accepted else 200 if self.session_lives else 404
            self.session_lives = self.session_lives and not step.accepted
            return head + b"\r\n", Expected(status, needs=("ada", step.accepted))
        if step.kind == "in session":
            # All of them are Ada's, and their heads are equal: the session is deleted by another request.
            body = call_of(word, step.wait)
            lines = (f"Mcp-Session-Id: {self.session}", f"MCP-Protocol-Version: {LATEST}")
            status = 401 if not step.accepted else 200 if self.session_lives else 404
            who = "ada"
        else:
            body = call_of(word, step.wait, _meta=meta())
            lines = (f"MCP-Protocol-Version: {DATE}", "Mcp-Method: tools/call", "Mcp-Name: whoami")
            status = 401 if not step.accepted else 400 if step.kind in ("empty", "no length") else 200
            who = step.who
        head = self._head("POST", who, *lines)
        if step.kind == "chunked":
            middle = len(body) // 2
            pieces = [b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:middle], body[middle:], b"")]
            request = head + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(pieces)
        elif step.kind == "no length":
            request = head + b"\r\n"
        else:
            body = b"" if step.kind == "empty" else body
            request = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
        text = f"{who} {word}" if status == 200 else None
        return request, Expected(status, text, needs=(who, step.accepted))

    def _head(self, method: str, who: str, *lines: str) -> bytes:
        known = [
            "Host: localhost",
            "Accept: application/json, text/event-stream",
            "Content-Type: application/json",
            f"Authorization: Bearer token-of-{who}",
        ]
        return "\r\n".join([f"{method} /mcp HTTP/1.1", *known, *lines, ""]).encode()

    async def open_session(self, served: Served) -> None:
        """Begin Ada's session."""
        body = initialize()
        self.verdicts.append(("ada", True))
        async with await served.connect() as stream:
            reader = Responses(stream)
            await stream.send_all(self._head("POST", "ada") + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            status, headers, _ = await reader.next()
            assert status == 200
            self.session = headers["mcp-session-id"]


@frozen
class Expected:
    """The answer that a request must get."""

    status: int
    text: str | None = None
    needs: tuple[str, bool] | None = None
    """The verdict of the authenticator, if the request is authenticated."""


def call_of(word: str, wait: bool, **more: Any) -> bytes:
    """Return the body of a call; all of them have the same length."""
    params = {"name": "whoami", "arguments": {"word": word, "wait": wait}, **more}
    body = json.dumps({"jsonrpc": "2.0", "id": int(word), "method": "tools/call", "params": params})
    return body.ljust(600).encode()


class Responses:
    """Reads responses from a connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._data = b""

    async def _until(self, end: bytes) -> bytes:
        while end not in self._data:
            await self._more()
        found, _, self._data = self._data.partition(end)
        return found

    async def _more(self) -> None:
        piece = await self._stream.receive_some()
        if not piece:
            raise EOFError(self._data)
        self._data += piece

    async def next(self) -> tuple[int, dict[str, str], str]:
        """Return the status, the headers and the body of the next response."""
        first, *lines = (await self._until(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        length = int(headers["content-length"])
        while len(self._data) < length:
            await self._more()
        body, self._data = self._data[:length], self._data[length:]
        return int(first.split()[1]), headers, body.decode()


async def send_in_pieces(stream: trio.SocketStream, data: bytes, cuts: list[int]) -> None:
    """Send data so that the server reads each piece by itself."""
    edges = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    for start, end in pairwise(edges):
        try:
            await stream.send_all(data[start:end])
        except trio.BrokenResourceError:
            return  # the server has closed the connection after an answer that is still to be read
        await wait_all_tasks_blocked(0.0005)


def check(expected: Expected, status: int, body: str) -> None:
    assert status == expected.status, body
    if expected.text is not None and status == 200:
        found = body.strip() if not body.startswith("{") else json.loads(body)["result"]["content"][0]["text"]
        assert found == expected.text


REFUSED, EMPTY, HEALTH = Step("call", accepted=False), Step("empty"), Step("health")


@given(sequence=st.lists(steps, min_size=2, max_size=7), pipelined=st.booleans(), cuts=st.lists(st.integers(0, 9999)))
@example(sequence=[Step("call"), REFUSED, EMPTY], pipelined=False, cuts=[])
@example(sequence=[Step("call"), REFUSED, EMPTY], pipelined=True, cuts=[])
@example(sequence=[Step("call"), REFUSED, Step("empty", "bob")], pipelined=False, cuts=[])
@example(sequence=[Step("call"), REFUSED, Step("no length", "bob")], pipelined=False, cuts=[])
@example(sequence=[Step("call"), REFUSED, HEALTH, Step("call", "bob")], pipelined=False, cuts=[])
@example(sequence=[Step("call"), REFUSED, Step("chunked", "bob")], pipelined=True, cuts=[])
@example(sequence=[Step("in session"), Step("delete"), Step("in session"), EMPTY], pipelined=False, cuts=[])
@example(sequence=[Step("in session"), Step("delete"), Step("in session"), HEALTH], pipelined=True, cuts=[])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_no_request_runs_with_the_body_or_the_principal_of_another_one(
    sequence: list[Step], pipelined: bool, cuts: list[int]
) -> None:
    world = World()
    async with world.serve() as served:
        await world.open_session(served)
        requests = deque(world.encode(step) for step in sequence)
        wanted = [expected for _, expected in requests]
        while requests:
            async with await served.connect() as stream:
                reader = Responses(stream)
                together = len(requests) if pipelined else 1
                closed = False
                while requests and not closed:
                    sent = list(requests)[:together]
                    world.verdicts = deque(expected.needs for _, expected in sent if expected.needs is not None)
                    await send_in_pieces(stream, b"".join(data for data, _ in sent), cuts)
                    for _, expected in sent:
                        status, headers, body = await reader.next()
                        check(expected, status, body)
                        requests.popleft()
                        if headers.get("connection") == "close":
                            closed = True  # what follows on this connection was not served: it is sent again
                            break
    ran = [f"{subject} {word}" for subject, word in world.ran]
    assert ran == [expected.text for expected in wanted if expected.text is not None and expected.text != "ok"]
