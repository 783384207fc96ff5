"""Writing to stdout: one line and exit code 74 where it is closed, a pipe without a reader, or a full disk."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from mcptrio.cli.exit_codes import OutputError


def write_text(text: str) -> None:
    """Write a text to stdout.

    Raises:
        OutputError: that is not possible.
    """
    if sys.stdout is None:
        raise OutputError("cannot write to stdout: it is closed")
    with writing(sys.stdout):
        sys.stdout.write(text)
        sys.stdout.flush()


@contextmanager
def writing(file: TextIO) -> Iterator[None]:
    """Raise `OutputError` if stdout cannot be written: a pipe whose reader has ended, or a full disk."""
    try:
        yield
    except OSError as error:
        # The interpreter flushes stdout once more when it exits; that must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())
        raise OutputError(f"cannot write to stdout: {error.strerror}") from error


class _Stdout:
    """`sys.stdout` for a console; Rich would end the process with exit code 1 when a pipe is closed."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        with writing(self._file):
            return self._file.write(text)

    def flush(self) -> None:
        with writing(self._file):
            self._file.flush()


def checked_stdout() -> TextIO:
    """Return `sys.stdout` for a console. Its methods raise `OutputError` where stdout cannot be written."""
    return cast(TextIO, _Stdout(sys.stdout))
