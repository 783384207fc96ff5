"""Terminal input and output: results on stdout; progress, log messages and questions on stderr."""

from __future__ import annotations

import logging
import os
import sys
import unicodedata
from collections import deque
from typing import Any, Final, TextIO

import msgspec
import trio
from attrs import define, field
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from mcptrio.cli.exit_codes import UNREACHABLE, Failure
from mcptrio.cli.stdout import checked_stdout, writing
from mcptrio.types import LoggingMessageParams, ProgressParams

_JOINERS: Final = "\u200c\u200d"  # legitimate parts of words and emoji
_LOGGER: Final = logging.getLogger("mcptrio")
_EARLY_LINES: Final = 1000
_WIDE: Final = 160  # columns when the output is not a terminal: long lines suit grep
_LEVELS: Final = {"warning": "yellow", **dict.fromkeys(("error", "critical", "alert", "emergency"), "red")}


def clean(text: str) -> str:
    """Escape control and format characters in text from a server, so that it cannot manipulate the terminal."""
    return "".join(char if _is_harmless(char) else repr(char)[1:-1] for char in text)


def _is_harmless(char: str) -> bool:
    return char in "\n\t" or char in _JOINERS or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def to_json(value: Any, *, indent: int = 2) -> bytes:
    data = msgspec.json.encode(value)
    return msgspec.json.format(data, indent=indent) if indent else data


def escape_json(text: str) -> str:
    """Escape the characters that `clean` escapes, in a way that keeps the JSON valid and its values the same."""
    return "".join(char if _is_harmless(char) else _json_escape(char) for char in text)


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def print_json(value: Any, *, indent: int = 2) -> None:
    """Print a value as JSON to stdout; on a terminal, control and format characters are escaped."""
    data = to_json(value, indent=indent)
    if sys.stdout.isatty():
        data = escape_json(data.decode()).encode()
    write_out(data + b"\n")


def write_out(data: bytes) -> None:
    """Write bytes unchanged to stdout, after everything that was printed before."""
    with writing(sys.stdout):
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _console(file: TextIO) -> Console:
    known = file.isatty() or "COLUMNS" in os.environ
    return Console(
        file=file,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        width=None if known else _WIDE,
        highlight=False,
        markup=False,
        emoji=False,
    )


class _WarningKeeper(logging.Handler):
    """A log handler that keeps the last warning of the library, and shows each record if `show` is given."""

    def __init__(self, show: Any = None) -> None:
        super().__init__(logging.DEBUG if show else logging.WARNING)
        self.show = show
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            self.last = text
        if self.show is not None:
            self.show(f"{record.name}: {text}")


@define(eq=False, repr=False, kw_only=True)
class Terminal:
    """The terminal of a client command, or the files in its place."""

    json: bool = False
    verbose: bool = False
    out: Console = field(factory=lambda: _console(checked_stdout()))
    err: Console = field(factory=lambda: _console(sys.stderr))
    interactive: bool = field(factory=lambda: sys.stdin.isatty() and sys.stderr.isatty())
    """Whether a user can answer questions."""
    turn: trio.Lock = field(factory=trio.Lock)
    """Held while a question is asked, so that questions do not mix."""
    _progress: Progress | None = field(default=None, init=False)
    _bar: TaskID = field(default=TaskID(0), init=False)
    _warnings: _WarningKeeper = field(init=False)
    _typed: bytes = field(default=b"", init=False)
    _early: deque[str] | None = field(factory=lambda: deque(maxlen=_EARLY_LINES), init=False)
    """Lines of a server file before the connection is open."""

    def __attrs_post_init__(self) -> None:
        self._warnings = _WarningKeeper(self.note if self.verbose else None)
        # Until the terminal is closed, because `logging` would print warnings itself.
        _LOGGER.addHandler(self._warnings)
        _LOGGER.propagate = False
        if self.verbose:
            _LOGGER.setLevel(logging.DEBUG)
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # do not fail on a character that the terminal cannot show
                stream.reconfigure(errors="backslashreplace")

    def close(self) -> None:
        self.stop_progress()
        _LOGGER.removeHandler(self._warnings)
        _LOGGER.propagate = True
        _LOGGER.setLevel(logging.NOTSET)

    # -- messages

    def complain(self, text: str) -> None:
        """Print the error line of a command."""
        self.stop_progress()
        line = Text("mcptrio: ", style="red").append(clean(text), style="default")
        self.err.print(line, soft_wrap=True)

    def note(self, text: str, style: str = "dim") -> None:
        self.err.print(Text(clean(text), style=style), soft_wrap=True)

    def server_output(self, line: str) -> None:
        """Print a line of a server file; keep it until the connection is open.

        If the file cannot be loaded, the reason is part of the error line of the command.
        """
        if self._early is None:
            self.note(line)
        else:
            self._early.append(line)

    def show_server_output(self) -> None:
        early, self._early = self._early, None
        for line in early or ():
            self.note(line)

    def last_warning(self, end: Failure) -> str:
        """Return the last warning before an unreachable server was given up; it is most likely the reason."""
        return f" ({self._warnings.last})" if end.code == UNREACHABLE and self._warnings.last else ""

    def log(self, message: LoggingMessageParams) -> None:
        """Print a log message of the server."""
        text = message.data if isinstance(message.data, str) else to_json(message.data, indent=0).decode()
        name = f" {message.logger}" if message.logger else ""
        line = Text(style="dim").append(message.level, style=_LEVELS.get(message.level, "")).append(clean(name))
        self.err.print(line.append(f": {clean(text)}"), soft_wrap=True)

    # -- progress

    def progress(self, params: ProgressParams) -> None:
        """Update the progress bar; does nothing if stderr is not a terminal."""
        if not self.err.is_terminal or self.turn.locked():
            return
        if self._progress is None:
            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[count]}", markup=False),
                console=self.err,
                auto_refresh=False,
                transient=True,
            )
            self._bar = self._progress.add_task("", total=None, count="")
            self._progress.start()
        count = f"{params.progress:g}" + (f"/{params.total:g}" if params.total is not None else "")
        words = clean(params.message or "working").replace("\n", " ")
        self._progress.update(
            self._bar, completed=params.progress, total=params.total, description=words, count=count, refresh=True
        )

    def stop_progress(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    # -- questions

    async def ask(self, prompt: str) -> str | None:
        """Read a line that the user types; None after Ctrl-D."""
        self.stop_progress()
        self.err.print(Text(clean(prompt), style="bold"), end=" ", soft_wrap=True)
        self.err.file.flush()
        while b"\n" not in self._typed:
            data = await self._read()
            if not data:
                self.err.print()
                self._typed = b""
                return None
            self._typed += data
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode(errors="replace").strip()

    async def _read(self) -> bytes:
        # Not `input()`: a thread that is blocked in it can neither be cancelled nor abandoned.
        fd = sys.stdin.fileno()
        if os.name == "nt":
            return await trio.to_thread.run_sync(os.read, fd, 4096, abandon_on_cancel=True)
        await trio.lowlevel.wait_readable(fd)
        return os.read(fd, 4096)
