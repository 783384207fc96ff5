"""The settings of the code that `mcptrio run` takes from variables and from tables inside `[tool.mcptrio]`.

    [tool.mcptrio.limits]        MCPTRIO_LIMITS_CALL_TIMEOUT=30
    call_timeout = 30
    [tool.mcptrio.http]          MCPTRIO_HTTP_MAX_CALLS=500
    max_calls = 500
    [tool.mcptrio.tools.export]  MCPTRIO_TOOLS_EXPORT_TIMEOUT=300
    timeout = 300

A variable wins over the table, and both win over the code. Settings that are options of the command line are not here.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_type_hints

import msgspec

from mcptrio.cli.exit_codes import Failure

if TYPE_CHECKING:
    from mcptrio.server.app import App

SECTIONS: Final = ("limits", "http", "tools")
TOOL_SETTINGS: Final = {"timeout": float, "serial": bool, "limit": int, "rate": float}
"""The options of a tool that an operator may set; the others belong to its code."""
OPTIONS_OF_RUN: Final = frozenset({
    *("path", "engine", "host", "port", "unix_path", "certfile", "keyfile", "client_ca", "allowed_hosts"),
    *("allowed_origins", "access_log", "json_only", "drain_timeout", "json_limits"),
})  # fmt: skip
"""Fields of `HttpConfig` that are options of the command line; `json_limits` is an object of the code."""

logger = logging.getLogger("mcptrio.cli")


class Given(NamedTuple):
    """A value, and the words that name its place in an error."""

    where: str
    value: Any
    is_text: bool = False
    """Whether it is the text of a variable."""


class Sections:
    """The settings of the tables and variables, not yet checked: only the loaded server knows its tools."""

    def __init__(self) -> None:
        self.limits: dict[str, Given] = {}
        self.http: dict[str, Given] = {}
        self.tools: dict[str, dict[str, Given]] = {}
        self._variables: dict[str, Given] = {}

    def read_table(self, file: str, table: dict[str, Any]) -> None:
        """Take the sections out of the table.

        Raises:
            Failure: one of them is no table.
        """
        for section in SECTIONS:
            values = _table(f"{file}: [tool.mcptrio.{section}]", table.pop(section, {}))
            for key, value in values.items():
                where = f"{file}: {key} in [tool.mcptrio.{section}]"
                if section != "tools":
                    getattr(self, section)[key.replace("-", "_")] = Given(where, value)
                    continue
                title = f"[tool.mcptrio.tools.{key}]"
                self.tools[key] = {
                    option: Given(f"{file}: {option} in {title}", one)
                    for option, one in _table(f"{file}: {title}", value).items()
                }

    def read_variables(self, environment: Mapping[str, str]) -> None:
        """Take the variables, which win over the table."""
        for name, text in environment.items():
            section, _, key = name.removeprefix("MCPTRIO_").lower().partition("_")
            if not name.startswith("MCPTRIO_") or section not in SECTIONS or not key or not text:
                continue
            if section == "tools":
                self._variables[key] = Given(name, text, is_text=True)
            else:
                getattr(self, section)[key] = Given(name, text, is_text=True)

    def apply(self, app: App) -> None:
        """Change the limits and the tools of a server.

        Raises:
            Failure: a setting is unknown, or its value cannot be used.
            DeclarationError: the values contradict each other.
        """
        if self.limits:
            app.limits = msgspec.structs.replace(app.limits, **_checked(self.limits, get_type_hints(type(app.limits))))
        if not self.tools and not self._variables:
            return
        from mcptrio.server.features.tool_declaration import set_options

        entries = app.tools.registry.entries
        for name in self.tools:
            if name not in entries:
                raise Failure(2, f"{_first(self.tools[name], name)}: there is no tool {name!r}{_near(name, entries)}")
        for key, given in self._variables.items():
            self._take_variable(key, given, entries)
        for name, options in self.tools.items():
            set_options(entries[name], _checked(options, TOOL_SETTINGS))

    def _take_variable(self, key: str, given: Given, tools: Iterable[str]) -> None:
        """Find the tool and the option that a variable names: `export_timeout`."""
        for option in TOOL_SETTINGS:
            named = [tool for tool in tools if f"{_as_variable(tool)}_{option}" == key]
            if len(named) > 1:
                raise Failure(2, f"{given.where} names {' and '.join(map(repr, named))}: use the table for them")
            if named:
                self.tools.setdefault(named[0], {})[option] = given
                return
        logger.warning("%s is ignored: it names no declared tool with %s", given.where, ", ".join(TOOL_SETTINGS))

    def http_settings(self) -> dict[str, Any]:
        """Return the fields of `HttpConfig`.

        Raises:
            Failure: a field is unknown, or its value cannot be used.
        """
        if not self.http:
            return {}
        from mcptrio.transports.http_server.config import HttpConfig

        hints = get_type_hints(HttpConfig)
        return _checked(self.http, {name: hint for name, hint in hints.items() if name not in OPTIONS_OF_RUN})


def _checked(given: Mapping[str, Given], hints: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for name, (where, value, is_text) in given.items():
        if name not in hints:
            if is_text:  # as with other variables: a platform may set some of its own with this prefix
                logger.warning("%s is ignored: it is not a setting%s", where, _near(name, hints))
                continue
            reason = "an option: write it in [tool.mcptrio]" if name in OPTIONS_OF_RUN else "not a setting"
            raise Failure(2, f"{where} is {reason}{_near(name, hints)}")
        if is_text and "tuple" in str(hints[name]):
            value = [word.strip() for word in value.split(",")]
        try:
            values[name] = msgspec.convert(value, hints[name], strict=not is_text)
        except msgspec.ValidationError as error:
            raise Failure(2, f"{where}: {error}, got {value!r}") from None
    return values


def _table(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Failure(2, f"{where} must be a table, got {value!r}")
    return value


def _first(options: Mapping[str, Given], name: str) -> str:
    return next((given.where for given in options.values()), f"[tool.mcptrio.tools.{name}]")


def _near(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # for errors only

    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _as_variable(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "_", name.lower())
