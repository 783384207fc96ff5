"""`mcptrio run FILE[:NAME]`: serve a file over stdio, Streamable HTTP or the deprecated HTTP+SSE."""

from __future__ import annotations

import argparse
import errno
import gc
import os
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from mcptrio.cli.callers import caller_settings
from mcptrio.errors import DeclarationError, MCPTrioException

_EXAMPLES = """\
examples:
  mcptrio run server.py                                  serve one host over stdin and stdout
  mcptrio run server.py --transport http --port 8000     serve many clients at http://127.0.0.1:8000/mcp
  mcptrio run server.py:orders --transport http --store sqlite:///orders.db
                                                         the server named `orders`; streams survive a restart
  mcptrio run server.py --transport http --token-file tokens
                                                         only for callers with a token (Authorization: Bearer TOKEN)
  mcptrio run server.py --transport http --certfile server.pem --keyfile server.key --client-ca our-ca.pem
                                                         only for callers with a certificate of our-ca.pem

a token file has a line TOKEN NAME [SCOPE ...] for each caller, and should be readable by you alone (chmod 600):
  # lines like this one are left out
  kQ3v0pXw7m-2bJrT9cYhLw ada orders:read orders:write
  x7dUj2mWq0T_bn4sVfRkEg bob
a token is made by: python -c 'import secrets; print(secrets.token_urlsafe(32))'
"""


_LEVELS: Final = ("debug", "info", "warning", "error")
_ONLY_HTTP: Final = (
    *("host", "port", "path", "allow_host", "allow_origin", "certfile", "keyfile", "lane", "json_only"),
)


def main(argv: Sequence[str]) -> int:
    """Serve; `argv` is what stands behind `run`. Returns the exit code."""
    arguments = parser().parse_args(argv)
    if arguments.transport == "stdio" and (option := _http_option(argv)):
        print(f"mcptrio: {option} is for HTTP: add --transport http", file=sys.stderr)
        return 2
    if arguments.log_level not in _LEVELS:  # argparse does not look at defaults
        print(f"mcptrio: MCPTRIO_LOG_LEVEL is one of {', '.join(_LEVELS)}", file=sys.stderr)
        return 2
    gc.disable()  # until the file is loaded: thousands of things are made, and nearly all of them stay
    from mcptrio.telemetry.log import set_up_logging

    set_up_logging(arguments.log_level, arguments.log_format)
    if arguments.transport != "stdio":
        return _serve(arguments, {})
    from mcptrio.server.serving import greet
    from mcptrio.transports.stdio import private_stdio

    greet(arguments.target)
    # What the file prints while it is loaded must not reach the wire either.
    with private_stdio() as fds:
        return _serve(arguments, {"fds": fds})


def _http_option(argv: Sequence[str]) -> str | None:
    """An option that means nothing on a pipe: who typed it expects a port to open."""
    given = parser().parse_args(argv, argparse.Namespace(**dict.fromkeys(_ONLY_HTTP)))  # what is not said stays None
    return next((f"--{name.replace('_', '-')}" for name in _ONLY_HTTP if getattr(given, name) is not None), None)


def _serve(arguments: argparse.Namespace, settings: dict[str, Any]) -> int:
    from mcptrio.cli.load import LoadError, load_server

    try:
        server = load_server(arguments.target)
    except LoadError as error:
        print(f"mcptrio: {error}", file=sys.stderr)
        if arguments.log_level == "debug" and error.__cause__ is not None:
            import traceback

            traceback.print_exception(error.__cause__)
        return 2
    finally:
        gc.freeze()  # what is there now need not be looked at again and again
        gc.enable()
    from mcptrio.telemetry.log import LogListener

    server.on_event(LogListener())
    try:
        callers = caller_settings(arguments, server)
    except DeclarationError as error:
        print(f"mcptrio: {error}", file=sys.stderr)
        return 2
    try:
        server.run(arguments.transport, **settings, **callers, **_settings(arguments))
    except MCPTrioException as error:
        print(f"mcptrio: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"mcptrio: {_why(error, arguments)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _why(error: OSError, arguments: argparse.Namespace) -> str:
    """One line, with what to change."""
    from socket import gaierror

    text = error.strerror or str(error)
    if error.errno == errno.EADDRINUSE:
        return f"{text}; choose another one with --port, or any free one with --port 0"
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, gaierror):
        return f"cannot listen on {arguments.host}: {text}; --host takes an address of this machine"
    return f"{error.filename}: {text}" if error.filename else text


class _Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, like the other commands, where argparse would show every option there is."""

    def error(self, message: str) -> NoReturn:
        hint = "See mcptrio run --help"
        if message.startswith("unrecognized arguments: -"):
            from difflib import get_close_matches

            wrong = message.partition(": ")[2].partition(" ")[0].partition("=")[0]
            if near := get_close_matches(wrong, self._option_string_actions, n=1):
                hint = f"Did you mean {near[0]}? {hint}"
        self.exit(2, f"mcptrio: {message}. {hint}\n")


def parser() -> argparse.ArgumentParser:
    run = _Parser(
        prog="mcptrio run",
        description="Serve the Server in a Python file.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EXAMPLES,
        allow_abbrev=False,  # --prot is a slip of --port, and not --protocol
    )
    run.add_argument("target", metavar="FILE[:NAME]", help="the file, and the server's name in it if there are several")
    run.add_argument("--transport", choices=("stdio", "http", "sse"), default="stdio", help="default: stdio")
    http = run.add_argument_group("HTTP")
    http.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
    http.add_argument("--port", type=int, default=8000, help="the port; 0 takes any free one (default: 8000)")
    http.add_argument("--path", default="/mcp", help="the endpoint (default: /mcp)")
    http.add_argument(
        "--allow-host", action="append", metavar="NAME", help="accept requests for this Host too; may be repeated"
    )
    http.add_argument(
        "--allow-origin", action="append", metavar="URL", help="accept requests from this Origin too; may be repeated"
    )
    http.add_argument("--certfile", help="serve TLS with this certificate (PEM)")
    http.add_argument("--keyfile", help="the certificate's key (PEM), if it is not in the same file")
    http.add_argument(
        "--token-file",
        metavar="FILE",
        help="let in only callers with a token of this file, see below (default: the variable MCPTRIO_TOKEN_FILE)",
    )
    http.add_argument(
        "--client-ca",
        metavar="FILE",
        help="let in only callers with a TLS certificate of one of these authorities (PEM); needs --certfile. "
        "Their common name is who they are, unless --token-file says so",
    )
    http.add_argument(
        "--lane",
        choices=("express", "hypercorn"),
        default=os.environ.get("MCPTRIO_LANE", "express"),
        help="who answers plain requests: the connection itself (express, the default), or Hypercorn, which is slower",
    )
    http.add_argument("--json-only", action="store_true", help="never answer with an event stream")
    run.add_argument(
        "--store", metavar="URL", help="where resumable streams are kept: memory (default) or sqlite:///FILE.db"
    )
    run.add_argument(
        "--drain-timeout", type=float, default=25.0, metavar="S", help="how long running calls may take to finish"
    )
    run.add_argument("--protocol", metavar="DATES", help="serve only these protocol versions (comma-separated)")
    run.add_argument(
        "--state-key-file",
        metavar="FILE",
        default=os.environ.get("MCPTRIO_STATE_KEY_FILE"),
        help="keys, one per line, that the state of questions is sealed with; the first one seals, every one opens "
        "(or keys in MCPTRIO_STATE_KEYS, separated by commas; default: a random one)",
    )
    run.add_argument(
        "--log-level",
        choices=_LEVELS,
        default=os.environ.get("MCPTRIO_LOG_LEVEL", "info").lower(),
        help="what is logged to stderr (default: info)",
    )
    run.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="lines for people (default) or for machines"
    )
    return run


def _state_keys(file: str | None) -> list[str]:
    if file:
        try:
            with open(file, encoding="utf-8") as lines:
                return [*lines]
        except OSError as error:
            raise DeclarationError(f"--state-key-file {file}: {error.strerror}") from None
    return os.environ.get("MCPTRIO_STATE_KEYS", "").replace(",", "\n").split()


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    settings: dict[str, Any] = {"drain_timeout": arguments.drain_timeout}
    if arguments.store:
        settings["store"] = arguments.store
    if arguments.protocol:
        settings["protocols"] = [date.strip() for date in arguments.protocol.split(",")]
    if keys := _state_keys(arguments.state_key_file):
        settings["state_keys"] = keys
    if arguments.transport == "stdio":
        return settings
    settings.update(
        host=arguments.host,
        port=arguments.port,
        path=arguments.path,
        json_only=arguments.json_only,
        lane=arguments.lane,
        certfile=arguments.certfile,
        keyfile=arguments.keyfile,
    )
    from mcptrio.transports.http_server.config import HttpConfig

    # "too": beside those that are allowed anyway
    if arguments.allow_host:
        settings["allowed_hosts"] = (*HttpConfig(host=arguments.host).hosts, *arguments.allow_host)
    if arguments.allow_origin:
        settings["allowed_origins"] = tuple(arguments.allow_origin)
    return settings
