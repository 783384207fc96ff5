"""The settings of `mcptrio run`: the command line, else a variable, else the table `[tool.mcptrio]`, else the default.

Only the `mcptrio` command reads variables and the table. Settings that the code gives (`Server(...)`) apply where none
of these does.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mcptrio.cli.exit_codes import Failure
from mcptrio.cli.run_options import parser
from mcptrio.cli.sections import Sections

_PREFIX: Final = "MCPTRIO_"
_NOT_SETTINGS: Final = frozenset({"help", "target", "module"})
_WORDS: Final = {**dict.fromkeys(("1", "true", "yes", "on"), True), **dict.fromkeys(("0", "false", "no", "off"), False)}
_MAX_FILE: Final = 1024 * 1024


class RunSettings(argparse.Namespace):
    """Every option with its value, and where it comes from."""

    given: frozenset[str]
    """Options on the command line."""
    from_table: frozenset[str]
    """Options from the table."""
    sections: Sections
    """Settings that are not options: those of limits, HTTP and single tools."""
    rest: tuple[str, ...]
    """The arguments after `--`, for the server's own code."""


def read_settings(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> RunSettings:
    """Read the settings of a command line.

    Raises:
        Failure: a variable or the table is invalid; the text names it.
        SystemExit: the command line is invalid; one line on stderr says why.
    """
    environment = os.environ if environment is None else environment
    own, rest = _split(argv)
    run = parser()
    options = {action.dest: action for action in run._actions if action.dest not in _NOT_SETTINGS}
    settings = RunSettings(**dict.fromkeys(options))  # options that are not given stay None
    run.parse_args(own, settings)
    if (settings.target is None) == (settings.module is None):
        run.error("the following arguments are required: FILE[:NAME], or -m MODULE[:NAME]; one of them")
    settings.rest = rest
    settings.given = frozenset(name for name in options if getattr(settings, name) is not None)
    for name, action in options.items():
        text = environment.get(_PREFIX + name.upper())
        if text and name not in settings.given:
            setattr(settings, name, _from_variable(_PREFIX + name.upper(), text, action))
    settings.from_table = frozenset()
    settings.sections = Sections()
    if found := _read_table(settings):
        settings.sections.read_table(*found)
        _apply_table(settings, options, *found)
    settings.sections.read_variables(environment)
    for name, action in options.items():
        if getattr(settings, name) is None:
            setattr(settings, name, action.default)
    return settings


def _split(argv: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    words = list(argv)
    if "--" not in words:
        return words, ()
    at = words.index("--")
    return words[:at], tuple(words[at + 1 :])


def _from_variable(name: str, text: str, action: argparse.Action) -> Any:
    if action.nargs == 0:
        if text.lower() not in _WORDS:
            raise Failure(2, f"{name} must be 1 or 0, got {text!r}")
        return _WORDS[text.lower()]
    if isinstance(action, argparse._AppendAction):
        return [word.strip() for word in text.split(",") if word.strip()]
    return _convert(name, text, action)


def _convert(where: str, text: str, action: argparse.Action) -> Any:
    try:
        value = text if action.type is None else action.type(text)  # type: ignore[operator]  # no file types here
    except argparse.ArgumentTypeError as error:
        raise Failure(2, f"{where}: {error}") from None
    except ValueError:
        raise Failure(2, f"{where} must be a number, got {text!r}") from None
    if action.choices is not None and value not in action.choices:
        raise Failure(2, f"{where} must be one of {', '.join(map(str, action.choices))}, got {text!r}")
    return value


def split_target(target: str) -> tuple[str, str | None]:
    """Split `FILE:NAME`; the name is None if there is none."""
    head, colon, tail = target.rpartition(":")
    # A drive letter (C:\server.py) does not separate a file from a name.
    return (head, tail) if colon and tail.isidentifier() and len(head) > 1 else (target, None)


# -- the table


def _read_table(settings: RunSettings) -> tuple[str, dict[str, Any]] | None:
    """Return the file and its table; None if there is none."""
    path = Path(settings.config) if settings.config else folder_of(settings) / "pyproject.toml"
    try:
        if not settings.config and not path.is_file():
            return None
        data = path.read_bytes()
    except OSError as error:
        raise Failure(2, f"--config {path}: {error.strerror or type(error).__name__}") from None
    if b"mcptrio" not in data and not settings.config:
        return None  # most have no such table: do not parse them
    import tomllib

    try:
        whole = tomllib.loads(data[:_MAX_FILE].decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Failure(2, f"{path} is not valid TOML: {error}") from None
    tool = whole.get("tool", {})
    table = tool.get("mcptrio") if isinstance(tool, dict) else None
    if table is None:
        if settings.config:
            raise Failure(2, f"--config {path}: there is no table [tool.mcptrio] in this file")
        return None
    if not isinstance(table, dict):
        raise Failure(2, f"{path}: tool.mcptrio must be a table: write [tool.mcptrio]")
    return str(path), table


def folder_of(settings: RunSettings) -> Path:
    """Return the folder of the server's file; that of the process for a module."""
    return Path() if settings.target is None else Path(split_target(settings.target)[0]).parent


def _apply_table(
    settings: RunSettings, options: Mapping[str, argparse.Action], file: str, table: Mapping[str, Any]
) -> None:
    used = set()
    for key, value in table.items():
        name = key.replace("-", "_")
        where = f"{file}: {key} in [tool.mcptrio]"
        if name not in options or name == "config":
            from difflib import get_close_matches

            near = get_close_matches(name, options, n=1)
            hint = f"did you mean {near[0].replace('_', '-')}?" if near else "mcptrio run --help lists the options"
            raise Failure(2, f"{where} is not an option; {hint}")
        converted = _from_table(where, value, options[name])
        if getattr(settings, name) is None:
            setattr(settings, name, converted)
            used.add(name)
    settings.from_table = frozenset(used)


def _from_table(where: str, value: Any, action: argparse.Action) -> Any:
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise Failure(2, f"{where} must be true or false, got {value!r}")
        return value
    if isinstance(action, argparse._AppendAction):
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise Failure(2, f"{where} must be a list of strings, got {value!r}")
        return list(value)
    if action.dest == "protocol" and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return ",".join(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Failure(2, f"{where} must be a string or a number, got {value!r}")
    return _convert(where, str(value), action)
