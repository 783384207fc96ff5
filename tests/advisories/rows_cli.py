"""Mutants for the command line and the examples."""

from __future__ import annotations

from .mutant import Mutant

CLI, EXAMPLES = "tests/e2e/test_cli.py", "tests/e2e/test_examples.py"
WORKERS = "tests/cli/test_workers.py"
SIGNALS = "tests/e2e/test_signals.py"

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
        WORKERS, "test_a_server_that_workers_cannot_serve_ends_with_one_line",
    ),
    Mutant(
        "D04", "a signal cancels the start", "server/serve.py",
        "        start.cancel()\n", "        pass\n",
        SIGNALS, "test_a_signal_cancels_a_lifespan_that_is_starting",
    ),
    Mutant(
        "D04", "the exit timer starts with the first signal", "server/program.py",
        "            _thread.start_new_thread(self._exit_in_time, ())\n", "            pass\n",
        SIGNALS, "test_the_exit_timer_runs_while_the_start_blocks_the_event_loop",
    ),
    Mutant(
        "E28", "a closed pipe is one line and exit code 74", "cli/stdout.py",
        "    except OSError as error:\n        # The interpreter",
        "    except ZeroDivisionError as error:\n        # The",
        CLI, "test_a_closed_pipe_ends_the_command_with_one_line",
    ),
    Mutant(
        "E28", "stdout is not flushed again at exit", "cli/stdout.py",
        "        os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())\n        raise OutputError",
        "        raise OutputError",
        CLI, "test_a_stdout_that_cannot_be_written_ends_the_command_with_one_line",
    ),
    Mutant(
        "E28", "help that cannot be written is one line", "cli/command.py",
        "        console=Console(file=checked_stdout()),\n", "",
        CLI, "test_help_into_a_closed_pipe_ends_with_one_line",
    ),
    Mutant(
        "E29", "a field checks its format", "cli/forms.py",
        "        if wanted is not None and isinstance(value, str) and not", "        if False and not",
        "tests/cli/test_forms.py", "test_a_format_is_checked_at_the_field",
    ),
    Mutant(
        "E29", "a form that is edited keeps its answers", "cli/callbacks.py",
        "        kept = content.get(field.name, field.default)\n", "        kept = field.default\n",
        CLI, "test_a_form_is_filled_in_at_the_terminal_and_edited",
    ),
    Mutant(
        "E29", "a wrong field is asked for again, alone", "cli/callbacks.py",
        "                self.terminal.note(str(error), \"red\")\n",
        "                raise _Declined from error\n",
        CLI, "test_a_form_is_filled_in_at_the_terminal_and_edited",
    ),
]  # fmt: skip
