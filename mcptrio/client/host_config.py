"""The configuration files of hosts: `mcp.json`, `claude_desktop_config.json` and others of the form `mcpServers`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from attrs import field, frozen

from mcptrio.errors import DeclarationError

_PLACES: Final = ("mcpServers", "servers")
_KINDS: Final = {"stdio", "http", "streamable-http", "streamableHttp", "sse", "ws", "websocket"}


@frozen(kw_only=True)
class ServerEntry:
    """One server of such a file: its URL, or the command that starts it."""

    url: str | None = None
    argv: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    env: Mapping[str, str] = field(factory=dict, repr=False)
    cwd: str | None = None


def read_servers(source: str | Path | Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Read the servers from a host's configuration: a JSON file or its content, with `mcpServers` (or `servers`).

    Entries with `"disabled": true` are left out.

    Raises:
        DeclarationError: the file cannot be read, or has another form.
    """
    if isinstance(source, Mapping):
        whole: Any = source
    else:
        try:
            whole = msgspec.json.decode(Path(source).read_bytes())
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DeclarationError(f"{source} cannot be read: {error}") from error
    place = next((whole[key] for key in _PLACES if isinstance(whole, Mapping) and key in whole), None)
    if not isinstance(place, Mapping) or not all(isinstance(entry, Mapping) for entry in place.values()):
        raise DeclarationError('a configuration has the form {"mcpServers": {"name": {"command": …}}}')
    return {name: entry for name, entry in place.items() if entry.get("disabled") is not True}


def read_entry(entry: Mapping[str, Any]) -> ServerEntry:
    """Read one entry of `mcpServers`.

    Raises:
        DeclarationError: it is invalid.
    """
    kind = entry.get("type", entry.get("transport"))
    if kind is not None and kind not in _KINDS:
        raise DeclarationError(f"unknown transport {kind!r:.80}")
    if "url" in entry:
        if "://" not in _text(entry, "url"):
            raise DeclarationError("url must begin with http://, https://, ws:// or wss://")
        return ServerEntry(url=_text(entry, "url"), headers=_strings(entry, "headers"))
    if "command" not in entry:
        raise DeclarationError("an entry needs a command or a url")
    args = entry.get("args", [])
    if not isinstance(args, list | tuple) or not all(isinstance(part, str) for part in args):
        raise DeclarationError("args must be a list of strings")
    cwd = _text(entry, "cwd") if "cwd" in entry else None
    return ServerEntry(argv=(_text(entry, "command"), *args), env=_strings(entry, "env"), cwd=cwd)


def find_entry(target: str | os.PathLike[str]) -> ServerEntry | None:
    """Return the server that a target `FILE.json` or `FILE.json:NAME` names; None for any other target.

    Raises:
        DeclarationError: the file cannot be read, or it has several servers and the target names none of them.
    """
    text = os.fspath(target)
    head, mark, name = text.partition(".json:")
    file = f"{head}.json" if mark else text
    if not file.endswith(".json"):
        return None
    servers = read_servers(file)
    if name in servers:
        entry = servers[name]
    elif not name and len(servers) == 1:
        (entry,) = servers.values()
    else:
        known = ", ".join(servers) or "none"
        what = f"{file} has no server {name!r:.80}" if name else f"name a server: {file}:NAME"
        raise DeclarationError(f"{what}; the servers are {known}")
    try:
        return read_entry(entry)
    except DeclarationError as error:
        raise DeclarationError(f"{text}: {error}") from error


def _text(entry: Mapping[str, Any], key: str) -> str:
    if not isinstance(entry[key], str):
        raise DeclarationError(f"{key} must be a string")
    return str(entry[key])


def _strings(entry: Mapping[str, Any], key: str) -> dict[str, str]:
    value = entry.get(key, {})
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for text in value.values()):
        raise DeclarationError(f"{key} must be an object of strings")
    return dict(value)
