"""`mcptrio call TARGET TOOL`: call a tool and print the result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from mcptrio._wire.objects.converter import unstructure
from mcptrio.cli import arguments
from mcptrio.cli.command import refuse_unknown, run
from mcptrio.cli.connection import open_client
from mcptrio.cli.content import pieces_of, print_value, save, show
from mcptrio.cli.exit_codes import OK, TOOL_FAILED
from mcptrio.cli.options import ConnectionOptions, TargetText
from mcptrio.cli.terminal import Terminal, print_json
from mcptrio.client.client import Client
from mcptrio.client.features.tools import plain
from mcptrio.errors import INVALID_PARAMS, METHOD_NOT_FOUND, MCPError
from mcptrio.types import CallToolResult, TextContent

EXAMPLES: Final = """\
examples:
  mcptrio call server.py forecast --arg city=Lisbon --arg days=2
  mcptrio call https://example.org/mcp add --args '{"a": 1, "b": 2}' --json
  mcptrio call server.py draw --output picture.png
  mcptrio call add --args @arguments.json -- python server.py"""


async def call(
    target: TargetText,
    tool: str,
    /,
    *,
    args: Annotated[str | None, Parameter(metavar="JSON")] = None,
    arg: Annotated[list[str] | None, Parameter(metavar="NAME=VALUE")] = None,
    output: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    options: ConnectionOptions = ConnectionOptions(),  # noqa: B008  # frozen
) -> int:
    """Call a tool and print the result. Questions of the server are asked at the terminal.

    Parameters
    ----------
    tool
        The name of the tool.
    args
        The arguments, as a JSON object; @FILE reads them from a file, @- from standard input.
    arg
        One argument; its value is converted to the type in the tool's schema. May be repeated.
    output
        Save images, audio and other binary content here; or the text, if there is no binary content.
    """
    terminal = options.terminal()

    async def work() -> int:
        given, texts = arguments.read_object(args), arguments.read_pairs(arg or ())
        async with open_client(target, options, terminal) as client:
            return await call_and_show(client, terminal, tool, given, texts, output)

    return await run(terminal, work)


async def call_and_show(
    client: Client,
    terminal: Terminal,
    tool: str,
    given: Mapping[str, Any] | None,
    texts: Mapping[str, str],
    output: Path | None = None,
) -> int:
    """Call a tool with arguments as JSON and as texts, print the result, and return the exit code."""
    values = {**(given or {}), **(await _typed(client, tool, texts) if texts else {})}
    try:
        result = await client.call_tool(tool, values, on_progress=terminal.progress)
    except MCPError as error:
        if error.code in (INVALID_PARAMS, METHOD_NOT_FOUND):
            await refuse_unknown("tool", tool, client.list_tools, error)
        raise
    terminal.stop_progress()
    return _show(terminal, tool, result, output)


async def _typed(client: Client, tool: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Convert arguments to the types in the tool's schema; without a schema, JSON values are recognized."""
    schemas = {one.name: one.input_schema for one in await client.list_tools()}
    return arguments.typed(texts, schemas.get(tool, {}))


def _show(terminal: Terminal, tool: str, result: CallToolResult, output: Path | None) -> int:
    if terminal.json:
        print_json(unstructure(result))
    if result.is_error:
        text = result.text.strip()
        terminal.complain(f"the tool {tool!r} failed" + (f": {text}" if text else ""))
        return TOOL_FAILED
    pieces = pieces_of(result.content)
    if terminal.json:
        if output is not None:
            save(pieces, output)
    elif output is None and (value := _only_value(result)) is not msgspec.UNSET:
        print_value(terminal, value)
    else:
        show(terminal, pieces, output=output)
    return OK


def _only_value(result: CallToolResult) -> Any:
    """Return the structured content if all other content only repeats it, otherwise `UNSET`.

    A list or a number is returned without the object that the protocol wraps around it.
    """
    if result.structured_content is None:
        return msgspec.UNSET
    value = plain(result.structured_content)
    if not result.content:
        return value
    (block, *more) = result.content
    if more or not isinstance(block, TextContent):
        return msgspec.UNSET
    try:
        shown = msgspec.json.decode(block.text)
    except (msgspec.DecodeError, RecursionError):
        return msgspec.UNSET
    return shown if value in (shown, {"result": shown}) else msgspec.UNSET
