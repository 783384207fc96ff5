"""Progress directly before the result reaches the clients of the TypeScript SDK over stdio, which most hosts use."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.peer_envs import DRIVERS, PEERS, brought

SERVER = Path(__file__).parent / "programs" / "typed_results.py"
PATIENT = "import sys; from mcptrio.transports.stdio import server; server.READ_WITHIN = 60.0; "
"""On a busy machine the client may read later than a server usually waits."""
RUN = f"{PATIENT} import runpy; runpy.run_path({str(SERVER)!r}, run_name='__main__')"


@pytest.mark.slow
@pytest.mark.defect("C31")
@pytest.mark.parametrize(
    ("driver", "which"),
    [
        ("typescript-sdk-1", "sdk1"),
        pytest.param("typescript-client-2", "client2", marks=pytest.mark.exhaustive),
    ],
)
def test_progress_directly_before_the_result_arrives(driver: str, which: str) -> None:
    client = brought(DRIVERS[driver])
    client = replace(client, command=(client.command[0], str(PEERS / "progress.mjs")))
    done = client.run(which, "50", sys.executable, "-c", RUN)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"3": 50}
