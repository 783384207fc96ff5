"""What the person sees: results on standard output; progress, log messages and questions on standard error."""

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

from mcptrio.cli.exits import UNREACHABLE, Failure
from mcptrio.types import LoggingMessageParams, ProgressParams

_JOINERS: Final = "\u200c\u200d"  # they belong to words and to emoji
_LOGGER: Final = logging.getLogger("mcptrio")
_WIDE: Final = 160  # columns where nobody looks: lines for grep rather than for eyes
_LEVELS: Final = {"warning": "yellow", **dict.fromkeys(("error", "critical", "alert", "emergency"), "red")}


def clean(text: str) -> str:
    """Text of a server's, with nothing in it that a terminal would obey or that hides what follows."""
    return "".join(char if _is_harmless(char) else repr(char)[1:-1] for char in text)


def _is_harmless(char: str) -> bool:
    return char in "\n\t" or char in _JOINERS or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def to_json(value: Any, *, indent: int = 2) -> bytes:
    data = msgspec.json.encode(value)
    return msgspec.json.format(data, indent=indent) if indent else data


def print_json(value: Any, *, indent: int = 2) -> None:
    """A JSON object for a program."""
    write_out(to_json(value, indent=indent) + b"\n")


def write_out(data: bytes) -> None:
    """Bytes as they are, behind everything that was printed before."""
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


class _Noticed(logging.Handler):
    """What the library warns of: kept for the last line, or shown at once."""

    def __init__(self, show: Any = None) -> None:
        super().__init__(logging.DEBUG if show else logging.WARNING)
        self.show = show
        self.last: deque[str] = deque(maxlen=1)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            self.last.append(text)
        if self.show is not None:
            self.show(f"{record.name}: {text}")


@define(eq=False, repr=False, kw_only=True)
class Screen:
    """The terminal, or what stands in its place."""

    json: bool = False
    verbose: bool = False
    out: Console = field(factory=lambda: _console(sys.stdout))
    err: Console = field(factory=lambda: _console(sys.stderr))
    interactive: bool = field(factory=lambda: sys.stdin.isatty() and sys.stderr.isatty())
    """Somebody is there who can answer."""
    turn: trio.Lock = field(factory=trio.Lock)
    """One question at a time."""
    _progress: Progress | None = field(default=None, init=False)
    _bar: TaskID = field(default=TaskID(0), init=False)
    _noticed: _Noticed = field(init=False)
    _typed: bytes = field(default=b"", init=False)

    def __attrs_post_init__(self) -> None:
        self._noticed = _Noticed(self.note if self.verbose else None)
        # Until the screen is closed; `logging` would print warnings by itself otherwise.
        _LOGGER.addHandler(self._noticed)
        _LOGGER.propagate = False
        if self.verbose:
            _LOGGER.setLevel(logging.DEBUG)
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):  # a terminal that cannot show a character is no reason to fail
                stream.reconfigure(errors="backslashreplace")

    def close(self) -> None:
        self.stop_progress()
        _LOGGER.removeHandler(self._noticed)
        _LOGGER.propagate = True
        _LOGGER.setLevel(logging.NOTSET)

    # -- for reading

    def complain(self, text: str) -> None:
        """The one line that says what went wrong."""
        self.stop_progress()
        line = Text("mcptrio: ", style="red").append(clean(text), style="default")
        self.err.print(line, soft_wrap=True)

    def note(self, text: str, style: str = "dim") -> None:
        self.err.print(Text(clean(text), style=style), soft_wrap=True)

    def last_words(self, end: Failure) -> str:
        """What was noticed before a server fell silent: most likely the reason."""
        return f" ({self._noticed.last[-1]})" if end.code == UNREACHABLE and self._noticed.last else ""

    def log(self, message: LoggingMessageParams) -> None:
        """A log message of the server's."""
        text = message.data if isinstance(message.data, str) else to_json(message.data, indent=0).decode()
        name = f" {message.logger}" if message.logger else ""
        line = Text(style="dim").append(message.level, style=_LEVELS.get(message.level, "")).append(clean(name))
        self.err.print(line.append(f": {clean(text)}"), soft_wrap=True)

    # -- progress

    def progress(self, params: ProgressParams) -> None:
        """Move the bar; there is none where nobody looks."""
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
        """A line that the person types; None when they press Ctrl-D."""
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
        # Not `input()`: a thread that sits in it could neither be cancelled nor left behind.
        fd = sys.stdin.fileno()
        if os.name == "nt":
            return await trio.to_thread.run_sync(os.read, fd, 4096, abandon_on_cancel=True)
        await trio.lowlevel.wait_readable(fd)
        return os.read(fd, 4096)
