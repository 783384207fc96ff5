"""The parts of the reference that are read from the code: settings, options, the command line, errors, eras, states."""

from __future__ import annotations

import argparse
import ast
import html
import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
import msgspec

_SIZES = ("bytes", "body", "message", "total", "result", "reply")
CONFIGS = {
    "HttpConfig": "mcptrio",
    "Limits": "mcptrio",
    "StoreLimits": "mcptrio.stores",
    "PipeLimits": "mcptrio.transports.pipe.server",
    "JsonLimits": "mcptrio.jsonrpc",
    "Cache": "mcptrio",
    "ToolOptions": "mcptrio.server.features.tool_declaration",
    "ResourceOptions": "mcptrio.server.features.resources",
    "PromptOptions": "mcptrio.server.features.prompts",
    "BearerAuth": "mcptrio.auth.server",
    "Introspection": "mcptrio.auth.server",
    "AuthorizationSettings": "mcptrio.transports.oauth",
    "ClientConfig": "mcptrio.client",
    "Reconnect": "mcptrio.client",
    "HttpClientConfig": "mcptrio.transports.http_client",
    "Tasks": "mcptrio.extensions.tasks",
    "Csp": "mcptrio.extensions.apps",
}


# -- settings


def settings(name: str) -> str:
    """Return a table of the fields of a class: type, default, meaning."""
    cls = getattr(import_module(CONFIGS[name]), name)
    fields = list(documented(cls))
    if attrs.has(cls):
        defaults = {field.name: field.default for field in attrs.fields(cls)}
    elif issubclass(cls, msgspec.Struct):
        defaults = {field.name: field.default for field in msgspec.structs.fields(cls)}
    else:  # a TypedDict: everything may be left out
        rows = [f"| `{field}`<br>{code(kind)} | {words} |" for field, kind, words in fields]
        return "\n".join(["| option and type | |", "|---|---|", *rows])
    rows = [
        f"| `{field}`<br>{code(kind)} | {show(field, defaults[field])} | {words} |" for field, kind, words in fields
    ]
    return "\n".join(["| setting and type | default | |", "|---|---|---|", *rows])


def documented(cls: type) -> Iterator[tuple[str, str, str]]:
    """Name, annotation and words of each field: the string under it. Those of a TypedDict's bases come first."""
    source = textwrap.dedent(inspect.getsource(cls))
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    for base in (getattr(import_module(cls.__module__), ast.unparse(name), None) for name in body.bases):
        if hasattr(base, "__total__"):
            yield from documented(base)
    for node, following in zip(body.body, [*body.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if node.target.id.startswith("_") or "ClassVar" in ast.unparse(node.annotation):
                continue
            below = following.value if isinstance(following, ast.Expr) else None
            text = below.value if isinstance(below, ast.Constant) else ""
            yield node.target.id, ast.unparse(node.annotation), cell(str(text))


def show(name: str, default: Any) -> str:
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        return f"`{default.factory.__name__}()`" if attrs.has(default.factory) else "empty"
    if default is attrs.NOTHING:
        return "required"
    if name.endswith("_mode"):
        return f"`{default:#o}`"
    text = f"`{type(default).__name__}()`" if hasattr(default, "__struct_fields__") else f"`{default!r}`"
    for size, unit in ((2**20, "MiB"), (2**10, "KiB")):
        if type(default) is int and any(word in name for word in _SIZES) and default >= size and not default % size:
            return f"{text} ({default // size} {unit})"
    return text


def code(text: str) -> str:
    """Code in a cell. A bar is spelled so that every reader of Markdown takes it for one, and not for a border."""
    return f"`{text}`" if "|" not in text else f"<code>{html.escape(text, quote=False).replace('|', '&#124;')}</code>"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# -- the examples


def examples() -> str:
    """Each file of `examples/`, with the sentence that it begins with."""
    folder = Path(__file__).resolve().parents[1] / "examples"
    rows = []
    for file in sorted(folder.glob("*.py")):
        words = (ast.get_docstring(ast.parse(file.read_text())) or "").partition("\n\n")[0]
        rows.append(f"| `examples/{file.name}` | {cell(words)} |")
    return "\n".join(["| file | |", "|---|---|", *rows])


# -- the command line


def command_line() -> str:
    """Every command: `run` as argparse knows it, client commands as their signatures and docstrings do."""
    from mcptrio.cli import COMMANDS
    from mcptrio.cli.options import ConnectionOptions
    from mcptrio.cli.run_options import parser

    run = parser()
    rows = [row(action) for action in run._actions if not isinstance(action, argparse._HelpAction)]
    parts = ["## `mcptrio run`", "", run.description or "", "", *_OPTIONS_HEAD, *rows]
    for name in COMMANDS:
        words, rows = command(name)
        parts += ["", f"## `mcptrio {name}`", "", words, "", "| argument | |", "|---|---|", *rows]
    parts += ["", "## Options of all client commands", "", "| option | |", "|---|---|"]
    parts += [f"| {code(_spelled(field, kind))} | {words} |" for field, kind, words in documented(ConnectionOptions)]
    return "\n".join(parts)


_OPTIONS_HEAD = ("| option | default | |", "|---|---|---|")


def command(name: str) -> tuple[str, list[str]]:
    """Describe a client command and its own arguments."""
    import docstring_parser

    from mcptrio.cli.options import TARGET

    fn = getattr(import_module(f"mcptrio.cli.{name}"), name)
    doc = docstring_parser.parse(inspect.getdoc(fn) or "")
    words = {"target": TARGET} | {found.arg_name: cell(found.description or "") for found in doc.params}
    rows = []
    for parameter in inspect.signature(fn).parameters.values():
        if parameter.name == "options":
            continue
        positional = parameter.kind is parameter.POSITIONAL_ONLY
        shown = parameter.name.upper() if positional else _spelled(parameter.name, str(parameter.annotation))
        rows.append(f"| {code(shown)} | {words[parameter.name]} |")
    return cell(f"{doc.short_description} {doc.long_description or ''}"), rows


def _spelled(name: str, annotation: str) -> str:
    """An option as it is typed: `--arg NAME=VALUE`."""
    found = re.search(r"""metavar=(?:'([^']*)'|"([^"]*)")""", annotation)
    flag = re.match(r"(?:typing\.)?(?:Annotated\[)?bool\b", annotation)
    value = "" if flag else (found[1] or found[2]) if found else "VALUE"
    return f"--{name.replace('_', '-')} {value}".strip()


def row(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else action.metavar or "|".join(map(str, action.choices or ())) or "VALUE"
    spelled = f"{', '.join(action.option_strings)} {value}".strip()
    default = "" if action.default in (None, False) or not action.option_strings else f"`{action.default}`"
    return f"| {code(spelled)} | {default} | {cell(action.help or '')} |"


# -- errors


def error_codes() -> str:
    """The constants of `mcptrio.errors`, with the comment behind each."""
    import mcptrio.errors

    source = inspect.getsource(mcptrio.errors)
    lines = source.splitlines()
    rows = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            comment = lines[node.lineno - 1].partition("#")[2].strip()
            value = getattr(mcptrio.errors, node.target.id)
            rows.append(f"| {value} | `{node.target.id}` | {cell(comment) or 'JSON-RPC 2.0'} |")
    return "\n".join(["| code | name in `mcptrio.errors` | where it comes from |", "|---|---|---|", *rows])


def exceptions() -> str:
    """The exceptions that `mcptrio` exports, and those that only `mcptrio.errors` has."""
    import mcptrio
    import mcptrio.errors

    named = [*vars(mcptrio.errors).items(), *((name, getattr(mcptrio, name)) for name in mcptrio.__all__)]
    classes = {name: cls for name, cls in named if isinstance(cls, type) and issubclass(cls, Exception)}
    rows = [f"| `{name}` | `{cls.__bases__[0].__name__}` | {first_line(cls)} |" for name, cls in classes.items()]
    return "\n".join(["| exception | is a | |", "|---|---|---|", *rows])


def first_line(thing: Any) -> str:
    return cell((inspect.getdoc(thing) or "").partition("\n\n")[0])


# -- protocol dates

YES, NO = "yes", "no"


def dates() -> str:
    """Return the features of each protocol date, read from the eras."""
    from mcptrio._eras.choose import ERAS
    from mcptrio._peer.era import Era

    def has(method: str) -> Any:
        return lambda era: YES if method in era.requests or method in era.notifications else NO

    def elicitation(era: Era) -> str:
        url = "form and URL" if era.features.elicitation_url else "form"
        return url if "elicitation/create" in era.requests else NO

    rows: dict[str, Any] = {
        "starts with": lambda era: "`initialize`" if era.stateful else "nothing; `_meta` of each request",
        "sessions over HTTP": lambda era: YES if era.http.sessions else NO,
        "streams can be resumed": lambda era: YES if era.http.resumable else NO,
        "streams can be polled": lambda era: YES if era.http.primes else NO,
        "batches": lambda era: YES if era.batching else NO,
        "tools, resources, prompts": has("tools/call"),
        "structured results": lambda era: YES if "outputSchema" in era.shapes["tool"] else NO,
        "audio content": lambda era: YES if "audio" in era.content else "as an embedded resource",
        "resource links": lambda era: YES if "resource_link" in era.content else "as text",
        "progress": lambda era: "with message" if era.features.progress_message else YES,
        "elicitation": elicitation,
        "sampling": lambda era: "with tools" if era.features.sampling_tools else YES,
        "questions are sent": lambda era: "in results" if era.features.asks_in_results else "as requests",
        "resource changes": lambda era: "`resources/subscribe`" if era.stateful else "`subscriptions/listen`",
        "`server/discover`": has("server/discover"),
        "cache hints": lambda era: YES if era.features.cache_hints else NO,
    }
    head = f"| | {' | '.join(ERAS)} |"
    lines = [f"| {title} | {' | '.join(say(era) for era in ERAS.values())} |" for title, say in rows.items()]
    return "\n".join([head, "|---" * (len(ERAS) + 1) + "|", *lines])


# -- the machine


def states() -> str:
    """Return the text of the diagram of states, for draw.py."""
    from mcptrio._peer.states import ANY_BUT_INITIALIZE, OPENING

    lines = ["layers: How a stateful session opens"]
    for state, moves in OPENING.items():
        spoken = {m: "anything but initialize" if m == ANY_BUT_INITIALIZE else m for m in moves}
        stays = [spoken[method] for method, after in moves.items() if after is state]
        lines.append(f"[{state.name}: stays here after {', '.join(stays)}]" if stays else f"[{state.name}]")
        lines += [f"| {spoken[method]}" for method, after in moves.items() if after is not state]
    return "\n".join(lines)


def state_table() -> str:
    from mcptrio._peer.states import ANY_BUT_INITIALIZE, OPENING

    rows = []
    for state, moves in OPENING.items():
        for method, after in moves.items():
            spoken = "anything but `initialize`" if method == ANY_BUT_INITIALIZE else f"`{method}`"
            rows.append(f"| {state.name} | {spoken} | {after.name} |")
    return "\n".join(["| in | when this arrives | then |", "|---|---|---|", *rows])


def routes() -> str:
    """The routing table of a server."""
    from mcptrio import Server

    rows = [
        f"| `{route.method}` | `{getattr(route.params, '__name__', route.params) or 'object'}` | "
        f"{'in the loop' if route.inline else 'as a task, uses no slot' if route.long else 'as a task'} |"
        for route in Server("routes")._app.router
    ]
    return "\n".join(["| method | parameters | its handler runs |", "|---|---|---|", *rows])


def events() -> str:
    """The classes of `mcptrio.telemetry`."""
    from mcptrio import telemetry

    rows = []
    for cls in vars(telemetry).values():
        if isinstance(cls, type) and issubclass(cls, telemetry.Event) and cls is not telemetry.Event:
            names = ", ".join(f"`{name}`" for name in cls.__struct_fields__)
            own = cls.__dict__.get("__doc__")
            rows.append(f"| `{cls.__name__}` | {names} | {cell(own or '')} |")
    return "\n".join(["| event | fields | |", "|---|---|---|", *rows])
