"""Contenders, their servers as child processes, and what those cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from load import Broken, Connection, Pipe, free_port, open_session, wait_for

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

from tests.conformance.toolchain import attempt, made, node, python_package  # noqa: E402

SERVERS = HERE / "servers"
BASE = "official-high"


@dataclass(frozen=True, kw_only=True)
class Contender:
    """Somebody whose server is measured."""

    key: str
    title: str
    script: str
    options: tuple[str, ...] = ()
    ours: bool = False
    bring: Callable[[], tuple[list[str], dict[str, str]]]
    """Installs it if need be; the words before its script, and its environment."""

    def command(self, *options: str) -> tuple[list[str], dict[str, str]]:
        words, env = self.bring()
        env = {**os.environ, **env}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # a user's modules are compiled once, not at every start
        return [*words, str(SERVERS / self.script), *self.options, *options], env


def _own() -> tuple[list[str], dict[str, str]]:
    return [sys.executable], {}


def _python(name: str, spec: str) -> Callable[[], tuple[list[str], dict[str, str]]]:
    return lambda: ([str(python_package(f"bench/{name}", spec))], {})


def _typescript() -> tuple[list[str], dict[str, str]]:
    needs = {"@modelcontextprotocol/server": "2", "@modelcontextprotocol/node": "2", "zod": "4"}
    found = node()

    def build(place: Path) -> None:
        place.mkdir(parents=True)
        (place / "package.json").write_text(json.dumps({"private": True, "dependencies": needs}))
        quiet = ("--no-audit", "--no-fund", "--no-package-lock", "--loglevel", "error")
        attempt("npm", "install", "--prefix", str(place), *quiet, env=found.env)

    place = made("bench/typescript", json.dumps(needs), build)
    return [str(found.program)], {"PEER_MODULES": str(place / "node_modules")}


_MCP = _python("mcp", "mcp")
CONTENDERS = {
    contender.key: contender
    for contender in (
        Contender(
            key="express",
            title="mcptrio, express lane",
            script="mcptrio_server.py",
            options=("--lane", "express"),
            ours=True,
            bring=_own,
        ),
        Contender(
            key="mcptrio",
            title="mcptrio, Hypercorn lane",
            script="mcptrio_server.py",
            options=("--lane", "hypercorn"),
            ours=True,
            bring=_own,
        ),
        Contender(key="static", title="Hypercorn, one fixed answer", script="static_server.py", ours=True, bring=_own),
        Contender(key=BASE, title="official Python SDK, high level", script="official_high.py", bring=_MCP),
        Contender(key="official-low", title="official Python SDK, low level", script="official_low.py", bring=_MCP),
        Contender(key="fastmcp", title="FastMCP", script="fastmcp_server.py", bring=_python("fastmcp", "fastmcp")),
        Contender(key="typescript", title="TypeScript SDK", script="typescript.mjs", bring=_typescript),
    )
}


@dataclass(eq=False)
class Child:
    """A server that runs."""

    process: subprocess.Popen[bytes]
    port: int = 0
    sessions: list[tuple[Connection, str]] = field(default_factory=list)
    kept: dict[str, object] = field(default_factory=dict)

    @property
    def cpu(self) -> float:
        """CPU seconds that it has used, over all of its threads; to the nanosecond, from the kernel."""
        return time.clock_gettime((~self.process.pid << 3) | 2)

    @property
    def memory(self) -> float:
        """KiB that it holds alone: what would be free if it were gone."""
        text = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        return sum(float(line.split()[1]) for line in text.splitlines() if line.startswith("Private_"))

    @property
    def resident(self) -> float:
        """KiB that it holds, shared libraries among them."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return float(status.split("VmRSS:")[1].split()[0])

    def connect(self, count: int) -> list[tuple[Connection, str]]:
        """So many connections, each with a session of its own, which is kept for the next round."""
        while len(self.sessions) < count:
            self.sessions.append(open_session(self.port, elicitation={"form": {}}))
        for place, (connection, session) in enumerate(self.sessions[:count]):
            connection.close()  # some servers end one that was idle for a few seconds
            self.sessions[place] = (Connection(self.port), session)
        return self.sessions[:count]

    def end(self) -> None:
        for connection, _ in self.sessions:
            connection.close()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self.process.kill()
        self.process.wait()


@dataclass(eq=False)
class Lab:
    """Starts servers and keeps them while a question is asked; idle ones cost no CPU time."""

    children: dict[tuple[str, ...], Child] = field(default_factory=dict)

    def start(self, contender: Contender, *options: str, stdio: bool = False) -> Child:
        port = 0 if stdio else free_port()
        command, env = contender.command(*(() if stdio else ("--port", str(port))), *options)
        pipe = subprocess.PIPE if stdio else subprocess.DEVNULL
        process = subprocess.Popen(
            command, env=env, cwd=SERVERS, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, bufsize=0
        )
        child = Child(process, port)
        if not stdio:
            try:
                wait_for(port, process)
            except Broken as error:
                child.end()
                raise Broken(f"{contender.title}: {error} ({' '.join(command)})") from None
        return child

    def server(self, contender: Contender, *options: str) -> Child:
        key = (contender.key, *options)
        if key not in self.children:
            self.children[key] = self.start(contender, *options)
        return self.children[key]

    def pipe(self, contender: Contender) -> tuple[Child, Pipe]:
        key = (contender.key, "stdio")
        if key not in self.children:
            child = self.children[key] = self.start(contender, stdio=True)
            child.kept["pipe"] = pipe = Pipe(child.process)
            pipe.open()
        child = self.children[key]
        found = child.kept["pipe"]
        assert isinstance(found, Pipe)
        return child, found

    def close(self) -> None:
        for child in self.children.values():
            child.end()
        self.children.clear()


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is done for one figure."""

    rounds: int
    seconds: float
    """For one contender in one round."""
    scale: float = 1.0
    """Of the counts that are large in a full run."""

    def some(self, count: int) -> int:
        return max(1, int(count * self.scale))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the result: what is measured, of whom, and how."""

    key: str
    title: str
    unit: str
    contenders: Sequence[str]
    measure: Callable[[Lab, Contender, Effort], float]
    """One figure, of one contender, in one round. Less is better."""
    rounds: int | None = None
    """Fewer than usual, where one takes long."""
