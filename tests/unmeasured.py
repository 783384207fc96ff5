"""Child processes without coverage, for tests of what a process imports: `make coverage` would import more into it."""

from __future__ import annotations

import os


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
