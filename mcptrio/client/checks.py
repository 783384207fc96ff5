"""Validation of the options of a client that are not fields of `ClientConfig`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any, Final, Literal

from mcptrio._settings import check_value
from mcptrio.errors import DeclarationError
from mcptrio.types import LoggingLevel

_KINDS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(
        ("elicit", "visited", "sample", "log", "on_notification", "on_stderr", "on_event"), Callable[..., Any] | None
    ),
    "elicit_modes": tuple[Literal["form", "url"], ...],
    "sample_tools": bool,
    "roots": Iterable[Any] | Callable[..., Any] | None,
    "log_level": LoggingLevel | None,
    "routes": Mapping[str, Callable[..., Any]] | None,
    "extensions": Mapping[str, Mapping[str, Any]] | None,
    "headers": Mapping[str, str] | None,
    "env": Mapping[str, str | os.PathLike[str]] | None,
    "cwd": str | os.PathLike[str] | None,
}


def check_client(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Check the arguments of `Client`, and return them as values of their types.

    Raises:
        DeclarationError: one of them is invalid.
    """
    roots, auth = options["roots"], options["auth"]
    if isinstance(roots, str | PurePath):
        raise DeclarationError(f"roots is a list of directories: write roots=[{roots!r:.200}]")
    checked = {name: check_value(name, options[name], kind) for name, kind in _KINDS.items()}
    if auth is not None and not (hasattr(auth, "authorize") and hasattr(auth, "on_response")):
        raise DeclarationError(
            f"auth takes OAuth() or another class of mcptrio.auth, or your own object with authorize() and "
            f'on_response(), not a {type(auth).__name__}; a fixed token is headers={{"Authorization": "Bearer TOKEN"}}'
        )
    return checked
