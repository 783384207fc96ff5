"""Mutants for the command line and the examples."""

from __future__ import annotations

from .mutant import Mutant

CLI, EXAMPLES = "tests/e2e/test_cli.py", "tests/e2e/test_examples.py"
WORKERS = "tests/cli/test_workers.py"

MUTANTS = [
    Mutant(
        "S12", "a server file does not import from the working directory", "cli/target.py",
        'argv = (sys.executable, "-P", "-m", "mcptrio", "run", text,',
        'argv = (sys.executable, "-m", "mcptrio", "run", text,',
        CLI, "test_a_server_file_imports_nothing_from_the_working_directory",
    ),
    Mutant(
        "S13", "only the last hop of X-Forwarded-For is trusted", "../examples/behind_proxy.py",
        '.split(",")[-1]', '.split(",")[0]',
        EXAMPLES, "test_behind_a_proxy",
    ),
    Mutant(
        "S15", "JSON on a terminal is escaped", "cli/terminal.py",
        "    if sys.stdout.isatty():\n        data = escape_json(data.decode()).encode()\n", "",
        CLI, "test_json_on_a_terminal_shows_no_control_characters",
    ),
    Mutant(
        "W06", "a fork holds no copy of the parent's end", "_workers/spawn.py",
        "        each.close()", "        pass",
        WORKERS, "test_a_stopped_worker_does_not_hide_the_end_of_the_parent",
    ),
    Mutant(
        "W06", "a worker drains when its parent is gone", "_workers/control.py",
        "                self._drain()\n                return", "                return",
        WORKERS, "test_no_worker_outlives_its_parent",
    ),
    Mutant(
        "W07", "sessions are not served by several workers without a shared store", "server/workers.py",
        "    if served.newest_stateful is not None and (store is None or not store.shared):", "    if False:",
        WORKERS, "test_what_workers_cannot_serve_ends_with_one_line",
    ),
]  # fmt: skip
