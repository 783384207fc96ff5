"""`mcptrio call TARGET TOOL`: call a tool and print what it gave back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from mcptrio._wire.converter import unstructure
from mcptrio.cli import arguments
from mcptrio.cli.connecting import make_client
from mcptrio.cli.exits import OK, REFUSED, TOOL_FAILED, Failure
from mcptrio.cli.options import Options
from mcptrio.cli.screen import Screen, print_json
from mcptrio.cli.showing import pieces_of, print_value, save, show
from mcptrio.cli.talk import run
from mcptrio.client.client import Client
from mcptrio.client.features.tools import plain
from mcptrio.errors import INVALID_PARAMS, METHOD_NOT_FOUND, McpError, MCPTrioException
from mcptrio.types import CallToolResult, TextContent

EXAMPLES: Final = """\
examples:
  mcptrio call server.py forecast --arg city=Lisbon --arg days=2
  mcptrio call https://example.org/mcp add --args '{"a": 1, "b": 2}' --json
  mcptrio call server.py draw --output picture.png
  mcptrio call add --args @arguments.json -- python server.py"""


async def call(
    target: str,
    tool: str,
    /,
    *,
    args: Annotated[str | None, Parameter(metavar="JSON")] = None,
    arg: Annotated[list[str] | None, Parameter(metavar="NAME=VALUE")] = None,
    output: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    options: Options = Options(),  # noqa: B008  # frozen
) -> int:
    """Call a tool and print what it gave back. Questions of the server are asked at the terminal.

    Parameters
    ----------
    target
        A URL (http, https, ws, wss), a server file, a command line in one argument; or a command after --.
    tool
        The name of the tool.
    args
        The arguments, as a JSON object; @FILE reads them from a file, @- from standard input.
    arg
        One argument; its value is read as the tool's schema wants it. May be repeated.
    output
        Save images, sounds and other binary content here; or the text, if that is all there is.
    """
    screen = Screen(json=options.json, verbose=options.verbose)

    async def work() -> int:
        given, texts = arguments.read_object(args), arguments.read_pairs(arg or ())
        async with make_client(target, options, screen) as client:
            values = {**(given or {}), **(await _typed(client, tool, texts) if texts else {})}
            try:
                result = await client.call_tool(tool, values, on_progress=screen.progress)
            except McpError as error:
                if error.code in (INVALID_PARAMS, METHOD_NOT_FOUND):
                    await _refuse_unknown(client, tool, error)
                raise
        screen.stop_progress()
        return _show(screen, tool, result, output)

    return await run(screen, work)


async def _typed(client: Client, tool: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Arguments as the tool's own schema wants them; a tool that is not listed gets them as they read best."""
    schemas = {one.name: one.input_schema for one in await client.list_tools()}
    return arguments.typed(texts, schemas.get(tool, {}))


async def _refuse_unknown(client: Client, tool: str, error: McpError) -> None:
    """Say which tools there are, if that was the mistake."""
    try:
        names = [one.name for one in await client.list_tools()]
    except MCPTrioException:
        return
    if tool not in names:
        raise Failure(REFUSED, f"there is no tool {tool!r}; there are: {', '.join(names) or 'none'}") from error


def _show(screen: Screen, tool: str, result: CallToolResult, output: Path | None) -> int:
    if screen.json:
        print_json(unstructure(result))
    if result.is_error:
        text = result.text.strip()
        screen.complain(f"the tool {tool!r} failed" + (f": {text}" if text else ""))
        return TOOL_FAILED
    pieces = pieces_of(result.content)
    if screen.json:
        if output is not None:
            save(pieces, output)
    elif _says_it_twice(result) and output is None:
        print_value(screen, plain(result.structured_content))
    else:
        show(screen, pieces, output=output)
    return OK


def _says_it_twice(result: CallToolResult) -> bool:
    """Whether the text is only the structured content once more, or there is no text."""
    if result.structured_content is None:
        return False
    if not result.content:
        return True
    (block, *more) = result.content
    if more or not isinstance(block, TextContent):
        return False
    try:
        return bool(msgspec.json.decode(block.text) == plain(result.structured_content))
    except (msgspec.DecodeError, RecursionError):
        return False
