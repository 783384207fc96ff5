"""How much CPU time does a call need when client and server run in one process?"""

from __future__ import annotations

import subprocess

from contenders import SERVERS, Contender, Effort, Row, Servers
from load import Broken

SCRIPTS = {"hypercorn": "memory_mcptrio.py", "official-high": "memory_official.py", "fastmcp": "memory_fastmcp.py"}


def measure(servers: Servers, contender: Contender, effort: Effort) -> float:
    """Return the CPU microseconds of the process for one call, client and server together."""
    words, _ = contender.install()
    command = [*words, str(SERVERS / SCRIPTS[contender.key]), str(effort.scaled(2000))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=SERVERS, check=False)
    if done.returncode:
        raise Broken(done.stderr.strip()[-300:])
    return float(done.stdout.split()[-1]) * 1e6


ROWS = (
    Row(key="in-memory", title="tools/call inside one process", unit="µs", contenders=tuple(SCRIPTS), measure=measure),
)
