"""`mcptrio listen TARGET`: tell what changes at a server, until Ctrl-C."""

from __future__ import annotations

from typing import Annotated, Final

from cyclopts import Parameter
from rich.text import Text

from mcptrio.cli.connecting import make_client
from mcptrio.cli.exits import REFUSED, UNREACHABLE, Failure, UsageError
from mcptrio.cli.options import Options
from mcptrio.cli.screen import Screen, clean, print_json
from mcptrio.cli.talk import run
from mcptrio.client.client import Client
from mcptrio.client.config import Reconnect
from mcptrio.client.features.subscriptions import Change, Changes

EXAMPLES: Final = """\
examples:
  mcptrio listen http://127.0.0.1:8000/mcp
  mcptrio listen http://127.0.0.1:8000/mcp --tools --json
  mcptrio listen https://example.org/mcp --resource notes://index --count 1"""


async def listen(
    target: str,
    /,
    *,
    tools: bool = False,
    prompts: bool = False,
    resources: bool = False,
    resource: Annotated[list[str] | None, Parameter(metavar="URI")] = None,
    count: Annotated[int | None, Parameter(metavar="N")] = None,
    options: Options = Options(),  # noqa: B008  # frozen
) -> int:
    """Print a line for everything that changes at a server, until Ctrl-C. With --json each line is an object.

    Parameters
    ----------
    target
        A URL (http, https, ws, wss), a server file, a command line in one argument; or a command after --.
    tools
        The list of tools.
    prompts
        The list of prompts.
    resources
        The list of resources. Without any of these: every list that the server tells about.
    resource
        The contents of this resource; may be repeated.
    count
        End after so many changes.
    """
    screen = Screen(json=options.json, verbose=options.verbose)

    async def work() -> int:
        if count is not None and count < 1:
            raise UsageError("--count takes a number above 0")
        async with make_client(target, options, screen, reconnect=Reconnect(tries=20)) as client:
            wanted = {"tools": tools, "prompts": prompts, "resources": resources}
            if not any(wanted.values()) and not resource:
                wanted = _everything(client)
            async with client.listen(
                tools=wanted["tools"],
                prompts=wanted["prompts"],
                resource_list=wanted["resources"],
                resources=resource or (),
            ) as changes:
                _say_what_is_heard(screen, changes)
                seen = 0
                async for change in changes:
                    _print(screen, change)
                    seen += 1
                    if seen == count:
                        return 0
        raise Failure(UNREACHABLE, "the server ended the subscription")

    return await run(screen, work)


def _everything(client: Client) -> dict[str, bool]:
    """The lists whose changes the server says that it tells."""
    said = client.capabilities
    offered = {"tools": said.tools, "prompts": said.prompts, "resources": said.resources}
    wanted = {name: one is not None and bool(one.list_changed) for name, one in offered.items()}
    if not any(wanted.values()):
        raise Failure(REFUSED, "the server does not tell when its lists change; name resources with --resource")
    return wanted


def _say_what_is_heard(screen: Screen, changes: Changes) -> None:
    kinds, uris = changes.honoured
    heard = sorted(kinds) + sorted(uris)
    missing = sorted(changes.kinds - kinds) + sorted(changes.uris - uris)
    if not heard:
        raise Failure(REFUSED, f"the server does not tell about {', '.join(missing)}")
    screen.note(f"listening: {', '.join(heard)}")
    if missing:
        screen.note(f"the server does not tell about {', '.join(missing)}", "yellow")


def _print(screen: Screen, change: Change) -> None:
    if screen.json:
        print_json({"kind": change.kind, **({"uri": change.uri} if change.uri else {})}, indent=0)
        return
    text = Text(change.kind, style="cyan")
    screen.out.print(text.append(f" {clean(change.uri)}" if change.uri else " changed", style="default"))
    screen.out.file.flush()
