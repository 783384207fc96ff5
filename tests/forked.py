"""`mcptrio …` commands as processes of their own, without starting an interpreter for each.

A server process imports the package once and forks for every command: the child has its own streams, environment and
folder, and ends as an interpreter does. Importing takes most of the time of a short command. Tests of what an
interpreter does at its start, and of terminals and signals, start a real one.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT = 60.0
NAMES = ("run", "inspect", "call", "read", "prompt", "listen", "shell", "cluster", "command")


def run_command(
    arguments: Sequence[str], *, stdin: bytes = b"", merged: bool = False, cwd: Path = ROOT, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run `mcptrio` with these arguments; stdin is a pipe that holds these bytes. `merged`: stderr goes to stdout."""
    read, write = os.pipe()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            os.write(write, stdin)  # it fits in the buffer of a pipe
        finally:
            os.close(write)
        what = json.dumps([list(arguments), str(cwd), dict(env)]).encode()
        server = _server()
        try:
            socket.send_fds(
                server, [len(what).to_bytes(4, "big")], [read, out.fileno(), (out if merged else err).fileno()]
            )
            server.sendall(what)
        finally:
            os.close(read)
        code = int.from_bytes(server.recv(4), "big", signed=True)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(list(arguments), code, out.read().decode(), err.read().decode())


@cache
def _server() -> socket.socket:
    """Start the process that forks; it ends with this one."""
    ours, theirs = socket.socketpair()
    ours.settimeout(TIMEOUT)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.forked", str(theirs.fileno())], cwd=ROOT, pass_fds=[theirs.fileno()]
    )
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _serve(connection: socket.socket) -> None:
    from importlib import import_module

    for name in NAMES:
        import_module(f"mcptrio.cli.{name}")
    while True:
        size, fds, _, _ = socket.recv_fds(connection, 4, 3)
        if not size:
            return
        what = b""
        while len(what) < int.from_bytes(size, "big"):
            what += connection.recv(65536)
        if not (child := os.fork()):
            connection.close()
            _become(fds, *json.loads(what))
            return  # never reached: the command has ended with SystemExit
        for fd in fds:
            os.close(fd)
        _, status = os.waitpid(child, 0)
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))


def _become(fds: Sequence[int], arguments: list[str], cwd: str, env: dict[str, str]) -> None:
    """Continue as a new `mcptrio` would."""
    from mcptrio.cli import main

    for number, fd in enumerate(fds):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["mcptrio", *arguments]
    signal.alarm(int(TIMEOUT))  # a command that hangs ends
    sys.exit(main(arguments))


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
