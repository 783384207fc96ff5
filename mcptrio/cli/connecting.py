"""From the options of a command to a client."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mcptrio.cli.asking import Model, Person
from mcptrio.cli.exits import UsageError
from mcptrio.cli.options import Options
from mcptrio.cli.screen import Screen
from mcptrio.cli.target import Target, read_target
from mcptrio.client.client import Client
from mcptrio.client.config import Reconnect
from mcptrio.errors import LocalProtocolError
from mcptrio.extensions.client import extended
from mcptrio.extensions.tasks import Tasks

if TYPE_CHECKING:
    from mcptrio.transports.http_client.auth import HttpAuth

_IDLE = 60.0
_TOTAL = 900.0
_OPENING = 30.0


def make_client(target: str, options: Options, screen: Screen, *, reconnect: Reconnect | None = None) -> Client:
    """A client for what the user named, not opened yet.

    Raises:
        UsageError: the options do not fit together.
        Failure: the target cannot be there.
    """
    where = read_target(target)
    headers = _headers(options)
    auth = _auth(where, headers, options, screen)
    patience = options.timeout
    if patience is not None and patience <= 0:
        raise UsageError("--timeout takes a number of seconds above 0")
    idle = patience or _IDLE
    person = Person(screen, lambda: _name(client, where))

    def hear(line: str) -> None:
        # A file that cannot be loaded says so in the line that the command ends with.
        if options.verbose or (where.own and _is_open(client)):
            screen.note(line)

    client = Client(
        where.url or list(where.argv),
        elicit=person.elicit,
        visited=person.visited,
        sample=Model(screen, options.sample).sample,
        roots=options.root or None,
        log=None if options.json else screen.log,
        log_level=None if options.json else options.log_level,
        auth=auth,
        headers=headers,
        env={**where.env, **_env(options)},
        on_stderr=hear,
        protocol=options.protocol,
        timeout=idle,
        total_timeout=max(idle, _TOTAL),
        open_timeout=patience or _OPENING,
        probe_timeout=min(5.0, patience / 2) if patience else 5.0,
        reconnect=reconnect,
    )
    return extended(client, Tasks())  # a call that became a task is waited for like any other


def _is_open(client: Client) -> bool:
    try:
        return bool(client.protocol_version)
    except LocalProtocolError:
        return False


def _name(client: Client, where: Target) -> str:
    info = client.server_info
    return (info.title or info.name) if info is not None else where.title


def _headers(options: Options) -> dict[str, str]:
    headers = {}
    for line in options.header:
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or not line.isprintable():
            raise UsageError(f"--header {line!r}: write 'Name: value'")
        headers[name.strip()] = value.strip()
    if options.token is not None:
        headers["Authorization"] = f"Bearer {options.token}"
    return headers


def _env(options: Options) -> dict[str, str]:
    found = {}
    for text in options.env:
        name, equals, value = text.partition("=")
        if not name or (not equals and name not in os.environ):
            raise UsageError(f"--env {text}: there is no such variable; write NAME=VALUE")
        found[name] = value if equals else os.environ[name]
    return found


# -- signing in


def _auth(where: Target, headers: Mapping[str, str], options: Options, screen: Screen) -> HttpAuth | None:
    has_own = any(name.lower() == "authorization" for name in headers)
    if options.auth == "oauth":
        if where.url is None:
            raise UsageError("--auth oauth is for URLs")
        if has_own:
            raise UsageError("--auth oauth and an Authorization header or token exclude each other")
    elif options.auth == "none" or has_own or not screen.interactive or not _is_private(where):
        return None
    from mcptrio.transports.oauth import AuthorizationFailed, FileStorage, OAuth
    from mcptrio.transports.oauth.browser import open_page

    async def offer(url: str) -> bool:
        async with screen.turn:
            host = urlsplit(url).hostname or "a page"
            answer = await screen.ask(f"The server wants you to sign in at {host}. Open the browser? [Y/n]")
        if answer is None or answer.lower() not in ("", "y", "yes"):
            raise AuthorizationFailed("you did not want to")
        return await open_page(url)

    browser = offer if screen.interactive and options.auth == "auto" else open_page
    return OAuth(storage=FileStorage(tokens_folder()), open_browser=browser)


def _is_private(where: Target) -> bool:
    """Whether what is sent there can be read by nobody else: only then is a sign-in offered."""
    if where.url is None:
        return False
    parts = urlsplit(where.url)
    return parts.scheme in ("https", "wss") or parts.hostname in ("localhost", "127.0.0.1", "::1")


def tokens_folder() -> Path:
    """Where tokens are kept between two commands."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "mcptrio" / "tokens"
