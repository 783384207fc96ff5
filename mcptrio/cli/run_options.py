"""The options of `mcptrio run`."""

from __future__ import annotations

import argparse
import os
from typing import Final, NoReturn

from mcptrio.cli.stdout import write_text

_EXAMPLES: Final = """\
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
  mcptrio run server.py --transport http --protocol {stateless} --workers auto
                                                         one process per core; SIGHUP replaces them one by one
  mcptrio run -m shop.api:make_server -- --database shop.db
                                                         import a module and call make_server(), which finds
                                                         its own arguments in sys.argv

every option can also be a variable (MCPTRIO_PORT=8080) or an entry of the table [tool.mcptrio] in pyproject.toml:
  [tool.mcptrio]
  transport = "http"
  port = 8080
  allow-host = ["example.org"]
  [tool.mcptrio.tools.export]  # also limits and http; as a variable: MCPTRIO_TOOLS_EXPORT_TIMEOUT=300
  timeout = 300
the command line wins over a variable, a variable over the table, the table over the code

a token file has one line TOKEN NAME [SCOPE ...] per caller; make it readable only by you (chmod 600):
  # comment lines are ignored
  kQ3v0pXw7m-2bJrT9cYhLw ada orders:read orders:write
  x7dUj2mWq0T_bn4sVfRkEg bob
to make a token: python -c 'import secrets; print(secrets.token_urlsafe(32))'
"""

_USAGE: Final = """\
mcptrio run FILE[:NAME] [options] [-- ARGUMENTS]
       mcptrio run -m MODULE[:NAME] [options] [-- ARGUMENTS]"""
LEVELS: Final = ("debug", "info", "warning", "error")


class RunParser(argparse.ArgumentParser):
    """An argument parser that reports an error in one line instead of the whole usage text."""

    def format_help(self) -> str:
        from mcptrio._eras.choose import ERAS

        stateless = [date for date, era in ERAS.items() if not era.stateful]
        return super().format_help().replace("{stateless}", stateless[-1])

    def print_help(self, file: object = None) -> None:
        """Print the help to stdout. Raises `OutputError` where `argparse` would ignore that it cannot be written."""
        write_text(self.format_help())

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
    run = RunParser(
        prog="mcptrio run",
        usage=_USAGE,
        description="Serve the Server in a Python file or module.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EXAMPLES,
        allow_abbrev=False,  # --prot is a typo of --port, not --protocol
    )
    _add_target(run)
    run.add_argument(
        "--transport",
        type=_transport,
        metavar="stdio|http|sse",
        default="stdio",
        help="stdio (default): one host, which starts this command; http: many clients, over Streamable HTTP and "
        "WebSocket; sse: http, and also HTTP+SSE, which old clients need",
    )
    _add_http_options(run.add_argument_group("HTTP"))
    _add_worker_options(run.add_argument_group("several processes, over HTTP"))
    run.add_argument(
        "--store",
        metavar="URL",
        help="where resumable streams are kept: memory (default), sqlite:///FILE.db, where sessions survive a restart "
        "too, or redis://HOST[:PORT][?name=NAME] (a file with the password: MCPTRIO_STORE_PASSWORD_FILE)",
    )
    run.add_argument(
        "--drain-timeout",
        type=float,
        default=25.0,
        metavar="S",
        help="seconds that running calls may take to finish at SIGTERM or Ctrl-C (default: 25)",
    )
    run.add_argument("--protocol", metavar="DATES", help="serve only these protocol versions (comma-separated)")
    run.add_argument(
        "--state-key-file",
        metavar="FILE",
        help="keys that seal the state of questions, one per line; the first one seals, all of them open "
        "(or keys in MCPTRIO_STATE_KEYS, separated by commas; default: a random one)",
    )
    _add_log_options(run)
    run.add_argument(
        "--reload",
        action="store_true",
        help="start again when a Python file next to FILE changes (development, over HTTP); needs the extra `reload`",
    )
    run.add_argument(
        "--config",
        metavar="FILE",
        help="read the table [tool.mcptrio] of this TOML file (default: the pyproject.toml next to FILE)",
    )
    return run


def _add_target(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "target",
        nargs="?",
        metavar="FILE[:NAME]",
        help="the file, and the name of the server if it has several, or of a function that returns it",
    )
    run.add_argument(
        "-m",
        dest="module",
        metavar="MODULE[:NAME]",
        help="import a module instead, from the working directory or an installed package",
    )


def _transport(name: str) -> str:
    if name in ("stdio", "http", "sse"):
        return name
    from mcptrio._hints import unknown_transport

    raise argparse.ArgumentTypeError(unknown_transport(name))


def _add_log_options(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--log-level",
        type=str.lower,
        choices=LEVELS,
        default="info",
        help="minimum level that is logged to stderr (default: info)",
    )
    run.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="text for people (default) or JSON lines"
    )
    run.add_argument(
        "--otel",
        action="store_true",
        help="make OpenTelemetry spans and metrics (extra otel); opentelemetry-instrument sets up the SDK",
    )


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
        "--allow-origin",
        action="append",
        metavar="URL",
        help="let pages of this origin call the server (CORS); may be repeated",
    )
    http.add_argument("--certfile", help="serve TLS with this certificate (PEM)")
    http.add_argument("--keyfile", help="the certificate's key (PEM), if it is not in the same file")
    http.add_argument(
        "--token-file",
        metavar="FILE",
        help="require a token from this file, see below",
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
        default="hypercorn",
        help="the HTTP engine: hypercorn (default), a standard ASGI application; or direct, which answers plain "
        "requests for the endpoint without ASGI and uses less CPU",
    )
    http.add_argument("--json-only", action="store_true", help="never answer with an event stream")
    http.add_argument("--access-log", action="store_true", help="log a line for each HTTP request")
    http.add_argument(
        "--passivate-after",
        type=float,
        metavar="S",
        help="seconds after which an idle session is stored and leaves the memory, with a store on disk (default: 30)",
    )


def _add_worker_options(workers: argparse._ArgumentGroup) -> None:
    workers.add_argument(
        "--workers",
        type=_count_workers,
        metavar="N",
        help="serve with N processes, which a parent process starts, restarts and replaces; auto: one per core. "
        "Protocol versions with sessions need --store redis://HOST",
    )
    workers.add_argument(
        "--preload",
        action="store_true",
        help="load the file before the workers are started: less memory, but SIGHUP does not load new code",
    )
    workers.add_argument(
        "--stuck-after",
        type=float,
        default=30.0,
        metavar="S",
        help="seconds after which a worker whose event loop is blocked is restarted; 0: never (default: 30)",
    )
    workers.add_argument(
        "--lease",
        type=float,
        metavar="S",
        help="seconds after which the sessions of a worker that the shared store has not heard of are taken over "
        "(default: 2)",
    )
    workers.add_argument(
        "--on-store-loss",
        choices=("refuse", "serve"),
        help="answer requests of sessions with 503 once the shared store was not available for the length of a lease, "
        "or go on at the risk that another worker has taken them over (default: refuse)",
    )
    workers.add_argument(
        "--forward-address",
        metavar="HOST:PORT",
        help="where workers on other machines reach this one; port 0 is any free one. Without it, workers of one "
        "machine use a unix socket",
    )
    for option, what in (
        ("--forward-ca", "the CA of all workers (PEM), for TLS between machines; needs the next two"),
        ("--forward-cert", "the certificate of this worker (PEM)"),
        ("--forward-key", "its key (PEM)"),
    ):
        workers.add_argument(option, metavar="FILE", help=what)


def _count_workers(text: str) -> int:
    """Read the number of workers: `auto` is one per core."""
    if text == "auto":
        usable = getattr(os, "sched_getaffinity", None)
        return (len(usable(0)) if usable is not None else os.cpu_count()) or 1
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of workers: write 1 or more, or auto")
    return int(text)
