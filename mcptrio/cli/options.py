"""Options that all client commands share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import Parameter

from mcptrio.cli.terminal import Terminal
from mcptrio.types import LoggingLevel

TARGET: Final = (
    "A URL (http, https, ws, wss), a server file, mcp.json[:NAME], a command in one argument; or one after --."
)
TargetText = Annotated[str, Parameter(help=TARGET)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """How to connect to the server, and what it may use here."""

    json: bool = False
    """Print one JSON object."""
    header: Annotated[list[str], Parameter(metavar="'NAME: VALUE'")] = field(default_factory=list)
    """Send this header with every HTTP request; may be repeated."""
    token: Annotated[str | None, Parameter(env_var="MCPTRIO_TOKEN", show_env_var=False, metavar="TOKEN")] = None
    """Send this bearer token; the variable MCPTRIO_TOKEN is safer, because other users cannot see it."""
    allow_http: bool = False
    """Send the token even over plain http to another machine, where others can read it."""
    auth: Annotated[Literal["auto", "oauth", "none"], Parameter(metavar="HOW", show_choices=False)] = "auto"
    """Whether to sign in with OAuth in a browser if the server requires it: oauth, none, or auto (default: ask)."""
    protocol: Annotated[str | None, Parameter(metavar="DATE")] = None
    """Use this protocol version (default: negotiated)."""
    timeout: Annotated[float | None, Parameter(metavar="S")] = None
    """Seconds without a response after which a request fails (default: 60); not counted while you answer questions."""
    env: Annotated[list[str], Parameter(metavar="NAME[=VALUE]")] = field(default_factory=list)
    """Set this variable for a command, or pass on its current value; may be repeated."""
    root: Annotated[list[Path], Parameter(metavar="DIR")] = field(default_factory=list)
    """Declare this directory as a root that the server may use; may be repeated."""
    sample: Annotated[str | None, Parameter(metavar="TEXT")] = None
    """Answer sampling requests of the server with this text (default: sampling is not offered)."""
    log_level: Annotated[LoggingLevel, Parameter(metavar="LEVEL")] = "info"
    """Minimum level of the server's log messages to show (default: info)."""
    verbose: Annotated[bool, Parameter(alias="-v")] = False
    """Show the client's own log, and the stderr of a command (that of a server file is always shown)."""

    def terminal(self) -> Terminal:
        """Return the terminal of a command with these options."""
        return Terminal(json=self.json, verbose=self.verbose)
