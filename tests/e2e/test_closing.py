"""Closing a connection: no answer is lost when the peer is still sending, or reads late."""

from __future__ import annotations

import json
import socket

import pytest
import trio

from tests.engines import both_engines
from tests.transports.app_for_tests import LATEST, request

from .http_peer import HttpClient, serving_endpoint
from .raw_peer import Served, read_all

pytestmark = both_engines

SIZE = 600_000
"""More than the sockets of both sides hold."""


async def small_window(server: Served) -> trio.SocketStream:
    """A connection whose client has hardly any room for what it does not read."""
    sock = trio.socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await sock.connect((server.address.host, server.address.port))
    server.closing.callback(sock.close)
    return trio.SocketStream(sock)


def head_of(server: Served, length: int, *lines: str) -> bytes:
    fields = [
        f"Host: 127.0.0.1:{server.address.port}",
        "Accept: application/json, text/event-stream",
        f"Content-Length: {length}",
        *lines,
    ]
    return "\r\n".join(["POST /mcp HTTP/1.1", *fields, "", ""]).encode()


async def send_until_refused(stream: trio.SocketStream, pieces: int) -> None:
    """Go on sending as clients do that do not read before they are done."""
    for _ in range(pieces):
        await stream.send_all(b"x" * 65536)
        await trio.sleep(0.001)


@pytest.mark.parametrize("more", [1, 100_000], ids=["a byte", "more than is held"])
async def test_an_answer_survives_what_the_client_sent_after_its_request(more: int) -> None:
    """RFC 9112 section 9.6: closing with bytes unread would reset the connection, and take what is not read yet."""
    async with serving_endpoint(listener={"write_timeout": 5.0}) as (server, _):
        client = await HttpClient.open(server)
        body = request(1, "echo", say="x" * SIZE)
        lines = ("Content-Type: application/json", f"Mcp-Session-Id: {client.session_id}")
        head = head_of(server, len(body), *lines, f"Mcp-Protocol-Version: {LATEST}", "Connection: close")
        stream = await small_window(server)
        await stream.send_all(head + body)
        await stream.send_all(b"x" * more)
        await trio.sleep(0.4)
        answer = (await read_all(stream)).partition(b"\r\n\r\n")[2]
        assert json.loads(answer)["result"]["echo"] == "x" * SIZE


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (("Content-Type: text/plain",), 415),
        (("Content-Type: application/json", "Origin: https://evil.example"), 403),
        (("Content-Type: application/json", "Mcp-Session-Id: unknown"), 404),
    ],
    ids=["wrong type", "wrong origin", "unknown session"],
)
async def test_a_refusal_reaches_a_client_that_sends_all_of_its_body_first(lines: tuple[str, ...], status: int) -> None:
    async with serving_endpoint() as (server, _):
        stream = await small_window(server)
        pieces = 3_900_000 // 65536
        await stream.send_all(head_of(server, pieces * 65536, *lines))
        await send_until_refused(stream, pieces)
        await trio.sleep(0.2)
        assert (await read_all(stream)).startswith(b"HTTP/1.1 %d " % status)


async def test_a_peer_that_never_stops_sending_is_cut_all_the_same() -> None:
    """Its bytes are discarded for a bounded time: a client cannot hold a connection by sending more."""
    async with serving_endpoint() as (server, _):
        stream = await server.connect()
        await stream.send_all(head_of(server, 4_000_000, "Content-Type: text/plain"))
        began = trio.current_time()
        with pytest.raises(trio.BrokenResourceError):
            while trio.current_time() - began < 8:
                await stream.send_all(b"x" * 100)
                await trio.sleep(0.01)
        assert server.listener.connections == 0
