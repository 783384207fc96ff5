"""`mcptrio run --token-file` and `--client-ca` as real processes: who is let in, and one line for what is wrong."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
import trustme

from mcptrio import MCPError, connect
from mcptrio.transports.http_client import HttpClientConfig
from tests.forked import run_command
from tests.ports import free_port

PROGRAM = """
from mcptrio import Context, Server

server = Server("orders")

@server.tool
async def whoami(ctx: Context) -> str:
    return f"{ctx.principal.subject}: {' '.join(sorted(ctx.principal.scopes))}"
"""
SCOPED = (
    PROGRAM
    + """
@server.tool(scopes=["orders:write"])
async def refund() -> str:
    return "refunded"
"""
)
ADA, BOB = "ada-" + "a" * 30, "bob-" + "b" * 30
TOKENS = f"# who may call\n\n{ADA} ada orders:read orders:write\n  {BOB}   bob\n"


def write(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def fails(tmp_path: Path, *arguments: str, program: str = PROGRAM) -> tuple[int, list[str]]:
    """The exit code and the lines of a run that does not begin to serve."""
    target = write(tmp_path / "server.py", program)
    port = ("--port", "0") if "--transport" in arguments else ()
    done = run_command(["run", str(target), *port, *arguments], env=os.environ)
    return done.returncode, done.stderr.splitlines()


def start(command: list[str], output: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


@asynccontextmanager
async def serving(tmp_path: Path, *arguments: str, program: str = PROGRAM) -> AsyncIterator[tuple[int, Path]]:
    """A server on a port, and its log."""
    target, log, port = write(tmp_path / "server.py", program), tmp_path / "log", free_port()
    command = [sys.executable, "-m", "mcptrio", "run", str(target), "--transport", "http", "--port", str(port)]
    with log.open("wb") as output:
        process = start([*command, *arguments], output)
    try:
        with trio.fail_after(20):
            while "is served at" not in log.read_text():
                assert process.poll() is None, log.read_text()
                await trio.sleep(0.02)
            yield port, log
        process.send_signal(signal.SIGTERM)
        assert await trio.to_thread.run_sync(process.wait, 10) == 0
    finally:
        process.kill()
        process.wait()


async def whoami(url: str, **settings: Any) -> str:
    async with connect(url, **settings) as client:
        result = await client.call_tool("whoami")
    return str(result.content[0].text)  # type: ignore[union-attr]


def bearer(token: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {token}"}}


@pytest.mark.defect("S17")
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o640])
async def test_callers_with_a_token_of_the_file_are_let_in(tmp_path: Path, mode: int) -> None:
    tokens = write(tmp_path / "tokens", TOKENS, mode)
    async with serving(tmp_path, "--token-file", str(tokens), program=SCOPED) as (port, log):
        url = f"http://127.0.0.1:{port}/mcp"
        assert await whoami(url, **bearer(ADA)) == "ada: orders:read orders:write"
        assert await whoami(url, **bearer(BOB)) == "bob: "
        for stranger in ({}, bearer("stranger-" + "n" * 30), bearer(ADA + "a"), bearer("ada")):
            with pytest.raises(MCPError, match="token is"):
                await whoami(url, **stranger)
        async with connect(url, **bearer(BOB)) as client:
            assert [tool.name for tool in await client.list_tools()] == ["whoami"]
    said = log.read_text()
    assert (f"chmod 600 {tokens}" in said) == (mode != 0o600)
    assert ADA not in said
    assert BOB not in said


async def test_the_file_may_be_named_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPTRIO_TOKEN_FILE", str(write(tmp_path / "tokens", TOKENS)))
    async with serving(tmp_path) as (port, _):
        assert await whoami(f"http://127.0.0.1:{port}/mcp", **bearer(BOB)) == "bob: "
    assert fails(tmp_path)[0] == 0, "a pipe needs no tokens, and ends with its input"


class Authorities:
    """Our certificate authority and a foreign one; the files that a server needs, and the certificates of clients."""

    def __init__(self, folder: Path) -> None:
        self.ours, self.others = trustme.CA(), trustme.CA()
        server = self.ours.issue_cert("127.0.0.1")
        self.ca, self.certfile, self.keyfile = folder / "ca.pem", folder / "server.pem", folder / "server.key"
        self.ours.cert_pem.write_to_path(str(self.ca))
        self.certfile.write_bytes(b"".join(blob.bytes() for blob in server.cert_chain_pems))
        server.private_key_pem.write_to_path(str(self.keyfile))
        self.keyfile.chmod(0o600)

    @property
    def options(self) -> list[str]:
        return ["--certfile", str(self.certfile), "--keyfile", str(self.keyfile), "--client-ca", str(self.ca)]

    def shown(self, name: str | None, issuer: trustme.CA | None = None) -> dict[str, Any]:
        context = ssl.create_default_context()
        self.ours.configure_trust(context)
        if name is not None:
            (issuer or self.ours).issue_cert(f"{name}.example", common_name=name).configure_cert(context)
        return {"http": HttpClientConfig(verify=context)}


async def test_callers_with_a_certificate_are_let_in_under_its_name(tmp_path: Path) -> None:
    authorities = Authorities(tmp_path)
    async with serving(tmp_path, *authorities.options) as (port, _):
        url = f"https://127.0.0.1:{port}/mcp"
        assert await whoami(url, **authorities.shown("ada")) == "ada: "
        assert await whoami(url, **authorities.shown("bob")) == "bob: "
        for stranger in (authorities.shown(None), authorities.shown("ada", authorities.others)):
            with pytest.raises(Exception, match=r"(?i)connection|certificate|tls|ssl"):
                await whoami(url, **stranger)
        with pytest.raises(httpx2.TransportError):
            async with httpx2.AsyncClient(trust_env=False) as plain:
                await plain.get(f"http://127.0.0.1:{port}/livez")


async def test_with_a_certificate_and_a_token_the_token_names_the_principal(tmp_path: Path) -> None:
    authorities, tokens = Authorities(tmp_path), write(tmp_path / "tokens", TOKENS)
    options = [*authorities.options, "--token-file", str(tokens)]
    async with serving(tmp_path, *options, program=SCOPED) as (port, _):
        url, shown = f"https://127.0.0.1:{port}/mcp", authorities.shown("door")
        assert await whoami(url, **shown, **bearer(ADA)) == "ada: orders:read orders:write"
        with pytest.raises(MCPError, match="token is"):
            await whoami(url, **shown)
        with pytest.raises(Exception, match=r"(?i)connection|certificate|tls|ssl"):
            await whoami(url, **authorities.shown(None), **bearer(ADA))


def test_wrong_options_are_reported_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        check_what_is_wrong(tmp_path, str(listener.getsockname()[1]))


def check_what_is_wrong(tmp_path: Path, taken: str) -> None:
    authorities = Authorities(tmp_path)
    http, tls = (
        ["--transport", "http"],
        ["--certfile", str(authorities.certfile), "--keyfile", str(authorities.keyfile)],
    )
    good, none = write(tmp_path / "tokens", TOKENS), tmp_path / "none"
    empty, comments = write(tmp_path / "empty", "\n \n"), write(tmp_path / "comments", "# no tokens\n")
    short, alone = write(tmp_path / "short", f"{ADA} ada\nsecret x\n"), write(tmp_path / "alone", f"{ADA}\n")
    twice, binary = write(tmp_path / "twice", f"{ADA} ada\n{ADA} bob\n"), tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    rows: list[tuple[int, list[str], str]] = [
        (2, [*http, "--token-file", str(none)], f"--token-file {none}: No such file or directory"),
        (2, [*http, "--token-file", str(tmp_path)], f"--token-file {tmp_path}: Is a directory"),
        (2, [*http, "--token-file", str(empty)], f"--token-file {empty} has no token: write one line TOKEN NAME"),
        (2, [*http, "--token-file", str(comments)], f"--token-file {comments} has no token"),
        (2, [*http, "--token-file", str(short)], "16 or more visible ASCII characters"),
        (2, [*http, "--token-file", str(alone)], f"--token-file {alone}: line 1: expected TOKEN NAME [SCOPE ...]"),
        (2, [*http, "--token-file", str(twice)], "line 2: duplicate token"),
        (2, [*http, "--token-file", str(binary)], f"--token-file {binary}: not a text file in UTF-8"),
        (2, ["--token-file", str(good)], "--token-file is an HTTP option: add --transport http"),
        (2, ["--client-ca", str(authorities.ca)], "--client-ca is an HTTP option: add --transport http"),
        (2, [*http, "--client-ca", str(authorities.ca)], "--client-ca needs --certfile"),
        (2, [*http, *tls, "--client-ca", str(none)], f"--client-ca {none}: No such file or directory"),
        (1, [*http, *tls, "--client-ca", str(empty)], "client_ca"),
        (1, [*http, "--certfile", str(none)], f"cannot use certificate {none}"),
        (1, [*http, "--port", taken], "in use"),
    ]
    for code, arguments, line in rows:
        found, lines = fails(tmp_path, *arguments)
        assert (found, len(lines)) == (code, 1), (arguments, lines)
        assert lines[0].startswith("mcptrio: ")
        assert line in lines[0]
        assert ADA not in lines[0]


def test_a_certificate_alone_gives_no_scopes(tmp_path: Path) -> None:
    code, lines = fails(tmp_path, "--transport", "http", *Authorities(tmp_path).options, program=SCOPED)
    assert (code, len(lines)) == (2, 1)
    assert "--token-file as well" in lines[0]


@pytest.mark.skipif(os.getuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_one_line(tmp_path: Path) -> None:
    tokens = write(tmp_path / "tokens", TOKENS, 0o000)
    code, lines = fails(tmp_path, "--transport", "http", "--token-file", str(tokens))
    assert (code, lines) == (2, [f"mcptrio: --token-file {tokens}: Permission denied"])


async def test_a_program_that_serves_says_where(tmp_path: Path) -> None:
    """Also one that does not care about logging."""
    port = free_port()
    target = write(tmp_path / "program.py", PROGRAM + f"\nserver.run('http', port={port})\n")
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = start([sys.executable, str(target)], output)
    try:
        with trio.fail_after(20):
            while not log.read_text().endswith("\n"):
                assert process.poll() is None
                await trio.sleep(0.02)
        assert f"INFO    mcptrio.serving: orders is served at http://127.0.0.1:{port}/mcp\n" in log.read_text()
    finally:
        process.kill()
        process.wait()
