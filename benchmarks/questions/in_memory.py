"""What does a call cost when client and server live in one process?"""

from __future__ import annotations

import subprocess

from lab import SERVERS, Contender, Effort, Lab, Row
from load import Broken

SCRIPTS = {"mcptrio": "memory_mcptrio.py", "official-high": "memory_official.py", "fastmcp": "memory_fastmcp.py"}


def measure(lab: Lab, contender: Contender, effort: Effort) -> float:
    """CPU microseconds of the process for one call, both sides together."""
    words, _ = contender.bring()
    command = [*words, str(SERVERS / SCRIPTS[contender.key]), str(effort.some(2000))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=SERVERS, check=False)
    if done.returncode:
        raise Broken(done.stderr.strip()[-300:])
    return float(done.stdout.split()[-1]) * 1e6


ROWS = (Row(key="in-memory", title="call inside one process", unit="µs", contenders=tuple(SCRIPTS), measure=measure),)
