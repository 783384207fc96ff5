"""`mcptrio inspect TARGET`: show what a server offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from mcptrio._wire.objects.converter import unstructure
from mcptrio.cli.arguments import MAX_LEVELS, MAX_OPTIONS, resolve
from mcptrio.cli.command import run
from mcptrio.cli.connection import open_client
from mcptrio.cli.options import ConnectionOptions, TargetText
from mcptrio.cli.terminal import Terminal, clean, print_json
from mcptrio.client.client import Client
from mcptrio.errors import METHOD_NOT_FOUND, MCPError, RemoteProtocolError

EXAMPLES: Final = """\
examples:
  mcptrio inspect server.py
  mcptrio inspect https://example.org/mcp --json
  mcptrio inspect "npx -y some-server --flag"
  mcptrio inspect --json -- python server.py"""
_LISTS: Final = (
    ("tools", "tools", "tools/list"),
    ("resources", "resources", "resources/list"),
    ("resources", "resourceTemplates", "resources/templates/list"),
    ("prompts", "prompts", "prompts/list"),
)
"""The capability that a list requires, its name in results, and its method."""

Item = Mapping[str, Any]


async def inspect(target: TargetText, /, *, options: ConnectionOptions = ConnectionOptions()) -> int:  # noqa: B008  # frozen
    """Show a server's name, version, capabilities, tools, resources, templates and prompts."""
    terminal = options.terminal()

    async def work() -> int:
        async with open_client(target, options, terminal) as client:
            found = await describe(client)
            transport = client.transport
        if options.json:
            print_json(found)
        else:
            show_offers(terminal, found, transport)
        return 0

    return await run(terminal, work)


async def describe(client: Client) -> dict[str, Any]:
    """Return everything that a server declares, in wire form."""
    found: dict[str, Any] = {
        "protocolVersion": client.protocol_version,
        "serverInfo": unstructure(client.server_info) if client.server_info is not None else None,
        "capabilities": unstructure(client.capabilities),
    }
    if client.instructions is not None:
        found["instructions"] = client.instructions
    for capability, name, method in _LISTS:
        offered = getattr(client.capabilities, capability) is not None
        found[name] = await _items(client, method, name) if offered else []
    return found


async def _items(client: Client, method: str, name: str) -> list[Item]:
    """Fetch all pages of a list; the items stay in wire form."""

    async def fetch(params: dict[str, Any]) -> tuple[list[Item], str | None]:
        try:
            page = await client.request(method, params)
        except MCPError as error:
            if error.code == METHOD_NOT_FOUND and not params:
                return [], None  # many servers have resources but no templates
            raise
        items, cursor = page.get(name), page.get("nextCursor")
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise RemoteProtocolError(f"the result of {method} has no list of {name}")
        return items, cursor if isinstance(cursor, str) else None

    return [item async for item in client._pages(method, fetch)]


# -- for people


def show_offers(terminal: Terminal, found: Mapping[str, Any], transport: str) -> None:
    info = found["serverInfo"] or {}
    title = Text(clean(str(info.get("title") or info.get("name") or "unnamed server")), style="bold")
    title.append(f" {clean(str(info.get('version', '')))}", style="default")
    terminal.out.print(title.append(f"  {found['protocolVersion']} over {transport}", style="dim"), soft_wrap=True)
    if found.get("instructions"):
        terminal.out.print(Text(clean(found["instructions"])), soft_wrap=True)
    offers = ", ".join(_capability(name, value) for name, value in found["capabilities"].items())
    terminal.out.print(Text(f"offers: {clean(offers) or 'nothing'}", style="dim"), soft_wrap=True)
    tools = [(one.get("name"), signature(one.get("inputSchema")), _marks(one), one) for one in found["tools"]]
    _table(terminal, "Tools", ("name", "arguments", ""), tools)
    resources = [(one.get("uri"), one.get("mimeType"), one) for one in found["resources"]]
    _table(terminal, "Resources", ("uri", "type"), resources)
    templates = [(one.get("uriTemplate"), one.get("mimeType"), one) for one in found["resourceTemplates"]]
    _table(terminal, "Resource templates", ("uri", "type"), templates)
    prompts = [(one.get("name"), _prompt_signature(one.get("arguments")), one) for one in found["prompts"]]
    _table(terminal, "Prompts", ("name", "arguments"), prompts)


def _table(terminal: Terminal, title: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Print a table whose last column is the description of each item."""
    if not rows:
        return
    table = Table(title=f"{title} ({len(rows)})", title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.padding = (0, 2, 0, 0)
    for column in columns:
        table.add_column(column, style="cyan" if column in ("name", "uri") else "", header_style="dim", overflow="fold")
    table.add_column("description", header_style="dim", overflow="fold")
    for *cells, item in rows:
        words = str(item.get("description") or item.get("title") or "").strip().partition("\n\n")[0]
        table.add_row(*(Text(clean(str(cell or ""))) for cell in cells), Text(clean(" ".join(words.split()))))
    terminal.out.print()
    terminal.out.print(table)


def signature(schema: Any) -> str:
    """Format the arguments of a tool: `city: string, days?: integer = 3`."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return ""
    required = schema.get("required") or ()
    parts = []
    for name, inner in properties.items():
        inner = inner if isinstance(inner, Mapping) else {}
        default = f" = {inner['default']}" if inner.get("default") not in (None, "") else ""
        parts.append(f"{name}{'' if name in required else '?'}: {_kind(inner, schema)}{default}")
    return ", ".join(parts)


def _kind(schema: Mapping[str, Any], root: Mapping[str, Any], level: int = 0) -> str:
    schema = resolve(schema, root)
    if isinstance(values := schema.get("enum"), list):
        return "|".join(map(str, values))
    kind = schema.get("type")
    if isinstance(kind, list):
        return "|".join(map(str, kind))
    options = schema.get("anyOf") or schema.get("oneOf")
    if kind is None and isinstance(options, list) and level < MAX_LEVELS:
        found = [_kind(one, root, level + 1) for one in options[:MAX_OPTIONS] if isinstance(one, Mapping)]
        return "|".join(dict.fromkeys("|".join(found).split("|")))
    return str(kind or "any")


def _prompt_signature(arguments: Any) -> str:
    named = [one for one in arguments or () if isinstance(one, Mapping)]
    return ", ".join(f"{one.get('name')}{'' if one.get('required') else '?'}" for one in named)


def _marks(tool: Item) -> str:
    hints = tool.get("annotations")
    hints = hints if isinstance(hints, Mapping) else {}
    words = {"readOnlyHint": "read-only", "destructiveHint": "destructive", "idempotentHint": "idempotent"}
    return ", ".join(word for hint, word in words.items() if hints.get(hint) is True)


def _capability(name: str, value: Any) -> str:
    inner = [key for key, on in value.items() if on is True] if isinstance(value, Mapping) else []
    return f"{name} ({', '.join(inner)})" if inner else name
