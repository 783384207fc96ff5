"""Parsing TARGET: a URL, a server file, a host's configuration, a command line in one argument, or one after `--`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

from mcptrio.cli.exit_codes import UNREACHABLE, Failure, UsageError
from mcptrio.client.host_config import ServerEntry, find_entry
from mcptrio.errors import DeclarationError

SCHEMES: Final = ("http", "https", "ws", "wss")
_ADDRESS: Final = re.compile(r"(localhost|[\w-]+(\.[\w-]+)+|[\w.-]+:\d+|\[[\da-fA-F:]+\](:\d+)?)(/.*)?")
_MARK: Final = "\0"  # no command-line argument can contain it, so it cannot be typed


@frozen(kw_only=True)
class Target(ServerEntry):
    """A server to connect to, with the text that names it."""

    title: str
    own: bool = False
    """Whether it is a server file of the user, whose stderr is always shown."""


def with_command(arguments: Sequence[str]) -> list[str]:
    """Move a command after `--` to the first argument, in a form that `read_target` recognizes."""
    if "--" not in arguments:
        return list(arguments)
    here = arguments.index("--")
    return [_MARK + shlex.join(arguments[here + 1 :]), *arguments[:here]]


def read_target(text: str) -> Target:
    """Parse TARGET.

    Raises:
        UsageError: it has none of the accepted forms.
        Failure: it names a file that does not exist.
    """
    if text.startswith(_MARK):
        return _command(text[1:], shlex.split(text[1:]))
    scheme, divider, _ = text.partition("://")
    if divider and scheme.isalnum():
        if scheme.lower() not in SCHEMES:
            raise UsageError(f"{text!r} is not the URL of a server: use {', '.join(SCHEMES[:-1])} or wss")
        return Target(title=text, url=text)
    if (entry := _configured(text)) is not None:
        return Target(title=text, url=entry.url, argv=entry.argv, env=entry.env, headers=entry.headers, cwd=entry.cwd)
    file = _file(text)
    if file.suffix == ".py" and _is_there(file):
        # The user's own program gets the full environment, as if it was started by hand.
        # -P: modules come from the installation and the folder of the file, not from the working directory.
        argv = (sys.executable, "-P", "-m", "mcptrio", "run", text, "--transport", "stdio")
        return Target(title=text, argv=argv, env={"MCPTRIO_LOG_LEVEL": "warning", **os.environ}, own=True)
    try:
        words = shlex.split(text) if os.name != "nt" else [word.strip('"') for word in shlex.split(text, posix=False)]
    except ValueError as error:
        raise UsageError(f"{text!r} is not a valid command line: {error}") from None
    if len(words) == 1 and file.suffix == ".py":
        raise Failure(UNREACHABLE, f"{file}: no such file")
    return _command(text, words)


def _configured(text: str) -> ServerEntry | None:
    """Return the server that `FILE.json` or `FILE.json:NAME` names, if TARGET has that form and not of a command."""
    file = text.partition(".json")[0] + ".json"
    if any(sign.isspace() for sign in file) and not _is_there(Path(file)):
        return None  # a command line with such a file
    try:
        return find_entry(text)
    except DeclarationError as error:
        raise Failure(UNREACHABLE, str(error)) from None


def _command(text: str, words: Sequence[str]) -> Target:
    if not words or not words[0]:
        raise UsageError("the target is empty: give a URL, a server file or a command")
    if len(words) == 1 and _ADDRESS.fullmatch(words[0]) and shutil.which(words[0]) is None:
        raise UsageError(f"{text!r} is not a command; if it is the address of a server, write http://{text}")
    return Target(title=text, argv=tuple(words))


def _file(text: str) -> Path:
    """Return the file part of `FILE` or `FILE:NAME`."""
    head, colon, name = text.rpartition(":")
    return Path(head if colon and name.isidentifier() and head.endswith(".py") else text)


def _is_there(file: Path) -> bool:
    try:
        return file.is_file()
    except OSError:  # a command line that is too long for a file name
        return False
