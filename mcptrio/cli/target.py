"""What TARGET can be: a URL, a server file, one argument that holds a command line, or a command after `--`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from attrs import field, frozen

from mcptrio.cli.exits import UNREACHABLE, Failure, UsageError

SCHEMES: Final = ("http", "https", "ws", "wss")
_ADDRESS: Final = re.compile(r"(localhost|[\w-]+(\.[\w-]+)+|[\w.-]+:\d+|\[[\da-fA-F:]+\](:\d+)?)(/.*)?")
_MARK: Final = "\0"  # no argument can hold it, so nothing that somebody types is taken for it


@frozen(kw_only=True)
class Target:
    """Where a server is: `url` or `argv`, and what `argv` gets from the environment."""

    title: str
    url: str | None = None
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(factory=dict, repr=False)
    own: bool = False
    """It is a file of the user's, who wants to know what it says on its standard error."""


def with_command(arguments: Sequence[str]) -> list[str]:
    """A command after `--` made the first argument, in a form that `read_target` knows."""
    if "--" not in arguments:
        return list(arguments)
    here = arguments.index("--")
    return [_MARK + shlex.join(arguments[here + 1 :]), *arguments[:here]]


def read_target(text: str) -> Target:
    """What the user means.

    Raises:
        UsageError: it cannot be any of these things.
        Failure: it names a file that is not there.
    """
    if text.startswith(_MARK):
        return _command(text[1:], shlex.split(text[1:]))
    scheme, divider, _ = text.partition("://")
    if divider and scheme.isalnum():
        if scheme.lower() not in SCHEMES:
            raise UsageError(f"{text!r} is no URL of a server: it begins with {', '.join(SCHEMES[:-1])} or wss")
        return Target(title=text, url=text)
    file = _file(text)
    if file.suffix == ".py" and _is_there(file):
        # The user's own program: it sees what it would see if it was started by hand.
        argv = (sys.executable, "-m", "mcptrio", "run", text)
        return Target(title=text, argv=argv, env={"MCPTRIO_LOG_LEVEL": "warning", **os.environ}, own=True)
    try:
        words = shlex.split(text) if os.name != "nt" else [word.strip('"') for word in shlex.split(text, posix=False)]
    except ValueError as error:
        raise UsageError(f"{text!r} is no command line: {error}") from None
    if len(words) == 1 and file.suffix == ".py":
        raise Failure(UNREACHABLE, f"{file}: no such file")
    return _command(text, words)


def _command(text: str, words: Sequence[str]) -> Target:
    if not words or not words[0]:
        raise UsageError("the target is empty: give a URL, a server file or a command")
    if len(words) == 1 and _ADDRESS.fullmatch(words[0]) and shutil.which(words[0]) is None:
        raise UsageError(f"{text!r} is no command; if it is the address of a server, write http://{text}")
    return Target(title=text, argv=tuple(words))


def _file(text: str) -> Path:
    """The file in `FILE` or `FILE:NAME`."""
    head, colon, name = text.rpartition(":")
    return Path(head if colon and name.isidentifier() and head.endswith(".py") else text)


def _is_there(file: Path) -> bool:
    try:
        return file.is_file()
    except OSError:  # a command line that is too long for a name
        return False
