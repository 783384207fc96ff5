"""The contenders, and their servers as child processes whose CPU time and memory are measured."""

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
    """One MCP implementation whose server is measured."""

    key: str
    title: str
    script: str
    options: tuple[str, ...] = ()
    ours: bool = False
    install: Callable[[], tuple[list[str], dict[str, str]]]
    """Install the contender if necessary; return the interpreter's command line and environment variables."""

    def command(self, *options: str) -> tuple[list[str], dict[str, str]]:
        words, env = self.install()
        env = {**os.environ, **env}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # users' modules are compiled once, not at every start
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
            key="hypercorn",
            title="mcptrio, hypercorn (default)",
            script="mcptrio_server.py",
            options=("--engine", "hypercorn"),
            ours=True,
            install=_own,
        ),
        Contender(
            key="direct",
            title="mcptrio, direct",
            script="mcptrio_server.py",
            options=("--engine", "direct"),
            ours=True,
            install=_own,
        ),
        Contender(key="static", title="Hypercorn, fixed response", script="static_server.py", ours=True, install=_own),
        Contender(key=BASE, title="official Python SDK, high level", script="official_high.py", install=_MCP),
        Contender(key="official-low", title="official Python SDK, low level", script="official_low.py", install=_MCP),
        Contender(key="fastmcp", title="FastMCP", script="fastmcp_server.py", install=_python("fastmcp", "fastmcp")),
        Contender(key="typescript", title="TypeScript SDK", script="typescript.mjs", install=_typescript),
    )
}
ENGINES = ("hypercorn", "direct")
OTHERS = (BASE, "official-low", "fastmcp", "typescript")
OVER_HTTP = (*ENGINES, *OTHERS)
OVER_STDIO = ("hypercorn", *OTHERS)  # stdio has no engine; its figures stand in the column of the default one


@dataclass(eq=False)
class Child:
    """A running server process, and the sessions opened on it."""

    process: subprocess.Popen[bytes]
    port: int = 0
    sessions: list[tuple[Connection, str]] = field(default_factory=list)
    kept: dict[str, object] = field(default_factory=dict)

    @property
    def cpu(self) -> float:
        """CPU seconds used so far by all threads of the process, as counted by the kernel."""
        return time.clock_gettime((~self.process.pid << 3) | 2)

    @property
    def memory(self) -> float:
        """Private memory in KiB: the amount that would be free if the process ended."""
        text = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        return sum(float(line.split()[1]) for line in text.splitlines() if line.startswith("Private_"))

    @property
    def resident(self) -> float:
        """Resident memory in KiB, shared libraries included."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return float(status.split("VmRSS:")[1].split()[0])

    def connect(self, count: int) -> list[tuple[Connection, str]]:
        """Open `count` connections, each with its own session; the sessions are reused in the next round."""
        while len(self.sessions) < count:
            self.sessions.append(open_session(self.port, elicitation={"form": {}}))
        for place, (connection, session) in enumerate(self.sessions[:count]):
            connection.close()  # some servers close a connection that was idle for a few seconds
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
class Servers:
    """The server processes of one question, kept until it is answered; idle ones use no CPU time."""

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

    def get(self, contender: Contender, *options: str) -> Child:
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
    """The amount of work behind one figure."""

    rounds: int
    seconds: float
    """Duration of one contender's turn in one round."""
    scale: float = 1.0
    """Factor for the counts that are large in a full run."""

    def scaled(self, count: int) -> int:
        return max(1, int(count * self.scale))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the results: its title, its contenders and the function that measures it."""

    key: str
    title: str
    unit: str
    contenders: Sequence[str]
    measure: Callable[[Servers, Contender, Effort], float]
    """Return one figure of one contender in one round. Less is better."""
    rounds: int | None = None
    """Maximum number of rounds, for rows that take long."""
