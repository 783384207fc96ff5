"""Several servers at once."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import trio
from attrs import define, evolve, field

from mcptrio.client.client import Client
from mcptrio.client.exceptions import open_unwrapped_nursery
from mcptrio.client.host_config import read_entry
from mcptrio.client.requester import How
from mcptrio.errors import LocalProtocolError, MCPTrioError
from mcptrio.telemetry.log import escape
from mcptrio.types import CallToolResult, GetPromptResult, Prompt, Resource, Tool

if TYPE_CHECKING:
    from mcptrio.client.options import ClientOptions
    from mcptrio.client.targets import Target

logger = logging.getLogger("mcptrio.client")

T = TypeVar("T")


@define(eq=False, repr=False)
class Clients:
    """Open clients by name. The long name of a tool or prompt is `<name of the server><separator><its own name>`."""

    separator: str = "_"
    failed: dict[str, Exception] = field(factory=dict)
    """The servers that could not be connected to, and why."""
    _clients: dict[str, Client] = field(factory=dict)

    def __getitem__(self, name: str) -> Client:
        if name not in self._clients and name in self.failed:
            raise LocalProtocolError(f"{name!r} could not be connected to: {self.failed[name]}") from self.failed[name]
        return self._clients[name]

    def __contains__(self, name: object) -> bool:
        return name in self._clients

    def __iter__(self) -> Iterator[str]:
        return iter(self._clients)

    def __len__(self) -> int:
        return len(self._clients)

    async def list_tools(self) -> tuple[Tool, ...]:
        """List the tools of every server; a server that fails is left out and logged.

        So is a tool whose long name leads to another server: with servers `git` and `git_hub`, `git_hub_x` is the tool
        `x` of `git_hub`, and a tool `hub_x` of `git` cannot be called.
        """
        found = await self._each("list_tools")
        return tuple(
            evolve(tool, name=self._long(name, tool.name))
            for name, tools in found
            for tool in tools
            if self._reaches(name, tool.name)
        )

    @overload
    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, **how: Unpack[How]
    ) -> CallToolResult: ...
    @overload
    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, into: type[T], **how: Unpack[How]
    ) -> T: ...
    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, into: Any = None, **how: Unpack[How]
    ) -> Any:
        """Call a tool by its long name; see `Client.call_tool`."""
        client, short = self._find(name)
        return await client.call_tool(short, arguments, into=into, **how)

    async def list_prompts(self) -> tuple[Prompt, ...]:
        """List the prompts of every server, with the same exceptions as `list_tools`."""
        found = await self._each("list_prompts")
        return tuple(
            evolve(prompt, name=self._long(name, prompt.name))
            for name, prompts in found
            for prompt in prompts
            if self._reaches(name, prompt.name)
        )

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **how: Unpack[How]
    ) -> GetPromptResult:
        """Fill in a prompt by its long name."""
        client, short = self._find(name)
        return await client.get_prompt(short, arguments, **how)

    async def list_resources(self) -> dict[str, tuple[Resource, ...]]:
        """Return the resources of every server, by the server's name, because URIs of two servers may be equal."""
        return dict(await self._each("list_resources"))

    def _long(self, client: str, name: str) -> str:
        return f"{client}{self.separator}{name}"

    def _owner(self, name: str) -> str | None:
        """Return the server that a long name leads to: the longest configured one, whether it could be opened or not.

        A call for a server that could not be opened must never reach another one.
        """
        owners = [one for one in (*self._clients, *self.failed) if name.startswith(one + self.separator)]
        return max(owners, key=len, default=None)

    def _reaches(self, client: str, name: str) -> bool:
        owner = self._owner(self._long(client, name))
        if owner != client:
            logger.warning(
                "%r of the server %r is left out: its long name leads to the server %r; use another separator",
                name, client, owner,
            )  # fmt: skip
        return owner == client

    def _find(self, name: str) -> tuple[Client, str]:
        owner = self._owner(name)
        if owner is None:
            raise LocalProtocolError(
                f"{name!r:.200} does not begin with the name of a server and {self.separator!r}; "
                f"the servers are {', '.join(self._clients) or 'none'}"
            )
        return self[owner], name.removeprefix(owner + self.separator)

    async def _each(self, method: str) -> list[tuple[str, Any]]:
        """Send a request to every server that has the feature, all at the same time."""
        found: dict[str, Any] = {}
        feature = method.removeprefix("list_")

        async def ask(name: str, client: Client) -> None:
            if getattr(client.capabilities, feature) is None:
                return
            try:
                found[name] = await getattr(client, method)()
            except MCPTrioError as error:
                logger.warning("%s of %r failed: %s", method, name, escape(error, 1000))

        async with trio.open_nursery() as nursery:
            for name, client in self._clients.items():
                nursery.start_soon(ask, name, client)
        return [(name, found[name]) for name in self._clients if name in found]


@asynccontextmanager
async def connect_all(
    servers: Mapping[str, Target | Mapping[str, Any] | Client],
    *,
    separator: str = "_",
    **options: Unpack[ClientOptions],
) -> AsyncIterator[Clients]:
    """Connect to several servers at once; one that fails is in `failed` and does not delay the others.

    Args:
        servers: Name -> a target of `connect`, an entry as in `mcpServers`, or a client that is not open yet.
        separator: Text between a server's name and that of a tool.
        options: Options for every client; see `Client`.
    """
    clients = Clients(separator)
    async with open_unwrapped_nursery() as nursery:
        leave = trio.Event()
        try:
            async with trio.open_nursery() as opening:
                for name, entry in servers.items():
                    opening.start_soon(_open, nursery, clients, name, entry, options, leave)
            clients._clients = {name: clients._clients[name] for name in servers if name in clients._clients}
            yield clients
        finally:
            leave.set()


async def _open(
    nursery: trio.Nursery, clients: Clients, name: str, entry: Any, options: ClientOptions, leave: trio.Event
) -> None:
    try:
        client = entry if isinstance(entry, Client) else make_client(entry, **options)
        clients._clients[name] = await nursery.start(_hold, client, leave, name)
    except Exception as error:  # noqa: BLE001 - one failing server does not take the others
        logger.warning("%r could not be connected to: %s", name, escape(error, 1000))
        clients.failed[name] = error


async def _hold(client: Client, leave: trio.Event, name: str, *, task_status: trio.TaskStatus[Client]) -> None:
    opened = False
    try:
        async with client:
            opened = True
            task_status.started(client)
            await leave.wait()
    except Exception:
        if not opened:
            raise
        logger.exception("%r failed when it was closed", name)


def make_client(entry: Target | Mapping[str, Any], **options: Unpack[ClientOptions]) -> Client:
    """Make a client for a target of `connect` or an entry of `mcpServers`.

    Raises:
        DeclarationError: the entry is invalid.
    """
    if not isinstance(entry, Mapping):
        return Client(entry, **options)
    found = read_entry(entry)
    given = options.copy()
    if found.url is not None:
        given["headers"] = {**(given.get("headers") or {}), **found.headers}
        return Client(found.url, **given)
    given["env"] = {**(given.get("env") or {}), **found.env}
    if found.cwd is not None:
        given["cwd"] = found.cwd
    return Client(list(found.argv), **given)
