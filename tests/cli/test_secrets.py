"""Secrets on the command line: where tokens are sent, and who can read the files."""

from __future__ import annotations

import io
import os
from argparse import Namespace
from pathlib import Path

import pytest
from rich.console import Console

from mcptrio import Server
from mcptrio.cli.auth import auth_settings
from mcptrio.cli.connection import check_encryption, open_client
from mcptrio.cli.exit_codes import UsageError
from mcptrio.cli.options import ConnectionOptions
from mcptrio.cli.target import read_target
from mcptrio.cli.terminal import Terminal

TOKEN = "secret-" + "t" * 30


@pytest.mark.defect("S17")
@pytest.mark.parametrize(
    "options",
    [
        ConnectionOptions(token=TOKEN),
        ConnectionOptions(header=[f"authorization: Bearer {TOKEN}"]),
        ConnectionOptions(header=[f"Cookie: session={TOKEN}"]),
        ConnectionOptions(header=[f"X-API-Key: {TOKEN}"]),
    ],
    ids=["token", "header", "cookie", "key"],
)
@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/mcp",
        "ws://example.org/mcp",
        "http://127.0.0.1.example.org/mcp",
        "http://localhost.example.org/mcp",
        "http://localhost@example.org/mcp",
        "http://127.1/mcp",
        "http://2130706433/mcp",
        "http://[::ffff:127.0.0.1]/mcp",
        "http://0.0.0.0/mcp",
    ],
)
async def test_a_token_is_not_sent_unencrypted_to_another_machine(url: str, options: ConnectionOptions) -> None:
    terminal = Terminal(err=Console(file=io.StringIO()), interactive=False)
    with pytest.raises(UsageError, match="--allow-http") as caught:
        async with open_client(url, options, terminal):
            pass
    assert TOKEN not in str(caught.value)


@pytest.mark.defect("S17")
async def test_a_password_in_a_url_is_not_sent_unencrypted_to_another_machine() -> None:
    terminal = Terminal(err=Console(file=io.StringIO()), interactive=False)
    with pytest.raises(UsageError, match="--allow-http") as caught:
        async with open_client(f"http://ada:{TOKEN}@example.org/mcp", ConnectionOptions(), terminal):
            pass
    assert TOKEN not in str(caught.value)
    check_encryption(read_target(f"https://ada:{TOKEN}@example.org/mcp"), {})


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/mcp",
        "wss://example.org/mcp",
        "http://127.0.0.1:8000/mcp",
        "http://localhost/mcp",
        "http://[::1]:8000/mcp",
    ],
)
def test_a_token_is_sent_where_others_cannot_read_it(url: str) -> None:
    check_encryption(read_target(url), {"Authorization": f"Bearer {TOKEN}"})


def test_without_a_token_plain_http_is_fine() -> None:
    check_encryption(read_target("http://example.org/mcp"), {"X-Trace": "1"})


@pytest.mark.defect("S17")
@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
@pytest.mark.parametrize(
    "option", ["keyfile", "certfile", "state_key_file", "token_file", "MCPTRIO_STORE_PASSWORD_FILE"]
)
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o600])
def test_a_secret_file_that_others_can_use_is_reported(
    option: str, mode: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{TOKEN} ada\n")
    file.chmod(mode)
    names = ("token_file", "client_ca", "certfile", "keyfile", "state_key_file")
    arguments = {name: str(file) if name == option else None for name in names}
    if option not in names:
        monkeypatch.setenv(option, str(file))
    auth_settings(Namespace(transport="http", store="redis://h", **arguments), Server("s"))
    assert (f"chmod 600 {file}" in capsys.readouterr().err) == (mode != 0o600)
