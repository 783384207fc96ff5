"""The command line: `mcptrio run`, and what talks to servers. The only place that reads the environment."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

TALKING: Final = {
    "inspect": "show what a server offers",
    "call": "call a tool",
    "read": "read a resource",
    "prompt": "fill in a prompt",
    "listen": "tell what changes at a server",
}
"""The commands that talk to servers; each is a module of its own, imported only when it is used."""

HELP: Final = """\
usage: mcptrio COMMAND [OPTIONS] …

Run and talk to MCP servers.

commands:
  run       serve a file
{commands}

options:
  -h, --help    show this, or with a command what it takes
  --version     show the version

A server to talk to is a URL, a Python file, a command line in one argument, or a command after `--`.

examples:
  mcptrio run server.py                                  serve one host over stdin and stdout
  mcptrio run server.py --transport http --port 8000     serve many clients at http://127.0.0.1:8000/mcp
  mcptrio inspect server.py                              what does this file offer?
  mcptrio inspect https://example.org/mcp --json         the same of a server elsewhere, for programs
  mcptrio call server.py forecast --arg city=Lisbon      call a tool; what it asks back is asked at the terminal
  mcptrio call "npx -y some-server" add --args '{{"a": 1, "b": 2}}'
  mcptrio read server.py notes://index                   print a resource
  mcptrio listen http://127.0.0.1:8000/mcp --tools       tell when the list of tools changes
"""
USAGE: Final = 64  # EX_USAGE of sysexits.h: a wrong command line; 2 means something else to those who talk to servers


def main(argv: Sequence[str] | None = None) -> int:
    """The entry point of the `mcptrio` command. Returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    word = arguments[0] if arguments else ""
    # `run` is what hosts start, often and in a hurry: it must not pay for anything that the other commands need.
    if word == "run":
        from mcptrio.cli.run import main as run

        return run(arguments[1:])
    if word in TALKING:
        return _talk(word, arguments[1:])
    if word in ("-h", "--help", "help"):
        print(help_text(), end="")
        return 0
    if word == "--version":
        from mcptrio import __version__

        print(f"mcptrio {__version__}")
        return 0
    if not word:
        print(help_text(), end="", file=sys.stderr)
        return USAGE
    print(f"mcptrio: there is no command {word!r}; {_suggestion(word)}", file=sys.stderr)
    return USAGE


def help_text() -> str:
    return HELP.format(commands="\n".join(f"  {name:9} {words}" for name, words in TALKING.items()))


def _talk(name: str, arguments: list[str]) -> int:
    try:
        import cyclopts  # noqa: F401  # only to know that it is there
        import rich  # noqa: F401
    except ImportError:
        print(
            f'mcptrio: `mcptrio {name}` needs more packages: pip install "mcptrio[cli]", '
            'or in a checkout pip install ".[cli]"',
            file=sys.stderr,
        )
        return USAGE
    from mcptrio.cli.talk import main as talk

    return talk(name, arguments)


def _suggestion(word: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, ["run", *TALKING], n=1)
    return f"did you mean {near[0]!r}?" if near else "see mcptrio --help"
