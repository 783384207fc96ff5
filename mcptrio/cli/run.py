"""`mcptrio run FILE[:NAME]`: serve a file over stdio, Streamable HTTP or the deprecated HTTP+SSE."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from mcptrio.cli.auth import auth_settings
from mcptrio.errors import DeclarationError, MCPTrioError

if TYPE_CHECKING:
    from mcptrio.stores import Store

_EXAMPLES = """\
examples:
  mcptrio run server.py                                  serve one host over stdin and stdout
  mcptrio run server.py --transport http --port 8000     serve many clients at http://127.0.0.1:8000/mcp
  mcptrio run server.py:orders --transport http --store sqlite:///orders.db
                                                         the server named `orders`; streams survive a restart
  mcptrio run server.py --transport http --token-file tokens
                                                         require a token (Authorization: Bearer TOKEN)
  mcptrio run server.py --transport http --certfile server.pem --keyfile server.key --client-ca our-ca.pem
                                                         require a client certificate signed by our-ca.pem
  mcptrio run server.py --transport http --unix-socket /run/mcp.sock --allow-host example.org
                                                         listen on a Unix socket, behind a proxy

a token file has one line TOKEN NAME [SCOPE ...] per caller; make it readable only by you (chmod 600):
  # comment lines are ignored
  kQ3v0pXw7m-2bJrT9cYhLw ada orders:read orders:write
  x7dUj2mWq0T_bn4sVfRkEg bob
to make a token: python -c 'import secrets; print(secrets.token_urlsafe(32))'
"""


_LEVELS: Final = ("debug", "info", "warning", "error")
_HTTP_OPTIONS: Final = (
    *("host", "port", "unix_socket", "path", "allow_host", "allow_origin"),
    *("certfile", "keyfile", "engine", "json_only"),
)


def main(argv: Sequence[str]) -> int:
    """Run `mcptrio run` with the arguments after `run`, and return the exit code."""
    arguments = parser().parse_args(argv)
    given = _given(argv)
    if arguments.transport == "stdio" and given:
        print(f"mcptrio: --{given[0].replace('_', '-')} is an HTTP option: add --transport http", file=sys.stderr)
        return 2
    if "unix_socket" in given and ("host" in given or "port" in given):
        print("mcptrio: --unix-socket cannot be combined with --host or --port", file=sys.stderr)
        return 2
    if arguments.log_level not in _LEVELS:  # argparse does not check defaults
        print(f"mcptrio: MCPTRIO_LOG_LEVEL must be one of {', '.join(_LEVELS)}", file=sys.stderr)
        return 2
    gc.disable()  # while the file is loaded: it makes thousands of objects, and nearly all of them stay
    from mcptrio.telemetry.log import set_up_logging

    set_up_logging(arguments.log_level, arguments.log_format)
    if arguments.transport != "stdio":
        return _serve(arguments, {})
    from mcptrio.server.program import greet
    from mcptrio.transports.stdio.server import private_stdio

    greet(arguments.target)
    # Output that the file prints while it is loaded must not reach the wire either.
    with private_stdio() as fds:
        return _serve(arguments, {"fds": fds})


def _given(argv: Sequence[str]) -> list[str]:
    """Return the HTTP options that are on the command line."""
    given = parser().parse_args(argv, argparse.Namespace(**dict.fromkeys(_HTTP_OPTIONS)))  # options not given stay None
    return [name for name in _HTTP_OPTIONS if getattr(given, name) is not None]


def _serve(arguments: argparse.Namespace, settings: dict[str, Any]) -> int:
    from mcptrio.cli.load import LoadError, load_server
    from mcptrio.server.program import run

    try:
        server = load_server(arguments.target)
    except LoadError as error:
        print(f"mcptrio: {error}", file=sys.stderr)
        if arguments.log_level == "debug" and error.__cause__ is not None:
            import traceback

            traceback.print_exception(error.__cause__)
        return 2
    finally:
        gc.freeze()  # objects that exist now stay: exclude them from later collections
        gc.enable()
    try:
        auth = auth_settings(arguments, server)
        if arguments.transport != "stdio":
            from mcptrio.cli.socket_activation import inherited_sockets

            settings = {"sockets": inherited_sockets() or None}
    except DeclarationError as error:
        print(f"mcptrio: {error}", file=sys.stderr)
        return 2
    try:
        run(server._app, arguments.transport, **settings, **auth, **_settings(arguments))
    except MCPTrioError as error:
        print(f"mcptrio: {error}", file=sys.stderr)
        return 1
    except OSError as error:  # of the store, or of the server's own lifespan
        text = error.strerror or str(error)
        print(f"mcptrio: {error.filename}: {text}" if error.filename else f"mcptrio: {text}", file=sys.stderr)
        logging.getLogger("mcptrio.serving").debug("the server failed to start", exc_info=error)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


class _Parser(argparse.ArgumentParser):
    """An argument parser that reports an error in one line instead of the whole usage text."""

    def error(self, message: str) -> NoReturn:
        hint = "See mcptrio run --help"
        if message.startswith("unrecognized arguments: -"):
            from difflib import get_close_matches

            wrong = message.partition(": ")[2].partition(" ")[0].partition("=")[0]
            if near := get_close_matches(wrong, self._option_string_actions, n=1):
                hint = f"Did you mean {near[0]}? {hint}"
        self.exit(2, f"mcptrio: {message}. {hint}\n")


def parser() -> argparse.ArgumentParser:
    """Make the argument parser of `mcptrio run`."""
    run = _Parser(
        prog="mcptrio run",
        description="Serve the Server in a Python file.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EXAMPLES,
        allow_abbrev=False,  # --prot is a typo of --port, not --protocol
    )
    run.add_argument("target", metavar="FILE[:NAME]", help="the file, and the name of the server if it has several")
    run.add_argument("--transport", type=_transport, metavar="stdio|http|sse", default="stdio", help="default: stdio")
    _add_http_options(run.add_argument_group("HTTP"))
    run.add_argument(
        "--store",
        metavar="URL",
        help="where resumable streams are kept: memory (default), sqlite:///FILE.db or redis://HOST[:PORT][?name=NAME] "
        "(a file with the password: MCPTRIO_STORE_PASSWORD_FILE)",
    )
    run.add_argument(
        "--drain-timeout", type=float, default=25.0, metavar="S", help="seconds that running calls may take to finish"
    )
    run.add_argument("--protocol", metavar="DATES", help="serve only these protocol versions (comma-separated)")
    run.add_argument(
        "--state-key-file",
        metavar="FILE",
        default=os.environ.get("MCPTRIO_STATE_KEY_FILE"),
        help="keys that seal the state of questions, one per line; the first one seals, all of them open "
        "(or keys in MCPTRIO_STATE_KEYS, separated by commas; default: a random one)",
    )
    run.add_argument(
        "--log-level",
        choices=_LEVELS,
        default=os.environ.get("MCPTRIO_LOG_LEVEL", "info").lower(),
        help="minimum level that is logged to stderr (default: info)",
    )
    run.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="text for people (default) or JSON lines"
    )
    return run


def _transport(name: str) -> str:
    if name in ("stdio", "http", "sse"):
        return name
    from mcptrio._hints import unknown_transport

    raise argparse.ArgumentTypeError(unknown_transport(name))


def _add_http_options(http: argparse._ArgumentGroup) -> None:
    http.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
    http.add_argument("--port", type=int, default=8000, help="the port; 0 takes any free one (default: 8000)")
    http.add_argument(
        "--unix-socket",
        metavar="PATH",
        help="listen on this Unix socket instead, for a proxy on the same machine. Sockets that systemd passes "
        "(LISTEN_FDS) take precedence over all three",
    )
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
        help="require a token from this file, see below (default: the variable MCPTRIO_TOKEN_FILE)",
    )
    http.add_argument(
        "--client-ca",
        metavar="FILE",
        help="require a TLS client certificate signed by one of these CAs (PEM); needs --certfile. "
        "The common name identifies the caller, unless --token-file is given",
    )
    http.add_argument(
        "--engine",
        choices=("hypercorn", "direct"),
        default=os.environ.get("MCPTRIO_ENGINE", "hypercorn"),
        help="the HTTP engine: hypercorn (default), a standard ASGI application; or direct, which answers plain "
        "requests for the endpoint without ASGI and uses less CPU",
    )
    http.add_argument("--json-only", action="store_true", help="never answer with an event stream")


def _state_keys(file: str | None) -> list[str]:
    if file:
        try:
            with open(file, encoding="utf-8") as lines:
                return [*lines]
        except OSError as error:
            raise DeclarationError(f"--state-key-file {file}: {error.strerror}") from None
    return os.environ.get("MCPTRIO_STATE_KEYS", "").replace(",", "\n").split()


def _store(url: str) -> str | Store:
    """Return the store that a URL names, with the password from the file that the environment names."""
    file = os.environ.get("MCPTRIO_STORE_PASSWORD_FILE")
    if not file:
        return url
    from mcptrio.stores import open_store

    try:
        with open(file, encoding="utf-8") as text:
            return open_store(url, password=text.read().strip())
    except OSError as error:
        raise DeclarationError(f"MCPTRIO_STORE_PASSWORD_FILE {file}: {error.strerror}") from None


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    settings: dict[str, Any] = {"drain_timeout": arguments.drain_timeout}
    if arguments.store:
        settings["store"] = _store(arguments.store)
    if arguments.protocol:
        settings["protocols"] = [date.strip() for date in arguments.protocol.split(",")]
    if keys := _state_keys(arguments.state_key_file):
        settings["state_keys"] = keys
    if arguments.transport == "stdio":
        return settings
    if arguments.unix_socket is not None:
        settings["unix_path"] = arguments.unix_socket
    settings.update(
        host=arguments.host,
        port=arguments.port,
        path=arguments.path,
        json_only=arguments.json_only,
        engine=arguments.engine,
        certfile=arguments.certfile,
        keyfile=arguments.keyfile,
    )
    from mcptrio.transports.http_server.config import HttpConfig

    # Added to the default hosts, not in place of them.
    if arguments.allow_host:
        settings["allowed_hosts"] = (*HttpConfig(host=arguments.host).hosts, *arguments.allow_host)
    if arguments.allow_origin:
        settings["allowed_origins"] = tuple(arguments.allow_origin)
    return settings
