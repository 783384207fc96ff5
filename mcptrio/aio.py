"""The client for asyncio programs: `async with mcptrio.aio.connect(target) as client`, and `connect_all`.

Trio runs as a guest of the program's loop. Everything that is called or awaited belongs to asyncio, callbacks included.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, cast, overload

import trio

from mcptrio._bridge.guest import Guest, open_guest
from mcptrio._bridge.to_asyncio import settle_in_asyncio
from mcptrio._bridge.to_trio import TrioCall, held
from mcptrio.client.client import Client
from mcptrio.client.features.subscriptions import Change, Changes
from mcptrio.client.multi import Clients
from mcptrio.client.multi import connect_all as connect_all_in_trio
from mcptrio.client.wrapped import WrappedClient, WrappedClients, adapt_callbacks, unwrapped
from mcptrio.errors import LocalProtocolError
from mcptrio.types import CallToolResult, Prompt, Resource, ResourceTemplate, Tool

if TYPE_CHECKING:
    from mcptrio.client.options import ClientOptions
    from mcptrio.client.requester import How
    from mcptrio.client.targets import Target

__all__ = ["AsyncioChanges", "AsyncioClient", "AsyncioClients", "AsyncioPages", "connect", "connect_all"]

P = ParamSpec("P")
T = TypeVar("T")


def _crossing(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Crossed, P], Coroutine[Any, Any, T]]:
    """Make the asyncio method for one of `Client` or `Clients`."""

    @functools.wraps(method)
    async def crossed(self: _Crossed, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(partial(method, self._client, *args, **self._adapted(kwargs)))

    return crossed


class _Crossed:
    """An object of Trio that is used from asyncio."""

    _client: Any
    _guest: Guest | None = None

    async def _run(self, fn: Callable[[], Awaitable[T]]) -> T:
        """Run a Trio function."""
        guest = self._here()
        result: T = await TrioCall(guest.way, guest.nursery, fn).wait()
        return result

    def _here(self) -> Guest:
        if self._guest is None:
            raise LocalProtocolError("the client is not open: use `async with`")
        return self._guest

    def _adapted(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Let the callbacks among the options run in asyncio."""
        return adapt_callbacks(options, lambda _, callback: self._in_asyncio(callback))

    def _in_asyncio(self, callback: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(callback)
        async def call(*args: Any) -> Any:
            return await settle_in_asyncio(self._here().way, callback, args)

        return call

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
        """Call a tool, see `mcptrio.Client.call_tool`."""
        return await self._run(partial(self._client.call_tool, name, arguments, into=into, **self._adapted(how)))


class AsyncioClient(_Crossed, WrappedClient):
    """A connection to one server, for asyncio: the methods of `mcptrio.Client`, opened with `async with`."""

    def __init__(self, target: Target | Client, options: ClientOptions) -> None:
        self._opened: AsyncExitStack | None = None
        self._client: Client = (
            target if isinstance(target, Client) else Client(target, **cast("ClientOptions", self._adapted(options)))
        )

    # -- life cycle

    async def __aenter__(self) -> AsyncioClient:
        if trio.lowlevel.in_trio_task():
            raise LocalProtocolError("mcptrio.aio is for asyncio, and Trio runs here: use mcptrio.connect")
        if self._opened is not None:
            raise LocalProtocolError("a client is opened once; make another one")
        async with AsyncExitStack() as opening:
            self._guest = await opening.enter_async_context(open_guest())
            await opening.enter_async_context(held(self._guest.way, self._guest.nursery, self._client))
            self._opened = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._opened is None:
            raise LocalProtocolError("the client is not open: use `async with`")
        return await self._opened.__aexit__(kind, error, trace)

    aclose = _crossing(Client.aclose)

    # -- requests

    list_tools = _crossing(Client.list_tools)
    list_resources = _crossing(Client.list_resources)
    list_resource_templates = _crossing(Client.list_resource_templates)
    read_resource = _crossing(Client.read_resource)
    subscribe = _crossing(Client.subscribe)
    unsubscribe = _crossing(Client.unsubscribe)
    list_prompts = _crossing(Client.list_prompts)
    get_prompt = _crossing(Client.get_prompt)
    complete = _crossing(Client.complete)
    ping = _crossing(Client.ping)
    set_log_level = _crossing(Client.set_log_level)
    request = _crossing(Client.request)
    notify = _crossing(Client.notify)

    async def set_roots(self, roots: Any) -> None:
        """Replace the roots, see `mcptrio.Client.set_roots`."""
        await self._run(partial(self._client.set_roots, self._in_asyncio(roots) if callable(roots) else roots))

    def iter_tools(self, *, cached: bool = True) -> AsyncioPages[Tool]:
        """Iterate over the server's tools, page by page."""
        return AsyncioPages(self, self._client.iter_tools(cached=cached))

    def iter_resources(self, *, cached: bool = True) -> AsyncioPages[Resource]:
        """Iterate over the server's resources, page by page."""
        return AsyncioPages(self, self._client.iter_resources(cached=cached))

    def iter_resource_templates(self, *, cached: bool = True) -> AsyncioPages[ResourceTemplate]:
        """Iterate over the server's resource templates, page by page."""
        return AsyncioPages(self, self._client.iter_resource_templates(cached=cached))

    def iter_prompts(self, *, cached: bool = True) -> AsyncioPages[Prompt]:
        """Iterate over the server's prompts, page by page."""
        return AsyncioPages(self, self._client.iter_prompts(cached=cached))

    def listen(
        self, *, tools: bool = False, prompts: bool = False, resource_list: bool = False, resources: Iterable[str] = ()
    ) -> AbstractAsyncContextManager[AsyncioChanges]:
        """Subscribe to changes, see `mcptrio.Client.listen`."""
        return self._listen(
            self._client.listen(tools=tools, prompts=prompts, resource_list=resource_list, resources=resources)
        )

    @asynccontextmanager
    async def _listen(self, listening: AbstractAsyncContextManager[Changes]) -> AsyncIterator[AsyncioChanges]:
        guest = self._here()
        async with held(guest.way, guest.nursery, listening) as changes:
            yield AsyncioChanges(self, changes)


class AsyncioClients(_Crossed, WrappedClients[AsyncioClient]):
    """The open clients of `connect_all`, by name, for asyncio: the methods of `mcptrio.client.Clients`."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest

    def _open(self, clients: Clients, servers: Mapping[str, Any]) -> None:
        self._client: Clients = clients
        self._wrapped = {}
        for name in clients:
            given = servers[name]
            one = given if isinstance(given, AsyncioClient) else AsyncioClient(clients[name], {})
            one._guest = self._guest
            self._wrapped[name] = one

    list_tools = _crossing(Clients.list_tools)
    list_prompts = _crossing(Clients.list_prompts)
    get_prompt = _crossing(Clients.get_prompt)
    list_resources = _crossing(Clients.list_resources)


class AsyncioPages(Generic[T]):
    """An iterator of a client, for asyncio."""

    def __init__(self, client: AsyncioClient, items: AsyncIterator[T]) -> None:
        self._client = client
        self._items = items

    def __aiter__(self) -> AsyncioPages[T]:
        return self

    async def __anext__(self) -> T:
        return await self._client._run(self._items.__anext__)

    async def all(self) -> tuple[T, ...]:
        return tuple([item async for item in self])


class AsyncioChanges(AsyncioPages[Change]):
    """An open subscription: iterate over it."""

    _items: Changes

    @property
    def honoured(self) -> tuple[frozenset[Any], frozenset[str]]:
        """The kinds and resources that the server agreed to report."""
        return self._items.honoured


def connect(target: Target, **options: Unpack[ClientOptions]) -> AsyncioClient:
    """Connect to a server from asyncio: `async with mcptrio.aio.connect("https://example.org/mcp") as client`.

    The target and the options are those of `mcptrio.connect`; callbacks may be asyncio functions.
    """
    return AsyncioClient(target, options)


@asynccontextmanager
async def connect_all(
    servers: Mapping[str, Target | Mapping[str, Any] | AsyncioClient],
    *,
    separator: str = "_",
    **options: Unpack[ClientOptions],
) -> AsyncIterator[AsyncioClients]:
    """Connect to several servers at once from asyncio; see `mcptrio.connect_all`.

    Clients among the servers are those of `connect` here, and callbacks may be asyncio functions.
    """
    if trio.lowlevel.in_trio_task():
        raise LocalProtocolError("mcptrio.aio is for asyncio, and Trio runs here: use mcptrio.connect_all")
    async with open_guest() as guest:
        clients = AsyncioClients(guest)
        for one in servers.values():
            if isinstance(one, AsyncioClient):
                one._guest = guest  # its callbacks may be called while it connects
        adapted = cast("ClientOptions", clients._adapted(options))
        opening = connect_all_in_trio(unwrapped(servers), separator=separator, **adapted)
        async with held(guest.way, guest.nursery, opening) as opened:
            clients._open(opened, servers)
            yield clients
