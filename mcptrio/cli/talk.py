"""Running a command that talks to a server: its arguments, Ctrl-C, and how it ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module

import cyclopts
import trio

from mcptrio.cli.exits import INTERRUPTED, NO_OUTPUT, Failure, as_json, explain
from mcptrio.cli.screen import Screen, print_json
from mcptrio.cli.target import with_command
from mcptrio.client.plain import open_plain_nursery, plain
from mcptrio.errors import MCPTrioException

QUIET = cyclopts.Parameter(show_default=False, negative=())


def main(name: str, arguments: Sequence[str]) -> int:
    """Run a command. Returns its exit code."""
    try:
        code = app_for(name)([name, *with_command(arguments)], exit_on_error=False, print_error=False)
    except cyclopts.UnusedCliTokensError as error:
        print(f"mcptrio: {_too_many(error.unused_tokens or [])}. See mcptrio {name} --help", file=sys.stderr)
        return 64
    except cyclopts.CycloptsError as error:
        print(f"mcptrio: {' '.join(str(error).split())} See mcptrio {name} --help", file=sys.stderr)
        return 64
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read standard output has left; the interpreter must not try to flush it once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NO_OUTPUT
    return code if isinstance(code, int) else 0


def _too_many(words: Sequence[str]) -> str:
    hint = f"; an argument of a tool is written --arg {words[0]}" if "=" in words[0] else ""
    return f"{' '.join(words)!r} is one word too many{hint}"


def app_for(name: str) -> cyclopts.App:
    """The command, ready to parse its arguments."""
    module = import_module(f"mcptrio.cli.{name}")
    app = cyclopts.App(
        name="mcptrio",
        version_flags=[],
        help_format="plaintext",
        default_parameter=QUIET,
        backend="trio",
        result_action="return_value",
        argfile_prefix=None,
    )
    app.command(getattr(module, name), name=name, help_epilogue=module.EXAMPLES)
    return app


async def run(screen: Screen, work: Callable[[], Awaitable[int]]) -> int:
    """What `work` returns, or the code for how it failed, with one line on standard error."""
    try:
        return await _interruptible(screen, work)
    except (MCPTrioException, Failure, ExceptionGroup) as raised:
        error = plain(raised)
        end = explain(error)
        line = str(end) + screen.last_words(end)
        screen.complain(line)
        if screen.json:
            print_json(as_json(error, Failure(end.code, line)))
        return end.code
    finally:
        screen.close()


async def _interruptible(screen: Screen, work: Callable[[], Awaitable[int]]) -> int:
    """Ctrl-C cancels the work, and so the request at the server; a second one does not wait for the farewell."""
    with trio.CancelScope() as scope:
        async with open_plain_nursery() as nursery:
            await nursery.start(_watch, scope)
            try:
                return await work()
            finally:
                nursery.cancel_scope.cancel()
    screen.complain("interrupted")
    return INTERRUPTED


async def _watch(scope: trio.CancelScope, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    with trio.open_signal_receiver(signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            scope.cancel()
            break  # from here on Ctrl-C means what it means elsewhere
