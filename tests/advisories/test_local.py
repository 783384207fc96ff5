"""Published ways to run, to fetch or to read something unintended (V46, V47, V52, V60 to V64): all must fail."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path

import pytest
import trio
from attrs import evolve

import mcptrio
from mcptrio import DeclarationError, connect
from mcptrio._schema.check import Checker
from mcptrio._uri.template import UriTemplate
from tests.bad_inputs import hostile
from tests.bad_inputs.catalogue import Case
from tests.bad_inputs.pipes import PipedServers
from tests.bad_inputs.process import Servers
from tests.bad_inputs.runner import CASES, run_request

from .cases import cases

PACKAGE = Path(mcptrio.__file__).parent


# -- V44


@cases("S35")
async def test_neg_redirect_cross_origin_307(case: Case) -> None:
    await hostile.run(case)


async def test_neg_redirect_carries_nothing_away() -> None:
    """The redirect's target listens, and gets no request: neither the message nor the caller's headers."""
    visited: list[bytes] = []

    async def elsewhere(stream: trio.SocketStream) -> None:
        visited.append(await stream.receive_some())
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, elsewhere, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        reply = f"HTTP/1.1 307 Go\r\nlocation: http://127.0.0.1:{port}/mcp\r\ncontent-length: 0\r\n\r\n"
        case = next(case for case in CASES if case.row == "S35" and case.date == "2026-07-28")
        changed = {**case.data, "client": {"reply": reply}, "settings": {"headers": {"x-secret": "mine"}}}
        await hostile.run(evolve(case, data=changed))
        nursery.cancel_scope.cancel()
    assert visited == []


# -- V46


@pytest.mark.parametrize("ref", ["http://127.0.0.1:9/x", "https://example.invalid/x#/a", "//example.invalid/x"])
def test_neg_schema_ref_http(ref: str) -> None:
    with pytest.raises(DeclarationError):
        Checker({"type": "object", "properties": {"a": {"$ref": ref}}})


@pytest.mark.parametrize("ref", ["file:///etc/passwd", "/etc/passwd", "passwd", "ftp://example.invalid/x"])
def test_neg_schema_ref_file(ref: str) -> None:
    with pytest.raises(DeclarationError):
        Checker({"type": "object", "properties": {"a": {"$ref": ref}}})


@cases("X01", "X02", "X04", "X05", "X06")
async def test_neg_schema_of_a_server(case: Case) -> None:
    await hostile.run(case)


# -- V47, V60: what is not there cannot be abused


def test_neg_proxy_absent(servers: Servers) -> None:
    with servers.use("usual") as server:
        speaker = server.speaker("2026-07-28")
        for path in ("/authorize", "/token", "/register", "/oauth/callback", "/.well-known/oauth-authorization-server"):
            assert speaker.exchange(b"{}", path=path).status == 404, path
            speaker.close()


def test_neg_no_spawn_route(servers: Servers) -> None:
    with servers.use("usual") as server:
        speaker = server.speaker("2026-07-28")
        for path in ("/", "/sse", "/messages", "/stdio", "/proxy", "/mcp/stdio", "/stdio?command=id", "/config"):
            assert speaker.exchange(b"{}", path=path).status == 404, path
            speaker.close()
    for folder in ("transports/http_server", "server", "_actors"):
        for path in (PACKAGE / folder).rglob("*.py"):
            text = path.read_text()
            assert "subprocess" not in text, f"{path.name} starts processes"
            assert "open_process" not in text, f"{path.name} starts processes"


# -- V52


@pytest.mark.parametrize("value", ["../admin", "a/b", "a?b=c", "a#b", "%2e%2e", "a b", "é", "\x00", "a\\b"])
def test_neg_path_param_encoded(value: str) -> None:
    """A value that is put into a URI stays one segment of it."""
    made = UriTemplate("api://items/{id}").expand(id=value)
    rest = made.removeprefix("api://items/")
    assert not set(rest) & set("/?#\\ \x00")
    assert UriTemplate("api://items/{id}").match(made) == {"id": value}


# -- V61

ECHO = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        info = {"name": json.dumps(sys.argv[1:]), "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
META = [
    "$(touch pwned)",
    "`id`",
    "; touch pwned",
    "| cat",
    "&& touch pwned",
    "> pwned",
    "*",
    "~",
    "a\nb",
    "'",
    '"',
    "%PATH%",
]


async def test_neg_stdio_argv_metachar_inert(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ECHO, *META]
    with trio.fail_after(20):
        async with connect(command, protocol="2025-11-25", cwd=tmp_path) as client:
            assert client.server_info is not None
            assert json.loads(client.server_info.name) == META
    assert os.listdir(tmp_path) == []


async def test_neg_stdio_argv_nul() -> None:
    with pytest.raises((mcptrio.MCPTrioError, ValueError)), trio.fail_after(30):
        async with connect([sys.executable, "-c", "pass", "a\x00b"]):
            pass


# -- V62


async def test_neg_stdio_env_minimal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not for children")
    monkeypatch.setenv("MCPTRIO_TEST_TOKEN", "not for children")
    monkeypatch.setenv("PATH", os.environ.get("PATH", ""))
    script = ECHO.replace("json.dumps(sys.argv[1:])", "json.dumps(sorted(__import__('os').environ))")
    with trio.fail_after(20):
        async with connect([sys.executable, "-c", script], protocol="2025-11-25") as client:
            assert client.server_info is not None
            names = client.server_info.name
    assert "AWS_SECRET_ACCESS_KEY" not in names
    assert "MCPTRIO_TEST_TOKEN" not in names
    assert "PATH" in names


# -- V63


@cases("U01")
def test_neg_resource_traversal(case: Case, servers: Servers) -> None:
    run_request(case, servers)


# -- V64


@cases("D09")
def test_neg_handler_print_not_on_wire(case: Case, piped_servers: PipedServers) -> None:
    piped_servers.run(case)
