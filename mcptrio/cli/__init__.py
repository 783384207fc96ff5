"""The command line: `mcptrio run` and the client commands. Only this package reads environment variables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

CLIENT_COMMANDS: Final = {
    "inspect": "show what a server offers",
    "call": "call a tool",
    "read": "read a resource",
    "prompt": "fill in a prompt",
    "listen": "print changes at a server",
    "shell": "talk to a server line by line",
}
"""The commands that connect to a server; each has its own module, imported only when it is used."""
COMMANDS: Final = {**CLIENT_COMMANDS, "cluster": "list the workers and sessions of a cluster"}
"""All commands but `run`."""

HELP: Final = """\
usage: mcptrio COMMAND [OPTIONS] …

Run MCP servers, and call them.

commands:
  run       serve a file or a module
{commands}

options:
  -h, --help    show this help, or after a command its arguments
  --version     show the version

The server is a URL, a Python file, the configuration of a host (mcp.json, or mcp.json:NAME), a command line in one
argument, or a command after `--`.

examples:
  mcptrio run server.py                                  serve one host over stdin and stdout
  mcptrio run server.py --transport http --port 8000     serve many clients at http://127.0.0.1:8000/mcp
  mcptrio inspect server.py                              show what this file offers
  mcptrio inspect https://example.org/mcp --json         show what a remote server offers, as JSON
  mcptrio call server.py forecast --arg city=Lisbon      call a tool; questions appear at the terminal
  mcptrio call "npx -y some-server" add --args '{{"a": 1, "b": 2}}'
  mcptrio read server.py notes://index                   print a resource
  mcptrio shell mcp.json:github                          talk to a server of a host's configuration, with completion
  mcptrio listen http://127.0.0.1:8000/mcp --tools       print a line when the list of tools changes
  mcptrio cluster 'redis://localhost?name=orders'        list the workers and sessions of `mcptrio run --workers`
"""
USAGE: Final = 64  # EX_USAGE of sysexits.h, because 2 means "refused by the server" in the client commands


def main(argv: Sequence[str] | None = None) -> int:
    """Run the `mcptrio` command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    word = arguments[0] if arguments else ""
    # Hosts start `run` often and wait for it: it must not import what only the other commands need.
    if word == "run":
        from mcptrio.cli.run import main as run

        return run(arguments[1:])
    if word in COMMANDS:
        return _run_client_command(word, arguments[1:])
    if word in ("-h", "--help", "help"):
        return _show(help_text())
    if word == "--version":
        from mcptrio import __version__

        return _show(f"mcptrio {__version__}\n")
    if not word:
        print(help_text(), end="", file=sys.stderr)
        return USAGE
    print(f"mcptrio: unknown command {word!r}; {_suggestion(word)}", file=sys.stderr)
    return USAGE


def _show(text: str) -> int:
    """Print a text to stdout and return the exit code."""
    from mcptrio.cli.exit_codes import NO_OUTPUT, OutputError
    from mcptrio.cli.stdout import write_text

    try:
        write_text(text)
    except OutputError as error:
        print(f"mcptrio: {error}", file=sys.stderr)
        return NO_OUTPUT
    return 0


def help_text() -> str:
    return HELP.format(commands="\n".join(f"  {name:9} {words}" for name, words in COMMANDS.items()))


def _run_client_command(name: str, arguments: list[str]) -> int:
    try:
        import cyclopts  # noqa: F401  # only to check that it is installed
        import rich  # noqa: F401
    except ImportError:
        print(
            f'mcptrio: `mcptrio {name}` needs additional packages: pip install "mcptrio[cli]", '
            'or in a checkout pip install ".[cli]"',
            file=sys.stderr,
        )
        return USAGE
    from mcptrio.cli.command import main as run_command

    return run_command(name, arguments)


def _suggestion(word: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, ["run", *COMMANDS], n=1)
    return f"did you mean {near[0]!r}?" if near else "see mcptrio --help"
