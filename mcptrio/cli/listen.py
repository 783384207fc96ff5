"""`mcptrio listen TARGET`: print changes at a server until Ctrl-C."""

from __future__ import annotations

from typing import Annotated, Final

from cyclopts import Parameter
from rich.text import Text

from mcptrio.cli.command import run
from mcptrio.cli.connection import open_client
from mcptrio.cli.exit_codes import REFUSED, UNREACHABLE, Failure, UsageError
from mcptrio.cli.options import ConnectionOptions, TargetText
from mcptrio.cli.terminal import Terminal, clean, print_json
from mcptrio.client import Reconnect
from mcptrio.client.client import Client
from mcptrio.client.features.subscriptions import Change, Changes

EXAMPLES: Final = """\
examples:
  mcptrio listen http://127.0.0.1:8000/mcp
  mcptrio listen http://127.0.0.1:8000/mcp --tools --json
  mcptrio listen https://example.org/mcp --resource notes://index --count 1"""


async def listen(
    target: TargetText,
    /,
    *,
    tools: bool = False,
    prompts: bool = False,
    resources: bool = False,
    resource: Annotated[list[str] | None, Parameter(metavar="URI")] = None,
    count: Annotated[int | None, Parameter(metavar="N")] = None,
    options: ConnectionOptions = ConnectionOptions(),  # noqa: B008  # frozen
) -> int:
    """Print one line for each change at a server, until Ctrl-C. With --json each line is an object.

    Parameters
    ----------
    tools
        The list of tools.
    prompts
        The list of prompts.
    resources
        The list of resources. Without any of these: every list for which the server sends notifications.
    resource
        The contents of this resource; may be repeated.
    count
        End after this number of changes.
    """
    terminal = options.terminal()

    async def work() -> int:
        if count is not None and count < 1:
            raise UsageError("--count must be greater than 0")
        async with open_client(target, options, terminal, reconnect=Reconnect(tries=20)) as client:
            wanted = {"tools": tools, "prompts": prompts, "resources": resources}
            if not any(wanted.values()) and not resource:
                wanted = _all_lists(client)
            async with client.listen(
                tools=wanted["tools"],
                prompts=wanted["prompts"],
                resource_list=wanted["resources"],
                resources=resource or (),
            ) as changes:
                _report_subscription(terminal, changes)
                seen = 0
                async for change in changes:
                    _print(terminal, change)
                    seen += 1
                    if seen == count:
                        return 0
        raise Failure(UNREACHABLE, "the server ended the subscription")

    return await run(terminal, work)


def _all_lists(client: Client) -> dict[str, bool]:
    """Select the lists for which the server declares notifications."""
    said = client.capabilities
    offered = {"tools": said.tools, "prompts": said.prompts, "resources": said.resources}
    wanted = {name: one is not None and bool(one.list_changed) for name, one in offered.items()}
    if not any(wanted.values()):
        raise Failure(REFUSED, "the server sends no notifications about its lists; name resources with --resource")
    return wanted


def _report_subscription(terminal: Terminal, changes: Changes) -> None:
    kinds, uris = changes.honoured
    heard = sorted(kinds) + sorted(uris)
    missing = sorted(changes.kinds - kinds) + sorted(changes.uris - uris)
    if not heard:
        raise Failure(REFUSED, f"the server sends no notifications about {', '.join(missing)}")
    terminal.note(f"listening: {', '.join(heard)}")
    if missing:
        terminal.note(f"the server sends no notifications about {', '.join(missing)}", "yellow")


def _print(terminal: Terminal, change: Change) -> None:
    if terminal.json:
        print_json({"kind": change.kind, **({"uri": change.uri} if change.uri else {})}, indent=0)
        return
    text = Text(change.kind, style="cyan")
    terminal.out.print(text.append(f" {clean(change.uri)}" if change.uri else " changed", style="default"))
    terminal.out.file.flush()
