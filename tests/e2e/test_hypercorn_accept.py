"""Accepting connections: the connection cap, running out of files, Unix and given sockets, TLS (F36, F42, F45)."""

from __future__ import annotations

import errno
import os
import resource
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from trio.testing import wait_all_tasks_blocked

from mcptrio import telemetry
from mcptrio.errors import DeclarationError
from mcptrio.transports.http_server.listener.sockets import BoundAddress
from tests.engines import both_engines

from .raw_peer import Served, answer, echo, get, listening, read_all, read_until, serving, status

pytestmark = both_engines


async def test_f36_connections_beyond_the_cap_get_503() -> None:
    async with serving(echo, max_connections=2) as server:
        first, second = await server.connect(), await server.connect()
        for stream in (first, second):
            await stream.send_all(get("/"))
            await read_until(stream, b"}")
        response = await server.ask(get("/"))
        assert status(response) == 503
        assert b"retry-after: 1" in response
        assert server.count("refused") == 1
        assert server.listener.connections == 2
        await first.aclose()
        await wait_all_tasks_blocked(0.02)
        assert await server.is_alive()


async def test_f36_a_storm_beyond_the_cap_does_not_disturb_open_connections() -> None:
    async with serving(echo, max_connections=1) as server:
        inside = await server.connect()
        await inside.send_all(get("/"))
        await read_until(inside, b"}")
        for _ in range(100):
            await server.connect()
        await inside.send_all(get("/still"))
        assert b"/still" in await read_until(inside, b"}")
        assert server.count("refused") == 100


async def test_f42_when_files_run_out_accepting_pauses_and_recovers() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving(echo) as server:
        waiting = [server.closing.enter_context(socket.socket()) for _ in range(12)]
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        while (filler := os.dup(0)) <= highest:  # numbers below the limit that are free
            server.closing.callback(os.close, filler)
        os.close(filler)
        resource.setrlimit(resource.RLIMIT_NOFILE, (filler, hard))
        try:
            for client in waiting:
                client.setblocking(False)
                with pytest.raises(BlockingIOError):
                    client.connect((server.address.host, server.address.port))
            with trio.move_on_after(0.35):
                await trio.sleep_forever()
            assert server.listener.connections == 0
            assert 1 <= server.count("accept_failed") <= 6  # every 0.1 s, no spin
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with trio.fail_after(20):
            while server.listener.connections < 12:
                await wait_all_tasks_blocked(0.02)
        for client in waiting:
            client.close()
        assert await server.is_alive()
        assert [type(event).__name__ for event in server.events].count("GuardCaught") == 0


async def test_every_connection_is_reported_when_it_comes_and_when_it_goes() -> None:
    async with serving(echo) as server:
        async with await server.connect() as stream:
            await stream.send_all(get("/1") + get("/2"))
            await read_until(stream, b"/2")
            name = "{}:{}".format(*stream.socket.getsockname())
        await wait_all_tasks_blocked(0.02)
        assert server.events == [
            telemetry.ConnectionEvent(kind="opened", client=name),
            telemetry.ConnectionEvent(kind="ended", client=name, detail="2 requests"),
        ]


async def test_a_unix_socket_is_private_replaced_when_stale_and_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "mcp.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    clients: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        clients.append(scope["client"])
        await answer(send, 200, b"ok")

    async with serving(app, unix_path=str(path)) as server:
        assert server.address == BoundAddress(path=str(path))
        assert path.stat().st_mode & 0o777 == 0o600
        assert await server.is_alive()
        with pytest.raises(OSError, match="another process serves") as caught:
            await listening(app, unix_path=str(path)).serve()
        assert caught.value.errno == errno.EADDRINUSE
    assert not path.exists()
    assert clients == [None]


async def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(OSError, match="is not a socket"):
        await listening(echo, unix_path=str(path)).serve()
    assert path.read_text() == "data"


async def test_a_port_that_is_taken_is_named() -> None:
    async with serving(echo) as server:
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{server.address.port}"):
            await listening(echo, port=server.address.port).serve()


async def test_two_listeners_share_a_port_when_asked_to() -> None:
    async with serving(echo, reuse_port=True) as server:
        other = listening(echo, port=server.address.port, reuse_port=True)
        async with trio.open_nursery() as nursery:
            await nursery.start(other.serve)
            await other.close(trio.current_time())


async def test_sockets_bound_by_someone_else_are_served() -> None:
    given = socket.create_server(("127.0.0.1", 0))
    async with serving(echo, sockets=[given]) as server:
        assert server.address.port == given.getsockname()[1]
        assert await server.is_alive()


# -- TLS


class Certificates:
    """A certificate authority and the files of one server certificate, which can be exchanged."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.certfile = str(folder / "cert.pem")
        self.keyfile = str(folder / "key.pem")
        self.issue()

    def issue(self) -> None:
        certificate = self.ca.issue_cert("localhost", "127.0.0.1")
        certificate.private_key_pem.write_to_path(self.keyfile)
        with open(self.certfile, "wb") as file:
            file.write(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))

    def spoil(self) -> None:
        Path(self.keyfile).write_text("no key")

    def client(self, *alpn: str) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        if alpn:
            context.set_alpn_protocols(alpn)
        return context


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


async def open_tls(server: Any, context: ssl.SSLContext) -> trio.SSLStream[trio.SocketStream]:
    stream = trio.SSLStream(await server.connect(), context, server_hostname="localhost", https_compatible=True)
    await stream.do_handshake()
    return stream


async def test_tls_speaks_http_1_only_and_tells_the_app(certificates: Certificates) -> None:
    schemes: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        schemes.append(scope["scheme"])
        await echo(scope, receive, send)

    async with serving(app, certfile=certificates.certfile, keyfile=certificates.keyfile) as server:
        assert server.address.url == f"https://127.0.0.1:{server.address.port}"
        stream = await open_tls(server, certificates.client("h2", "http/1.1"))
        assert stream.selected_alpn_protocol() == "http/1.1"
        for _ in range(2):
            await stream.send_all(get("/"))
            assert status(await read_until(stream, b"}")) == 200
        await stream.send_all(b"post / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert status(await read_until(stream, b"\r\n\r\n")) == 405
        await stream.aclose()
    assert schemes == ["https", "https"]


async def test_a_large_body_goes_through_tls(certificates: Certificates) -> None:
    async with serving(echo, certfile=certificates.certfile, keyfile=certificates.keyfile) as server:
        stream = await open_tls(server, certificates.client())
        body = b"x" * 500_000
        await stream.send_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n" + body)
        response = await read_until(stream, b'x"}')
        assert response.count(b"x") > 500_000
        await stream.aclose()


def handshakes_failed(server: Served) -> list[str]:
    return [event.detail for event in server.events if getattr(event, "kind", "") == "handshake_failed"]


async def test_a_handshake_that_fails_is_reported_with_the_reason(certificates: Certificates) -> None:
    async with serving(echo, certfile=certificates.certfile, keyfile=certificates.keyfile) as server:
        async with await server.connect() as plain:
            await plain.send_all(get("/"))
            await read_all(plain)
        assert handshakes_failed(server) == ["HTTP_REQUEST"]


async def test_f45_a_handshake_that_stalls_is_ended(certificates: Certificates) -> None:
    async with serving(
        echo, certfile=certificates.certfile, keyfile=certificates.keyfile, handshake_timeout=0.1
    ) as server:
        async with await server.connect() as silent, await server.connect() as plain:
            await plain.send_all(get("/"))
            await read_all(plain)
            with trio.fail_after(20):
                assert await silent.receive_some() == b""
        await wait_all_tasks_blocked(0.02)
        assert server.count("handshake_failed") == 2
        assert "it took longer than 0.1 s (HttpConfig.handshake_timeout)" in handshakes_failed(server)
        assert server.listener.connections == server.caught() == 0


async def test_f45_certificates_are_reloaded_for_new_connections(certificates: Certificates) -> None:
    async with serving(echo, certfile=certificates.certfile, keyfile=certificates.keyfile) as server:
        old = await open_tls(server, certificates.client())
        serial = old.getpeercert()["serialNumber"]
        certificates.issue()
        server.listener.reload_certificates()
        new = await open_tls(server, certificates.client())
        assert new.getpeercert()["serialNumber"] != serial
        await old.send_all(get("/"))
        assert status(await read_until(old, b"}")) == 200

        certificates.spoil()
        with pytest.raises(DeclarationError, match="cannot use certificate"):
            server.listener.reload_certificates()
        newest = await open_tls(server, certificates.client())
        assert newest.getpeercert()["serialNumber"] == new.getpeercert()["serialNumber"]


async def test_a_listener_closed_before_it_serves_ends_as_soon_as_it_does() -> None:
    listener = listening(echo, port=0)
    await listener.close(trio.current_time())
    with trio.fail_after(20):
        await listener.serve()


async def test_a_failing_event_callback_harms_no_connection(caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: Any) -> None:
        raise RuntimeError("defect of the one who listens")

    listener = listening(echo, telemetry.Hub([fail]), port=0)
    async with trio.open_nursery() as nursery:
        bound: list[BoundAddress] = await nursery.start(listener.serve)
        async with await trio.open_tcp_stream(bound[0].host, bound[0].port) as stream:
            await stream.send_all(get("/", close=True))
            assert status(await read_all(stream)) == 200
        await listener.close(trio.current_time() + 1)
    assert "a telemetry listener failed on ConnectionEvent" in caplog.text
