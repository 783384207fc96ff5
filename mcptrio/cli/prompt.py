"""`mcptrio prompt TARGET NAME`: fill in a prompt and print its messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from cyclopts import Parameter
from rich.text import Text

from mcptrio._wire.objects.converter import unstructure
from mcptrio.cli import arguments
from mcptrio.cli.command import refuse_unknown, run
from mcptrio.cli.connection import open_client
from mcptrio.cli.content import pieces_of, show
from mcptrio.cli.options import ConnectionOptions, TargetText
from mcptrio.cli.terminal import Terminal, clean, print_json
from mcptrio.client.client import Client
from mcptrio.errors import INVALID_PARAMS, MCPError
from mcptrio.types import GetPromptResult

EXAMPLES: Final = """\
examples:
  mcptrio prompt server.py complaint --arg order_id=7
  mcptrio prompt https://example.org/mcp complaint --args '{"order_id": "7"}' --json"""


async def prompt(
    target: TargetText,
    name: str,
    /,
    *,
    args: Annotated[str | None, Parameter(metavar="JSON")] = None,
    arg: Annotated[list[str] | None, Parameter(metavar="NAME=VALUE")] = None,
    options: ConnectionOptions = ConnectionOptions(),  # noqa: B008  # frozen
) -> int:
    """Fill in a prompt and print its messages.

    Parameters
    ----------
    name
        The name of the prompt.
    args
        The arguments, as a JSON object; @FILE reads them from a file, @- from standard input.
    arg
        One argument; may be repeated.
    """
    terminal = options.terminal()

    async def work() -> int:
        given = arguments.as_texts(arguments.read_object(args) or {})
        values = {**given, **arguments.read_pairs(arg or ())}
        async with open_client(target, options, terminal) as client:
            result = await fill_in(client, terminal, name, values)
        terminal.stop_progress()
        if options.json:
            print_json(unstructure(result))
        else:
            show_prompt(terminal, result)
        return 0

    return await run(terminal, work)


async def fill_in(client: Client, terminal: Terminal, name: str, values: Mapping[str, str]) -> GetPromptResult:
    """Request a prompt with its arguments."""
    try:
        return await client.get_prompt(name, values, on_progress=terminal.progress)
    except MCPError as error:
        if error.code == INVALID_PARAMS:
            await refuse_unknown("prompt", name, client.list_prompts, error)
        raise


def show_prompt(terminal: Terminal, result: GetPromptResult) -> None:
    if result.description:
        terminal.note(result.description)
    for message in result.messages:
        terminal.out.print(Text(f"{clean(message.role)}:", style="bold"))
        show(terminal, pieces_of([message.content]))
