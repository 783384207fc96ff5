"""FastMCP's own client sees plain values, not wrappers, and reads the whole of a large result."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.conformance.toolchain import python_package
from tests.e2e.peer_envs import PEERS, Program, brought
from tests.tiers import sample

SERVER = Path(__file__).parent / "programs" / "typed_results.py"
RELEASES = {"3": "fastmcp>=3,<4", "2": "fastmcp>=2.14,<3"}


@pytest.mark.slow
@pytest.mark.parametrize("release", sample(RELEASES, "3"))
def test_a_fastmcp_client_unwraps_results(release: str) -> None:
    client = brought(
        lambda: Program(
            command=(
                str(python_package(f"peers/fastmcp-{release}", RELEASES[release])),
                str(PEERS / "drive_fastmcp.py"),
            )
        )
    )
    done = client.run(sys.executable, str(SERVER))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.strip().splitlines()[-1]) == {
        "number": 3,
        "numbers": [1, 2],
        "maybe": None,
        "point": {"x": 1, "y": 2},
        "points": [{"x": 1, "y": 2}],
        "text": None,  # a text is content, not data
        "lenient": "5 ['a']",
        "large": 1000,
    }
