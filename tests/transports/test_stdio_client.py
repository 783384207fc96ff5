"""Servers as child processes: what they may see, how they end, and what their callers learn. Real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from mcptrio import Client, ConnectionLost, DeclarationError, Reconnect, connect
from mcptrio.transports.stdio.client import StdioTransport, _Child, minimal_environment
from tests.client.kit import BOTH

OLD = BOTH[0]

# A server of a few lines, so that nothing but the transport is tested; `{extra}` runs before it serves.
SERVER = """
import json, os, signal, subprocess, sys, time
def say(**message):
    sys.stdout.write(json.dumps({{"jsonrpc": "2.0", **message}}) + "\\n"); sys.stdout.flush()
{extra}
for line in sys.stdin:
    asked = json.loads(line)
    method, id = asked.get("method"), asked.get("id")
    if method == "initialize":
        say(id=id, result={{"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {{"tools": {{}}}},
            "serverInfo": {{"name": "child", "version": "1"}}}})
    elif method == "tools/call":
        name, arguments = asked["params"]["name"], asked["params"].get("arguments", {{}})
        if name == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "exit":
            sys.stderr.write("out of paper\\n"); sys.stderr.flush(); os._exit(3)
        if name == "hang":
            continue
        value = {{"env": dict(os.environ), "pid": os.getpid(), "argv": sys.argv[1:], "cwd": os.getcwd()}}[name]
        say(id=id, result={{"content": [], "structuredContent": {{"value": value}}}})
{after}
"""

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")


def child(tmp_path: Path, *args: str, extra: str = "", after: str = "", **options: Any) -> Client:
    file = tmp_path / "child.py"
    file.write_text(SERVER.format(extra=extra, after=after))
    options.setdefault("protocol", OLD)
    return connect([sys.executable, str(file), *args], **options)


async def value(client: Client, name: str) -> Any:
    result = await client.call_tool(name)
    assert isinstance(result.structured_content, dict)
    return result.structured_content["value"]


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_a_child_sees_only_harmless_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET_TOKEN", "hunter2")
    monkeypatch.setenv("TZ", "() { :; }; echo shellshock")
    async with child(tmp_path, env={"GIVEN": "yes"}) as client:
        seen = await value(client, "env")
    assert "MY_SECRET_TOKEN" not in seen
    assert "TZ" not in seen
    assert seen["GIVEN"] == "yes"
    assert seen["PATH"] == os.environ["PATH"]
    assert set(minimal_environment()) <= set(os.environ)


async def test_arguments_reach_the_program_as_they_are(tmp_path: Path) -> None:
    odd = ["; rm -rf /", "$(whoami)", "a b", "`x`", "*", "|", "&&", '"', "'"]
    async with child(tmp_path, *odd, cwd=tmp_path) as client:
        assert await value(client, "argv") == odd
        assert await value(client, "cwd") == str(tmp_path)


@pytest.mark.parametrize("argv", [[], [""], ["x", "a\0b"], ["x.bat", "a & b"], ["X.CMD", "%PATH%"]])
def test_a_command_that_cannot_be_run_safely_is_refused(argv: list[str]) -> None:
    with pytest.raises(DeclarationError):
        StdioTransport(argv=argv)


async def test_a_program_that_does_not_exist_is_a_plain_error() -> None:
    with pytest.raises(ConnectionLost, match="could not be started"):
        async with connect(["/nonexistent/server"]):
            pass


async def test_killing_the_server_ends_its_callers_and_the_next_call_finds_a_new_one(tmp_path: Path) -> None:
    async with child(tmp_path) as client:
        first = await value(client, "pid")
        ended: list[ConnectionLost] = []

        async def hang() -> None:
            with pytest.raises(ConnectionLost) as caught:
                await client.call_tool("hang")
            ended.append(caught.value)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(hang)
            await trio.testing.wait_all_tasks_blocked(0.05)
            os.kill(first, signal.SIGKILL)
        assert "signal 9" in str(ended[0])
        second = await value(client, "pid")
        assert second != first


async def test_without_reconnect_tries_a_dead_server_is_not_restarted(tmp_path: Path) -> None:
    async with child(tmp_path, reconnect=Reconnect(tries=0)) as client:
        for _ in range(2):
            with pytest.raises(ConnectionLost):
                await client.call_tool("die")


async def test_the_last_line_of_standard_error_is_part_of_the_error(tmp_path: Path) -> None:
    lines: list[str] = []
    async with child(tmp_path, on_stderr=lines.append) as client:
        with pytest.raises(ConnectionLost, match=r"exited with code 3.*out of paper"):
            await client.call_tool("exit")
    assert lines == ["out of paper"]


async def test_a_server_that_exits_before_its_first_message_is_reported_with_its_error(tmp_path: Path) -> None:
    extra = "sys.stderr.write('no licence\\n'); sys.stderr.flush(); sys.exit(4)"
    with pytest.raises(ConnectionLost, match=r"exited with code 4.*no licence"):
        async with child(tmp_path, extra=extra, protocol=None):
            pass


async def test_a_flood_on_standard_error_is_drained_and_bounded(tmp_path: Path) -> None:
    extra = "for _ in range(300): sys.stderr.write('x' * 9999 + '\\n')"
    lines: list[str] = []
    async with child(tmp_path, extra=extra, on_stderr=lines.append) as client:
        assert await value(client, "pid")
    assert 900_000 < sum(map(len, lines)) < 1_300_000


async def test_banners_on_standard_output_are_skipped(tmp_path: Path) -> None:
    async with child(tmp_path, extra="print('Welcome!', flush=True); print('{', flush=True)") as client:
        assert await value(client, "pid")


async def test_a_server_that_ends_with_its_input_ends_by_itself(tmp_path: Path) -> None:
    marker = tmp_path / "goodbye"
    async with child(tmp_path, after=f"open({str(marker)!r}, 'w').close()") as client:
        pid = await value(client, "pid")
    assert marker.exists()
    assert not is_running(pid)


@pytest.mark.parametrize("deaf", ["signal.SIG_DFL", "signal.SIG_IGN"])
async def test_a_server_that_ignores_the_end_is_ended(tmp_path: Path, deaf: str) -> None:
    extra = f"signal.signal(signal.SIGTERM, {deaf})"
    client = child(tmp_path, extra=extra, after="time.sleep(600)")
    transport: Any = client._connector.transport
    client._connector.transport = attrs.evolve(transport, exit_timeout=0.2)
    async with client:
        pid = await value(client, "pid")
    assert not is_running(pid)


async def test_child_processes_of_a_server_end_with_it_and_do_not_delay_the_client(tmp_path: Path) -> None:
    """A grandchild that keeps the pipes open would otherwise make the end wait for it."""
    note = tmp_path / "pid"
    extra = (
        "helper = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(note)!r}, 'w').write(str(helper.pid))"
    )
    with trio.fail_after(30):
        async with child(tmp_path, extra=extra) as client:
            await value(client, "pid")
    grandchild = int(note.read_text())
    with trio.move_on_after(5):
        while is_running(grandchild):
            await trio.testing.wait_all_tasks_blocked(0.01)
    assert not is_running(grandchild)


async def test_leaving_early_ends_the_child(tmp_path: Path) -> None:
    pid = 0
    with pytest.raises(KeyError), trio.fail_after(30):
        async with child(tmp_path) as client:
            pid = await value(client, "pid")
            raise KeyError
    assert not is_running(pid)
    with trio.move_on_after(60) as scope:
        async with child(tmp_path) as client:
            pid = await value(client, "pid")
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert not is_running(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is needed")
async def test_no_orphan_is_left_when_the_client_is_killed(tmp_path: Path) -> None:
    """Even a child that does not read its standard input ends."""
    server, note = tmp_path / "child.py", tmp_path / "pid"
    extra = f"open({str(note)!r}, 'w').write(str(os.getpid()))"
    server.write_text(SERVER.format(extra=extra, after="time.sleep(600)"))
    program = (
        "import sys, trio, mcptrio\n"
        "async def main():\n"
        f"    async with mcptrio.connect([sys.executable, {str(server)!r}], protocol={OLD!r}):\n"
        "        print('open', flush=True)\n"
        "        await trio.sleep_forever()\n"
        "trio.run(main)\n"
    )
    with trio.fail_after(30):
        host = await trio.lowlevel.open_process([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert host.stdout is not None
        assert (await host.stdout.receive_some(100)).startswith(b"open")
        pid = int(note.read_text())
        assert is_running(pid)
        host.kill()
        await host.wait()
        await host.stdout.aclose()
        while is_running(pid):
            await trio.testing.wait_all_tasks_blocked(0.01)


@pytest.mark.defect("C16")
async def test_the_last_line_of_standard_error_is_kept_after_a_flood(tmp_path: Path) -> None:
    extra = "for _ in range(300): sys.stderr.write('x' * 9999 + '\\n')"
    async with child(tmp_path, extra=extra, on_stderr=lambda _: None) as client:
        with pytest.raises(ConnectionLost, match=r"exited with code 3.*out of paper"):
            await client.call_tool("exit")


@pytest.mark.defect("C16")
async def test_standard_error_is_handed_on_again_after_a_flood(autojump_clock: MockClock) -> None:
    class Said:
        async def receive_some(self, _: int) -> bytes:
            await trio.sleep(1)
            if not script:
                return b""
            return script.pop(0)

    script = [b"x" * 60_000 + b"\n"] * 30 + [b"later\n"] * 60
    lines: list[str] = []
    server: Any = SimpleNamespace(stderr=Said(), stdin=SimpleNamespace(fileno=int, send_all=None))
    server.stdout = server.stdin
    await _Child(server, "program", lines.append).drain_stderr()
    assert 10 < lines.count("later") < 60
    assert 1_000_000 < sum(map(len, lines)) < 1_200_000
