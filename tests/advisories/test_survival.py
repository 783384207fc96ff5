"""Published ways to end or to choke a process or a session (V01 to V13): each attack must fail."""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from typing import Any

import pytest
import trio

from mcptrio import MCPError, Server, SessionRefused
from mcptrio._actors.limits import Limits
from mcptrio._uri.template import UriTemplate
from mcptrio._wire.jsonrpc import JsonLimits, decode
from mcptrio.errors import RemoteProtocolError
from tests.bad_inputs import hostile
from tests.bad_inputs.catalogue import Case
from tests.bad_inputs.process import Servers
from tests.bad_inputs.program import make_server
from tests.bad_inputs.runner import run_request, run_socket
from tests.bad_inputs.sockets import handshake
from tests.bad_inputs.speaker import Speaker
from tests.bad_inputs.wire import Connection
from tests.e2e.raw_peer import WEBSOCKET, break_protocol, echo, get, serving

from .cases import cases

# -- V01


@cases("R14", "R38", "R27: no capabilities")
def test_neg_invalid_params_does_not_end_session(case: Case, servers: Servers) -> None:
    run_request(case, servers)


# -- V02


@cases("W05: reset after its request", "W07", "W11")
def test_neg_abrupt_disconnect_leaves_server_alive(case: Case, servers: Servers) -> None:
    run_request(case, servers)


# -- V03: faults are put into the connection's protocol object; what was published is not repeated here


async def fault_stays_in_its_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, trigger: bytes, request: bytes
) -> None:
    caplog.set_level(logging.CRITICAL, "mcptrio.http")
    break_protocol(monkeypatch, trigger, UnicodeDecodeError("ascii", trigger, 0, 1, "as a parser might"))
    async with serving(echo) as server:
        async with await server.connect() as bystander:
            assert await server.ask(request) == b""
            await bystander.send_all(get("/hello"))
            assert b"200" in await bystander.receive_some()
        assert server.caught() == 1
        assert await server.is_alive()


async def test_neg_ws_nonascii_extension_header(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    request = WEBSOCKET + b"X-Trigger: extension\r\n\r\n"
    await fault_stays_in_its_connection(monkeypatch, caplog, b"extension", request)


async def test_neg_ws_trailing_byte(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    await fault_stays_in_its_connection(monkeypatch, caplog, b"/ws", WEBSOCKET + b"\r\n" + b"rest")


async def test_neg_h2c_nonascii_path(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    await fault_stays_in_its_connection(monkeypatch, caplog, b"/path", get("/path", "Upgrade: h2c"))


@cases("K02")
def test_neg_random_handshakes(case: Case, servers: Servers) -> None:
    run_request(case, servers)


# -- V04


@cases("R42")
def test_neg_handler_sys_exit(case: Case, servers: Servers) -> None:
    run_request(case, servers)


# -- V05


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("a://{x}/{y}/{z}", "a://" + "/" * 60_000),
        ("a://{x*}", "a://" + "a," * 30_000 + "\n"),
        ("a://{+x}b{y}c", "a://" + "b" * 60_000),
        ("a://{x}{?q*}", "a://x?" + "q=1&" * 15_000 + "#"),
    ],
)
def test_neg_uri_template_redos_under_50ms(template: str, uri: str) -> None:
    """The figure is for a quiet machine; here it must only be no matter of minutes. A longer URI costs nothing."""
    matching = UriTemplate(template)
    began = time.process_time()
    matching.match(uri)
    assert time.process_time() - began < 2
    began = time.process_time()
    assert matching.match(uri * 100) is None  # beyond 64 KiB nothing is looked at
    assert time.process_time() - began < 0.05


# -- V06


@cases("J16")
def test_neg_body_limit_declared(case: Case, servers: Servers) -> None:
    run_request(case, servers)


@cases("J17")
def test_neg_body_limit_streamed(case: Case, servers: Servers) -> None:
    run_request(case, servers)


@cases("R05", dates=("2025-03-26",))
def test_neg_batch_101(case: Case, servers: Servers) -> None:
    run_request(case, servers)


# -- V07, V13


@cases("J19")
def test_neg_million_element_array(case: Case, servers: Servers) -> None:
    run_request(case, servers)


@cases("J07")
def test_neg_deep_nesting(case: Case, servers: Servers) -> None:
    run_request(case, servers)


@pytest.mark.parametrize("text", [b"[" * 1_000_000, b'{"a":' * 500, b"[" * 70 + b"]" * 70])
def test_neg_deep_nesting_before_the_decoder(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(text, JsonLimits())
    assert caught.value.limit == "json_depth"


# -- V08


async def test_neg_refused_open_leaks_nothing(engine: str) -> None:
    server = Server("refusing")

    @server.session
    async def session(_: Any) -> Any:
        raise SessionRefused("not you")
        yield

    async with trio.open_nursery() as nursery:
        bound = await nursery.start(partial(server.serve_http, port=0, engine=engine))

        def knock() -> None:
            for _ in range(20):
                speaker = Speaker(bound[0].port, "2025-11-25")
                refused = speaker.exchange(speaker.initialize())
                assert "error" in refused.answer
                assert "mcp-session-id" not in refused.headers
                speaker.close()

        await trio.to_thread.run_sync(knock)
        with trio.fail_after(30):
            while server._app.publisher.runtimes[0].supervisor.sessions:
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()


@cases("R27", dates=("any",))
def test_neg_garbage_opens_no_session(case: Case, servers: Servers) -> None:
    with servers.use("usual") as server:
        before = server.state()["sessions"]
    run_request(case, servers)
    with servers.use("usual") as server:
        assert server.state()["sessions"] == before


async def test_neg_session_cap_503(engine: str) -> None:
    server = make_server(limits=Limits(max_sessions=3))
    async with trio.open_nursery() as nursery:
        bound = await nursery.start(partial(server.serve_http, port=0, engine=engine))

        def open_all() -> None:
            speakers = [Speaker(bound[0].port, "2025-11-25") for _ in range(4)]
            statuses = [speaker.exchange(speaker.initialize()) for speaker in speakers]
            assert [reply.status for reply in statuses] == [200, 200, 200, 503]
            assert "retry-after" in statuses[3].headers
            speakers[0].session = statuses[0].headers["mcp-session-id"]
            speakers[0].end_session()
            end = time.monotonic() + 5  # the session is ending; its place is free when it has ended
            while speakers[3].exchange(speakers[3].initialize()).status != 200:
                assert time.monotonic() < end, "no place was given back"
            for speaker in speakers:
                speaker.close()

        await trio.to_thread.run_sync(open_all)
        nursery.cancel_scope.cancel()


# -- V09


async def test_neg_slow_opener_does_not_block_others(engine: str) -> None:
    server = Server("slow to open")
    begun = threading.Event()

    @server.session
    async def session(opened: Any) -> Any:
        if opened.client_info.name == "slow":
            begun.set()
            await trio.sleep(30)
        yield None

    async with trio.open_nursery() as nursery:
        bound = await nursery.start(partial(server.serve_http, port=0, engine=engine))

        def open_both() -> None:
            slow, quick = Speaker(bound[0].port, "2025-11-25"), Speaker(bound[0].port, "2025-11-25")
            body = slow.initialize(clientInfo={"name": "slow", "version": "1"})
            slow.connection.send(slow.head("POST", body) + body)
            assert begun.wait(5)
            began = time.monotonic()
            quick.open_session()
            assert time.monotonic() - began < 10
            slow.close()
            quick.close()

        await trio.to_thread.run_sync(open_both)
        nursery.cancel_scope.cancel()


# -- V10


def test_neg_ws_deflate_bomb(servers: Servers) -> None:
    """Compression is not agreed to, so a compressed frame breaks the protocol before anything is inflated."""
    with servers.use("usual") as server, Connection(server.port) as connection:
        offer = {"sec-websocket-extensions": "permessage-deflate; client_max_window_bits"}
        connection.send(handshake(server.speaker("2026-07-28"), offer))
        head = connection.receive()
        assert head.startswith(b"HTTP/1.1 101")
        assert b"deflate" not in head.lower()


@cases("K06", "K07: a reserved bit", dates=("2026-07-28",))
def test_neg_ws_message_cap(case: Case, servers: Servers) -> None:
    run_socket(case, servers)


@cases("K03")
def test_neg_ws_aborted_handshake_no_growth(case: Case, servers: Servers) -> None:
    run_request(case, servers)


# -- V11


@cases("S24", "S26", "S39")
async def test_neg_client_endless_sse_line(case: Case) -> None:
    await hostile.run(case)


# -- V12


@cases("H31")
def test_neg_h2_refused_by_default(case: Case, servers: Servers) -> None:
    run_request(case, servers)


def test_the_error_classes_that_cross_the_wire_are_exceptions_and_no_more() -> None:
    """An exception that a handler raises to choose its answer must never be mistaken for an exit."""
    assert issubclass(MCPError, Exception)
