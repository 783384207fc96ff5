"""A worker that is a new interpreter: `python -m mcptrio.cli.worker CONTROL SOCKETS …`, started by its parent only.

The first two arguments are descriptors; the others are those of `mcptrio run`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mcptrio._workers.control import WorkerControl
from mcptrio.cli.exit_codes import Failure
from mcptrio.cli.run import prepare
from mcptrio.cli.workers import adopt_sockets, run_worker


def main(arguments: Sequence[str]) -> int:
    """Serve as a worker and return the exit code."""
    fd, sockets, *argv = arguments
    control = WorkerControl.adopt(int(fd))
    try:
        settings = prepare(argv)
    except Failure as failure:  # a variable or the table has changed since the parent was started
        control.refused(str(failure))
        return failure.code
    return run_worker(settings, None, control, adopt_sockets(sockets))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
