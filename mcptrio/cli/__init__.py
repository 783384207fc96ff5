"""The command line: `mcptrio run`, and what talks to servers. The only place that reads the environment."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point of the `mcptrio` command. Returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # `run` is what hosts start, often and in a hurry: it must not pay for anything that the other commands need.
    from mcptrio.cli.run import main as run

    return run(arguments)
