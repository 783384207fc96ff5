"""The server process of the conformance tests: one that does not end is a failure, and nothing of it is left."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conformance import fixture
from tests.ports import free_port

SERVER = """
import http.server, os, signal
if {ignores_signals}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    signal.pause()

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", {port}), Handler).serve_forever()
"""


@pytest.mark.parametrize("ignores_signals", [True, False], ids=["the whole server", "its child"])
def test_a_server_that_does_not_end_fails_the_test_and_is_killed_with_its_children(
    ignores_signals: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fixture, "GONE_WITHIN", 0.5)
    port = free_port()
    command = [sys.executable, "-c", SERVER.format(ignores_signals=ignores_signals, port=port)]
    with (
        pytest.raises(RuntimeError, match=r"processes of the server ran 0\.5 s after SIGTERM") as failed,
        fixture.running(command, port, tmp_path / "log") as child,
    ):
        assert len(fixture.processes_of(child.pid)) == 2
    assert (f"{child.pid}: " in str(failed.value)) is ignores_signals
    assert not fixture.processes_of(child.pid)
