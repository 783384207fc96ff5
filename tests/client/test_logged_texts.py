"""Texts of a server in the log of a client: on one line, without control or direction characters."""

from __future__ import annotations

import logging
import sys
from collections.abc import Awaitable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from mcptrio import MCPTrioError, Reconnect, connect, connect_all
from tests.transports.scripted_http import Answer, Asked, Web, result, stateful
from tests.transports.test_http_client import to

PROGRAM = Path(__file__).parents[1] / "e2e" / "programs" / "nasty_texts.py"
NASTY = "\x1b[31mred\x9b0m\u202eover\u2066\nERROR forged line\r\u2028"
OLD = "2025-11-25"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "mcptrio")
    return caplog


def check(log: pytest.LogCaptureFixture, *parts: str) -> None:
    """Every part was logged, and each line can be printed as it is."""
    lines = [record.getMessage() for record in log.records if record.name.startswith("mcptrio")]
    for part in parts:
        assert any(part in line for line in lines), (part, lines)
    assert [line for line in lines if not line.isprintable()] == []


@pytest.mark.defect("S15")
async def test_a_program_cannot_forge_lines_of_the_log(log: pytest.LogCaptureFixture) -> None:
    async with connect([sys.executable, str(PROGRAM)], log=lambda message: None) as client:
        with pytest.raises(MCPTrioError):
            await client.call_tool("nasty")
        await client.ping()
    check(log, "on stderr", "does not know server/discover", "rejected logging/setLevel", "cannot be read")


@pytest.mark.defect("S15")
async def test_a_server_that_cannot_be_reached_cannot_forge_lines(log: pytest.LogCaptureFixture) -> None:
    async with connect_all({"nasty": [sys.executable, str(PROGRAM), "dies"]}) as clients:
        assert "nasty" in clients.failed
    check(log, "could not be connected to")


@pytest.mark.defect("S15")
@pytest.mark.parametrize("status", [500, 503])
async def test_a_web_server_cannot_forge_lines_of_the_log(
    status: int, log: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    def handle(asked: Asked) -> Answer | Awaitable[Answer]:
        if asked.method == "GET" or asked.rpc == "notifications/roots/list_changed":
            error = {"jsonrpc": "2.0", "error": {"code": -32603, "message": NASTY}}
            return Answer(status, error, {"content-type": "application/json"})
        return ordinary(asked)

    ordinary = stateful(OLD, lambda asked: Answer(200, result(asked, content=[], tools=[])))

    async with to(Web(handle), roots=[], reconnect=Reconnect(tries=1)) as client:
        await client.call_tool("any")
        await client.notify("notifications/roots/list_changed")
        await trio.sleep(10)
    check(log, "own stream", "was not accepted")
