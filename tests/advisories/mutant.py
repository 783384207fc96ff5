"""A guard that is removed to see whether its test fails, and the test files that the rows name."""

from __future__ import annotations

from attrs import frozen

SURVIVAL, ISOLATION = "tests/advisories/test_survival.py", "tests/advisories/test_isolation.py"
BOUNDARY, LOCAL = "tests/advisories/test_boundary.py", "tests/advisories/test_local.py"
AUTHORIZATION = "tests/e2e/test_authorization.py"
HTTP = "transports/http_server"


@frozen
class Mutant:
    """One guard taken away."""

    row: str
    guard: str
    file: str
    old: str
    new: str
    where: str
    test: str
    also: tuple[tuple[str, str, str], ...] = ()
    """Further guards that would step in: each a file, an old and a new text."""
