"""`mcptrio shell TARGET`: call tools, read resources and fill in prompts of one server, line by line."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

import trio
from attrs import define

from mcptrio._wire.objects.converter import unstructure
from mcptrio.cli import arguments
from mcptrio.cli.call import call_and_show
from mcptrio.cli.command import run
from mcptrio.cli.completion import COMMANDS, Completer
from mcptrio.cli.connection import open_client
from mcptrio.cli.content import pieces_of, show
from mcptrio.cli.exit_codes import INTERRUPTED, OK, Failure, OutputError, UsageError, as_json, explain
from mcptrio.cli.inspect import describe, show_offers
from mcptrio.cli.options import ConnectionOptions, TargetText
from mcptrio.cli.prompt import fill_in, show_prompt
from mcptrio.cli.terminal import Terminal, clean, print_json
from mcptrio.client.client import Client
from mcptrio.client.exceptions import unwrap
from mcptrio.errors import MCPTrioError

EXAMPLES: Final = """\
examples:
  mcptrio shell server.py
  mcptrio shell mcp.json:github
  echo 'call add a=1 b=2' | mcptrio shell server.py --json

lines: call TOOL name=value …, read URI, prompt NAME name=value …, list, help, quit"""
HELP: Final = """\
call TOOL name=value …      call a tool; or: call TOOL {"name": "value"}
read URI                    read a resource
prompt NAME name=value …    fill in a prompt
list                        show what the server offers
help                        show this text
quit                        end the shell; so does Ctrl-D

Tab completes commands, names, arguments, URIs and the values that the server suggests.
Ctrl-C cancels a running call."""
_ANSWER_WITHIN: Final = 3.0  # seconds for the server to suggest values
_QUIT: Final = -1


async def shell(target: TargetText, /, *, options: ConnectionOptions = ConnectionOptions()) -> int:  # noqa: B008  # frozen
    """Talk to a server line by line, with completion of names, arguments and URIs.

    Lines can also come from a file or a pipe; then the exit code is that of the first line that failed.
    """
    terminal = options.terminal()

    async def work() -> int:
        async with open_client(target, options, terminal) as client:
            return await Shell(terminal, client).run()

    return await run(terminal, work)


@define(eq=False, repr=False)
class Shell:
    """A loop over the lines that the user types. Borrows: the terminal, the client."""

    terminal: Terminal
    client: Client
    _running: trio.CancelScope | None = None
    """The scope of the running command."""

    async def run(self) -> int:
        first_failure = OK
        with _line_editing(self._complete) as read_line:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._watch_interrupts)
                while True:
                    # A thread that waits for a line cannot be stopped; it is left behind when the shell ends.
                    line = await trio.to_thread.run_sync(read_line, self._prompt(), abandon_on_cancel=True)
                    if line is None:
                        break
                    code = await self._do(line)
                    if code == _QUIT:
                        break
                    first_failure = first_failure or code
                nursery.cancel_scope.cancel()
        return OK if self.terminal.interactive else first_failure

    def _prompt(self) -> str:
        if not self.terminal.interactive or not self.terminal.out.is_terminal:
            return ""
        info = self.client.server_info
        return f"{clean(info.name) if info is not None else 'mcptrio'}> ".replace("\n", " ")

    async def _watch_interrupts(self, *, task_status: trio.TaskStatus[None]) -> None:
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            task_status.started()
            async for _ in signals:
                if self._running is not None:
                    self._running.cancel()
                else:
                    self.terminal.note("\nquit or Ctrl-D ends the shell")

    async def _do(self, line: str) -> int:
        """Run one line and return its exit code."""
        try:
            with trio.CancelScope() as self._running:
                return await self._run_line(line)
            self.terminal.complain("cancelled")
            return INTERRUPTED
        except OutputError:
            raise
        except (MCPTrioError, Failure, ExceptionGroup) as raised:
            error = unwrap(raised)
            end = explain(error)
            self.terminal.complain(str(end))
            if self.terminal.json:
                print_json(as_json(error, end))
            return end.code
        finally:
            self._running = None
            self.terminal.stop_progress()

    async def _run_line(self, line: str) -> int:
        command, _, rest = line.strip().partition(" ")
        match command:
            case "":
                return OK
            case "quit" | "exit":
                return _QUIT
            case "help" | "?":
                self.terminal.out.print(HELP)
            case "list":
                await self._list()
            case "call":
                name, texts, given = _words(rest, "call TOOL name=value …")
                return await call_and_show(self.client, self.terminal, name, given, texts)
            case "read":
                uri, _, _ = _words(rest, "read URI")
                result = await self.client.read_resource(uri, on_progress=self.terminal.progress)
                self._show(result, lambda: show(self.terminal, pieces_of(result.contents)))
            case "prompt":
                name, texts, given = _words(rest, "prompt NAME name=value …")
                values = {**arguments.as_texts(given or {}), **texts}
                filled = await fill_in(self.client, self.terminal, name, values)
                self._show(filled, partial(show_prompt, self.terminal, filled))
            case _:
                raise UsageError(f"unknown command {command!r:.80}; there are {', '.join(COMMANDS)}")
        return OK

    async def _list(self) -> None:
        found = await describe(self.client)
        if self.terminal.json:
            print_json(found)
        else:
            show_offers(self.terminal, found, self.client.transport)

    def _show(self, result: Any, as_text: Callable[[], None]) -> None:
        self.terminal.stop_progress()
        if self.terminal.json:
            print_json(unstructure(result))
        else:
            as_text()

    def _complete(self, before: str, word: str) -> list[str]:
        """Return suggestions; called in the thread that reads the line."""

        async def suggest() -> list[str]:
            with trio.move_on_after(_ANSWER_WITHIN), suppress(MCPTrioError):
                found = await Completer(self.client).suggest(before, word)
                return [one for one in found if one.isprintable()]  # a terminal would obey the others
            return []

        return trio.from_thread.run(suggest)


def _words(rest: str, usage: str) -> tuple[str, dict[str, str], dict[str, Any] | None]:
    """Split what follows a command into a name and its arguments, as pairs or as one JSON object."""
    name, _, more = rest.strip().partition(" ")
    if not name:
        raise UsageError(f"write {usage}")
    if more.lstrip().startswith("{"):
        return name, {}, arguments.read_object(more.strip())
    try:
        return name, arguments.read_pairs(shlex.split(more)), None
    except ValueError as error:
        raise UsageError(f"{error}: write {usage}") from None


@contextmanager
def _line_editing(complete: Callable[[str, str], list[str]]) -> Iterator[Callable[[str], str | None]]:
    """Yield a function that reads a line, with history and completion where the system has them.

    The state of the terminal is restored at the end, because a thread that is left behind does not do it.
    """

    def read_line(prompt: str) -> str | None:
        if not prompt:
            return sys.stdin.readline() or None
        try:
            return input(prompt)
        except EOFError:
            return None

    try:
        import readline
        import termios
    except ImportError:  # Windows: input() alone
        yield read_line
        return
    suggestions: list[str] = []

    def completer(text: str, state: int) -> str | None:
        if state == 0:
            before = readline.get_line_buffer()[: readline.get_begidx()]
            suggestions[:] = complete(before, text)
        return suggestions[state] if state < len(suggestions) else None

    saved = termios.tcgetattr(0) if os.isatty(0) else None
    readline.set_completer(completer)
    readline.set_completer_delims(" \t\n")
    readline.parse_and_bind("bind ^I rl_complete" if "libedit" in (readline.__doc__ or "") else "tab: complete")
    try:
        yield read_line
    finally:
        readline.set_completer(None)
        if saved is not None:
            termios.tcsetattr(0, termios.TCSADRAIN, saved)
