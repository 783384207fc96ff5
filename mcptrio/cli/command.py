"""The frame of a client command: argument parsing, Ctrl-C and the exit code."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module

import cyclopts
import trio
from rich.console import Console

from mcptrio.cli.exit_codes import INTERRUPTED, NO_OUTPUT, REFUSED, USAGE, Failure, OutputError, as_json, explain
from mcptrio.cli.stdout import checked_stdout
from mcptrio.cli.target import with_command
from mcptrio.cli.terminal import Terminal, print_json
from mcptrio.client.exceptions import open_unwrapped_nursery, unwrap
from mcptrio.errors import MCPError, MCPTrioError
from mcptrio.types import Prompt, Tool

QUIET = cyclopts.Parameter(show_default=False, negative=())


def main(name: str, arguments: Sequence[str]) -> int:
    """Run a client command and return its exit code."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115  # for the rest of the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        print("mcptrio: cannot write to stdout: it is closed", file=sys.stderr)
        return NO_OUTPUT
    try:
        code = app_for(name)([name, *with_command(arguments)], exit_on_error=False, print_error=False)
    except cyclopts.UnusedCliTokensError as error:
        print(f"mcptrio: {_too_many(error.unused_tokens or [])}. See mcptrio {name} --help", file=sys.stderr)
        return USAGE
    except cyclopts.CycloptsError as error:
        print(f"mcptrio: {' '.join(str(error).split())} See mcptrio {name} --help", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except OutputError as error:  # of --help
        print(f"mcptrio: {error}", file=sys.stderr)
        return NO_OUTPUT
    return code if isinstance(code, int) else 0


def _too_many(words: Sequence[str]) -> str:
    hint = f"; write an argument of a tool as --arg {words[0]}" if "=" in words[0] else ""
    return f"unexpected argument {' '.join(words)!r}{hint}"


def app_for(name: str) -> cyclopts.App:
    """Make the Cyclopts application of one command."""
    module = import_module(f"mcptrio.cli.{name}")
    app = cyclopts.App(
        name="mcptrio",
        version_flags=[],
        help_format="plaintext",
        default_parameter=QUIET,
        backend="trio",
        result_action="return_value",
        argfile_prefix=None,
        console=Console(file=checked_stdout()),
    )
    app.command(getattr(module, name), name=name, help_epilogue=module.EXAMPLES)
    return app


async def run(terminal: Terminal, work: Callable[[], Awaitable[int]]) -> int:
    """Run `work` and return its exit code; an error becomes an exit code and one line on stderr."""
    try:
        return await _interruptible(terminal, work)
    except (MCPTrioError, Failure, ExceptionGroup) as raised:
        error = unwrap(raised)
        end = explain(error)
        line = str(end) + terminal.last_warning(end)
        terminal.complain(line)
        if terminal.json and not isinstance(error, OutputError):
            print_json(as_json(error, Failure(end.code, line)))
        return end.code
    finally:
        terminal.close()


async def refuse_unknown(
    kind: str, name: str, listed: Callable[[], Awaitable[Sequence[Tool | Prompt]]], error: MCPError
) -> None:
    """Raise an error that lists the tools or prompts, if the one of this name does not exist."""
    try:
        names = [one.name for one in await listed()]
    except MCPTrioError:
        return
    if name not in names:
        raise Failure(REFUSED, f"unknown {kind} {name!r}; the server has: {', '.join(names) or 'none'}") from error


async def _interruptible(terminal: Terminal, work: Callable[[], Awaitable[int]]) -> int:
    """Cancel the work, and so the request at the server, on Ctrl-C; a second Ctrl-C skips the clean shutdown."""
    with trio.CancelScope() as scope:
        async with open_unwrapped_nursery() as nursery:
            await nursery.start(_watch, scope)
            try:
                return await work()
            finally:
                nursery.cancel_scope.cancel()
    terminal.complain("interrupted")
    return INTERRUPTED


async def _watch(scope: trio.CancelScope, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    with trio.open_signal_receiver(signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            scope.cancel()
            break  # the next Ctrl-C raises KeyboardInterrupt as usual
