"""`mcptrio run FILE[:NAME]`: serve a file over stdio, Streamable HTTP or the deprecated HTTP+SSE."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence
from typing import Any

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


def main(argv: Sequence[str]) -> int:
    """Serve; `argv` is what stands behind `run`. Returns the exit code."""
    arguments = parser().parse_args(argv)
    gc.disable()  # until the file is loaded: thousands of things are made, and nearly all of them stay
    from mcptrio.telemetry.log import set_up_logging

    set_up_logging(arguments.log_level, arguments.log_format)
    if arguments.transport != "stdio":
        return _serve(arguments, {})
    from mcptrio.transports.stdio import private_stdio

    # What the file prints while it is loaded must not reach the wire either.
    with private_stdio() as fds:
        return _serve(arguments, {"fds": fds})


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
    except (MCPTrioException, OSError) as error:
        print(f"mcptrio: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def parser() -> argparse.ArgumentParser:
    run = argparse.ArgumentParser(
        prog="mcptrio run",
        description="Serve the Server in a Python file.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EXAMPLES,
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
        choices=("hypercorn", "express"),
        default=os.environ.get("MCPTRIO_LANE", "hypercorn"),
        help="who answers plain requests: Hypercorn (default), or the connection itself, which is faster",
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
        choices=("debug", "info", "warning", "error"),
        default=os.environ.get("MCPTRIO_LOG_LEVEL", "info"),
        help="what is logged to stderr (default: info)",
    )
    run.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="lines for people (default) or for machines"
    )
    return run


def _state_keys(file: str | None) -> list[str]:
    if file:
        with open(file, encoding="utf-8") as lines:
            return [*lines]
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
