"""The listener's settings, and those that Hypercorn gets."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from mcptrio.errors import DeclarationError
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.hypercorn.connection import hypercorn_config
from mcptrio.transports.http_server.listener.listener import Listener
from mcptrio.transports.http_server.listener.tls import tls_context


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"port": 70000}, "port must be a number from 0 to 65535"),
        ({"port": "8000"}, "port must be a whole number, got '8000'"),
        ({"header_timeout": 0}, "header_timeout must be positive"),
        ({"write_timeout": -1}, "write_timeout must be positive"),
        ({"max_connections": 0}, "max_connections must be positive"),
        ({"max_header_bytes": 100}, "max_header_bytes below 1024"),
        ({"websocket_ping_interval": 0}, "websocket_ping_interval must be positive"),
        ({"drain_timeout": -1}, "drain_timeout must not be negative"),
        ({"unix_path": ""}, "unix_path is empty"),
        ({"keyfile": "key.pem"}, "keyfile needs certfile"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_when_built(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        HttpConfig(**settings)


def test_hypercorn_gets_the_limits_it_reads_and_never_a_read_timeout() -> None:
    config = HttpConfig(websocket_max_message=123, keep_alive_max_requests=7, websocket_ping_interval=9)
    hyper = hypercorn_config(config)
    assert hyper.websocket_max_message_size == 123
    assert hyper.websocket_ping_interval == 9
    assert hyper.keep_alive_max_requests == 7
    assert hyper.read_timeout is None  # P14: it would end healthy streams
    assert hyper.include_server_header is False


def test_plain_http_has_no_tls_context_and_missing_files_are_named(tmp_path: Path) -> None:
    assert tls_context(HttpConfig()) is None
    missing = str(tmp_path / "cert.pem")
    with pytest.raises(DeclarationError, match=r"cannot use certificate .*cert\.pem"):
        tls_context(HttpConfig(certfile=missing))


def test_an_encrypted_key_without_a_password_is_an_error_not_a_prompt(tmp_path: Path) -> None:
    import trustme
    from cryptography.hazmat.primitives import serialization

    certificate = trustme.CA().issue_cert("localhost")
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    (tmp_path / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"pw")
        )
    )
    (tmp_path / "cert.pem").write_bytes(certificate.cert_chain_pems[0].bytes())
    files = {"certfile": str(tmp_path / "cert.pem"), "keyfile": str(tmp_path / "key.pem")}
    with pytest.raises(DeclarationError, match="set keyfile_password"):
        tls_context(HttpConfig(**files))
    assert isinstance(tls_context(HttpConfig(**files, keyfile_password="pw")), ssl.SSLContext)


def test_building_settings_does_not_import_hypercorn() -> None:
    code = (
        "import sys; from mcptrio.transports.http_server.config import HttpConfig; HttpConfig();"
        "sys.exit('hypercorn' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Recorder(Listener):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def stop_accepting(self) -> None:
        self.calls.append("stop")

    async def close(self, deadline: float) -> None:
        self.calls.append(f"close {deadline - trio.current_time():.0f}")


async def test_the_listener_stops_then_the_runtime_drains_then_connections_close(autojump_clock: Any) -> None:
    listener = Recorder()

    async def drain(deadline: float) -> None:
        await trio.sleep(2)
        listener.calls.append("drained")

    await listener.shut_down(drain, timeout=10)
    assert listener.calls == ["stop", "drained", "close 8"]


async def test_a_drain_that_does_not_end_or_fails_still_closes(autojump_clock: Any) -> None:
    listener = Recorder()

    async def hang(deadline: float) -> None:
        await trio.sleep_forever()

    async def fail(deadline: float) -> None:
        raise RuntimeError("defect")

    await listener.shut_down(hang, timeout=10)
    assert listener.calls == ["stop", "close 0"]
    with pytest.raises(RuntimeError):
        await listener.shut_down(fail, timeout=10)
    assert listener.calls[2:] == ["stop", "close 10"]
