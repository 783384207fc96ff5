"""Connecting to a server with the options of a command."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mcptrio.cli.callbacks import TerminalElicitation
from mcptrio.cli.exit_codes import UsageError
from mcptrio.cli.options import ConnectionOptions
from mcptrio.cli.target import Target, read_target
from mcptrio.cli.terminal import Terminal
from mcptrio.client import Reconnect
from mcptrio.client.client import Client
from mcptrio.extensions.client import extended
from mcptrio.extensions.tasks import Tasks

if TYPE_CHECKING:
    from mcptrio.transports.http_client.auth import HttpAuth

_IDLE = 60.0
_TOTAL = 900.0
_OPENING = 30.0
_CREDENTIALS = frozenset({"authorization", "cookie", "x-api-key"})
"""Headers whose values others must not read."""


@asynccontextmanager
async def open_client(
    target: str, options: ConnectionOptions, terminal: Terminal, *, reconnect: Reconnect | None = None
) -> AsyncIterator[Client]:
    """Connect to a target. The errors are those of `make_client` and of the client."""
    async with make_client(target, options, terminal, reconnect=reconnect) as client:
        terminal.show_server_output()
        yield client


def make_client(
    target: str, options: ConnectionOptions, terminal: Terminal, *, reconnect: Reconnect | None = None
) -> Client:
    """Make a client for a target; it is not opened yet.

    Raises:
        UsageError: the options contradict each other.
        Failure: the target does not exist.
    """
    where = read_target(target)
    headers = {**where.headers, **_headers(options)}
    if not options.allow_http:
        check_encryption(where, headers)
    auth = _auth(where, headers, options, terminal)
    timeout = options.timeout
    if timeout is not None and timeout <= 0:
        raise UsageError("--timeout must be a number of seconds greater than 0")
    idle = timeout or _IDLE
    answer = options.sample
    elicitation = TerminalElicitation(terminal, lambda: _name(client, where))

    def on_stderr(line: str) -> None:
        if options.verbose:
            terminal.note(line)
        elif where.own:
            terminal.server_output(line)

    client = Client(
        where.url or list(where.argv),
        elicit=elicitation.elicit,
        visited=elicitation.visited,
        sample=None if answer is None else lambda params: answer,
        roots=options.root or None,
        log=None if options.json else terminal.log,
        log_level=None if options.json else options.log_level,
        auth=auth,
        headers=headers,
        env={**where.env, **_env(options)},
        cwd=where.cwd,
        on_stderr=on_stderr,
        protocol=options.protocol,
        timeout=idle,
        total_timeout=max(idle, _TOTAL),
        open_timeout=timeout or _OPENING,
        probe_timeout=min(5.0, timeout / 2) if timeout else 5.0,
        reconnect=reconnect,
    )
    return extended(client, Tasks())  # so that a call which becomes a task is awaited like any other


def _name(client: Client, where: Target) -> str:
    info = client.server_info
    return (info.title or info.name) if info is not None else where.title


def _headers(options: ConnectionOptions) -> dict[str, str]:
    headers = {}
    for line in options.header:
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or not line.isprintable():
            raise UsageError(f"--header {line!r}: write 'Name: value'")
        headers[name.strip()] = value.strip()
    if options.token is not None:
        headers["Authorization"] = f"Bearer {options.token}"
    return headers


def _env(options: ConnectionOptions) -> dict[str, str]:
    found = {}
    for text in options.env:
        name, equals, value = text.partition("=")
        if not name or (not equals and name not in os.environ):
            raise UsageError(f"--env {text}: the variable is not set; write NAME=VALUE")
        found[name] = value if equals else os.environ[name]
    return found


# -- signing in


def _auth(where: Target, headers: Mapping[str, str], options: ConnectionOptions, terminal: Terminal) -> HttpAuth | None:
    has_own = any(name.lower() == "authorization" for name in headers)
    if options.auth == "oauth":
        if where.url is None:
            raise UsageError("--auth oauth needs a URL")
        if has_own:
            raise UsageError("--auth oauth cannot be combined with --token or an Authorization header")
    elif options.auth == "none" or has_own or not terminal.interactive or not _is_private(where):
        return None
    from mcptrio.transports.oauth import AuthorizationFailed, FileStorage, OAuth
    from mcptrio.transports.oauth.browser import open_page

    async def offer(url: str) -> bool:
        async with terminal.turn:
            host = urlsplit(url).hostname or "a page"
            answer = await terminal.ask(f"The server requires a sign-in at {host}. Open the browser? [Y/n]")
        if answer is None or answer.lower() not in ("", "y", "yes"):
            raise AuthorizationFailed("declined")
        return await open_page(url)

    browser = offer if terminal.interactive and options.auth == "auto" else open_page
    return OAuth(storage=FileStorage(tokens_folder()), open_browser=browser)


def check_encryption(where: Target, headers: Mapping[str, str]) -> None:
    """Check that credentials go over TLS or stay on this machine.

    Raises:
        UsageError: others could read them on the way.
    """
    if where.url is None or _is_private(where):
        return
    secret = any(name.lower() in _CREDENTIALS for name in headers)
    if secret or "@" in urlsplit(where.url).netloc:
        raise UsageError(
            f"the credentials would be sent unencrypted to {urlsplit(where.url).hostname}, where others can read them: "
            "use https, or add --allow-http"
        )


def _is_private(where: Target) -> bool:
    """Return whether the connection is encrypted or local; credentials are sent only then."""
    if where.url is None:
        return False
    parts = urlsplit(where.url)
    return parts.scheme in ("https", "wss") or parts.hostname in ("localhost", "127.0.0.1", "::1")


def tokens_folder() -> Path:
    """Return the folder where tokens are kept between commands."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return base / "mcptrio" / "tokens"
