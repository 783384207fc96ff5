"""The options that every command which talks to a server has."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from mcptrio.types import LoggingLevel


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Options:
    """How to reach the server, and what it may do here."""

    json: bool = False
    """Print one JSON object, for programs."""
    header: Annotated[list[str], Parameter(metavar="'NAME: VALUE'")] = field(default_factory=list)
    """Send this header with every HTTP request; may be repeated."""
    token: Annotated[str | None, Parameter(env_var="MCPTRIO_TOKEN", show_env_var=False, metavar="TOKEN")] = None
    """Send this bearer token; safer in the variable MCPTRIO_TOKEN, which nobody else sees."""
    auth: Annotated[Literal["auto", "oauth", "none"], Parameter(metavar="HOW", show_choices=False)] = "auto"
    """Sign in with OAuth in a browser if the server wants it: oauth, none, or auto (the default: offer it)."""
    protocol: Annotated[str | None, Parameter(metavar="DATE")] = None
    """Speak this protocol version; found out by default."""
    timeout: Annotated[float | None, Parameter(metavar="S")] = None
    """Give up after so many seconds without a sign of life (default: 60); a person's time does not count."""
    env: Annotated[list[str], Parameter(metavar="NAME[=VALUE]")] = field(default_factory=list)
    """Give a command this variable, or the value that it has here; may be repeated."""
    root: Annotated[list[Path], Parameter(metavar="DIR")] = field(default_factory=list)
    """Let the server know that it may work in this directory; may be repeated."""
    sample: Annotated[str | None, Parameter(metavar="TEXT")] = None
    """Answer this when the server asks for a model; by default it is told that there is none."""
    log_level: Annotated[LoggingLevel, Parameter(metavar="LEVEL")] = "info"
    """Show log messages of the server from this level on (default: info)."""
    verbose: Annotated[bool, Parameter(alias="-v")] = False
    """Show what the client notices, and what a command writes to its standard error; of a file that is shown anyway."""
