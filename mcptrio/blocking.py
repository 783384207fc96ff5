"""The client for programs without an event loop: `with mcptrio.blocking.connect(target) as client`, and `connect_all`.

Trio runs in a thread of the client. Callbacks are plain functions, and run in worker threads.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, cast, overload

import trio

from mcptrio.client.client import Client
from mcptrio.client.features.subscriptions import Change, Changes
from mcptrio.client.multi import Clients
from mcptrio.client.multi import connect_all as connect_all_in_trio
from mcptrio.client.pages import Pages
from mcptrio.client.wrapped import WrappedClient, WrappedClients, adapt_callbacks, unwrapped
from mcptrio.errors import ConnectionLost, DeclarationError, LocalProtocolError
from mcptrio.types import CallToolResult, Prompt, Resource, ResourceTemplate, Tool

if TYPE_CHECKING:
    from mcptrio.client.options import ClientOptions
    from mcptrio.client.requester import How
    from mcptrio.client.targets import Target

__all__ = ["BlockingChanges", "BlockingClient", "BlockingClients", "BlockingPages", "connect", "connect_all"]

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Blocked, P], T]:
    """Make the blocking method for one of `Client` or `Clients`."""

    @functools.wraps(method)
    def blocks(self: _Blocked, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._home.run(partial(method, self._client, *args, **_adapted(kwargs)))

    return blocks


class _TrioThread:
    """A thread in which Trio runs, for as long as it holds a context manager of Trio. Any thread may use it.

    Owns: the thread, the Trio run, and the nursery of the calls.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._closed = False
        self._token: trio.lowlevel.TrioToken
        self._leave: trio.Event
        self.nursery: trio.Nursery

    def open(self, manager: AbstractAsyncContextManager[T]) -> T:
        """Start the thread, and return when the context manager is entered."""
        if self._thread is not None:
            raise LocalProtocolError("a client is opened once; make another one")
        opened: Future[T] = Future()
        self._thread = threading.Thread(target=self._main, args=(manager, opened), name="mcptrio client", daemon=True)
        self._thread.start()
        try:
            return opened.result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the context manager, and wait for the end of the thread."""
        if self._thread is None:
            raise LocalProtocolError("the client is not open: use `with`")
        self._closed = True  # first, for a thread that has no token yet
        with suppress(trio.RunFinishedError, AttributeError):
            self._token.run_sync_soon(self._leave.set)
        self._thread.join()

    def _main(self, manager: AbstractAsyncContextManager[T], opened: Future[T]) -> None:
        try:
            trio.run(self._serve, manager, opened)
        except BaseException as error:  # noqa: BLE001 - it goes to the thread that opens the client
            if not opened.done():
                opened.set_exception(error)

    async def _serve(self, manager: AbstractAsyncContextManager[T], opened: Future[T]) -> None:
        self._leave, self._token = trio.Event(), trio.lowlevel.current_trio_token()
        if self._closed:
            self._leave.set()
        async with trio.open_nursery() as opening:
            opening.start_soon(_cancel_after, self._leave, opening.cancel_scope)
            failure: Exception | None = None
            try:
                async with manager as value, trio.open_nursery() as self.nursery:
                    opened.set_result(value)
                    await self._leave.wait()
                    self.nursery.cancel_scope.cancel()
            except Exception as error:  # noqa: BLE001 - raised below, alone instead of in a group
                failure = error
            opening.cancel_scope.cancel()
        if failure is not None:
            raise failure

    def run(self, fn: Callable[[], Awaitable[T]]) -> T:
        """Run a Trio function and wait for it; an interrupt cancels it."""
        call: _BlockingCall[T] = _BlockingCall(fn)
        try:
            self._token.run_sync_soon(call.start, self.nursery)
        except (AttributeError, trio.RunFinishedError):
            raise LocalProtocolError("the client is not open: use `with`") from None
        try:
            return call.future.result()
        except BaseException:
            self.soon(call.scope.cancel)
            raise

    def soon(self, fn: Callable[[], object]) -> None:
        """Call a plain function in Trio, if Trio still runs."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(fn)


class _Blocked:
    """An object of Trio whose methods block."""

    _client: Any
    _home: _TrioThread

    @overload
    def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, **how: Unpack[How]
    ) -> CallToolResult: ...
    @overload
    def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, into: type[T], **how: Unpack[How]
    ) -> T: ...
    def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, into: Any = None, **how: Unpack[How]
    ) -> Any:
        """Call a tool, see `mcptrio.Client.call_tool`."""
        return self._home.run(partial(self._client.call_tool, name, arguments, into=into, **_adapted(how)))


class BlockingClient(_Blocked, WrappedClient):
    """A connection to one server, for programs without an event loop: the methods of `mcptrio.Client`, without `await`.

    Owns: a thread in which Trio runs, while the client is open. Any thread may use it.
    """

    def __init__(self, target: Target | Client, options: ClientOptions) -> None:
        self._home = _TrioThread()
        self._client: Client = (
            target if isinstance(target, Client) else Client(target, **cast("ClientOptions", _adapted(options)))
        )

    # -- life cycle

    def __enter__(self) -> BlockingClient:
        self._home.open(self._client)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._home.close()

    def close(self) -> None:
        """Close the client, from any thread: pending requests fail with `ConnectionLost`."""
        self._home.run(self._client.aclose)

    # -- requests

    list_tools = _blocking(Client.list_tools)
    list_resources = _blocking(Client.list_resources)
    list_resource_templates = _blocking(Client.list_resource_templates)
    read_resource = _blocking(Client.read_resource)
    subscribe = _blocking(Client.subscribe)
    unsubscribe = _blocking(Client.unsubscribe)
    list_prompts = _blocking(Client.list_prompts)
    get_prompt = _blocking(Client.get_prompt)
    complete = _blocking(Client.complete)
    ping = _blocking(Client.ping)
    set_log_level = _blocking(Client.set_log_level)
    request = _blocking(Client.request)
    notify = _blocking(Client.notify)

    def set_roots(self, roots: Any) -> None:
        """Replace the roots, see `mcptrio.Client.set_roots`."""
        self._home.run(partial(self._client.set_roots, _in_thread("roots", roots) if callable(roots) else roots))

    def iter_tools(self, *, cached: bool = True) -> BlockingPages[Tool]:
        """Iterate over the server's tools, page by page."""
        return BlockingPages(self, self._client.iter_tools(cached=cached))

    def iter_resources(self, *, cached: bool = True) -> BlockingPages[Resource]:
        """Iterate over the server's resources, page by page."""
        return BlockingPages(self, self._client.iter_resources(cached=cached))

    def iter_resource_templates(self, *, cached: bool = True) -> BlockingPages[ResourceTemplate]:
        """Iterate over the server's resource templates, page by page."""
        return BlockingPages(self, self._client.iter_resource_templates(cached=cached))

    def iter_prompts(self, *, cached: bool = True) -> BlockingPages[Prompt]:
        """Iterate over the server's prompts, page by page."""
        return BlockingPages(self, self._client.iter_prompts(cached=cached))

    def listen(
        self, *, tools: bool = False, prompts: bool = False, resource_list: bool = False, resources: Iterable[str] = ()
    ) -> AbstractContextManager[BlockingChanges]:
        """Subscribe to changes, see `mcptrio.Client.listen`: `with client.listen(tools=True) as changes`."""
        return self._listen(
            self._client.listen(tools=tools, prompts=prompts, resource_list=resource_list, resources=resources)
        )

    @contextmanager
    def _listen(self, listening: AbstractAsyncContextManager[Changes]) -> Iterator[BlockingChanges]:
        leave = trio.Event()

        async def hold(*, task_status: trio.TaskStatus[Changes]) -> None:
            async with listening as changes:
                task_status.started(changes)
                await leave.wait()

        async def enter() -> Changes:
            changes: Changes = await self._home.nursery.start(hold)
            return changes

        changes = self._home.run(enter)
        try:
            yield BlockingChanges(self, changes)
        finally:
            self._home.soon(leave.set)


class BlockingClients(_Blocked, WrappedClients[BlockingClient]):
    """The open clients of `connect_all`, by name: the methods of `mcptrio.client.Clients`, without `await`."""

    def __init__(self, home: _TrioThread, clients: Clients, servers: Mapping[str, Any]) -> None:
        self._home = home
        self._client: Clients = clients
        self._wrapped = {}
        for name in clients:
            given = servers[name]
            one = given if isinstance(given, BlockingClient) else BlockingClient(clients[name], {})
            one._home = home
            self._wrapped[name] = one

    list_tools = _blocking(Clients.list_tools)
    list_prompts = _blocking(Clients.list_prompts)
    get_prompt = _blocking(Clients.get_prompt)
    list_resources = _blocking(Clients.list_resources)


class _BlockingCall(Generic[T]):
    """One Trio function that a thread waits for."""

    def __init__(self, fn: Callable[[], Awaitable[T]]) -> None:
        self.future: Future[T] = Future()
        self.scope = trio.CancelScope()
        self._fn = fn

    def start(self, nursery: trio.Nursery) -> None:
        try:
            nursery.start_soon(self._main)
        except RuntimeError:  # the nursery is closed
            self.future.set_exception(ConnectionLost("the client is closed"))

    async def _main(self) -> None:
        try:
            with self.scope:
                self.future.set_result(await self._fn())
        except Exception as error:  # noqa: BLE001 - it goes to the thread that waits
            self.future.set_exception(error)
        finally:
            if not self.future.done():
                self.future.set_exception(ConnectionLost("the client is closed"))


class BlockingPages(Generic[T]):
    """An iterator of a client, without `await`."""

    def __init__(self, client: BlockingClient, items: Pages[T] | Changes) -> None:
        self._client = client
        self._items: Any = items

    def __iter__(self) -> BlockingPages[T]:
        return self

    def __next__(self) -> T:
        try:
            item: T = self._client._home.run(self._items.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None
        return item


class BlockingChanges(BlockingPages[Change]):
    """An open subscription: iterate over it."""

    @property
    def honoured(self) -> tuple[frozenset[Any], frozenset[str]]:
        """The kinds and resources that the server agreed to report."""
        honoured: tuple[frozenset[Any], frozenset[str]] = self._items.honoured
        return honoured


async def _cancel_after(event: trio.Event, scope: trio.CancelScope) -> None:
    """Cancel a client that is left while it is being opened, and one that does not close within a second."""
    await event.wait()
    await trio.sleep(1)
    scope.cancel()


def _adapted(options: Mapping[str, Any]) -> dict[str, Any]:
    """Let the callbacks among the options run in worker threads, so that they may block."""
    return adapt_callbacks(options, _in_thread)


def _in_thread(name: str, callback: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    if inspect.iscoroutinefunction(callback):
        raise DeclarationError(f"{name}: the callbacks of a blocking client are plain functions, not async ones")

    @functools.wraps(callback)
    async def call(*args: Any) -> Any:
        return await trio.to_thread.run_sync(callback, *args, abandon_on_cancel=True)

    return call


def connect(target: Target, **options: Unpack[ClientOptions]) -> BlockingClient:
    """Connect to a server from a plain program: `with mcptrio.blocking.connect("https://example.org/mcp") as client`.

    The target and the options are those of `mcptrio.connect`; callbacks are plain functions, and may block.
    """
    return BlockingClient(target, options)


@contextmanager
def connect_all(
    servers: Mapping[str, Target | Mapping[str, Any] | BlockingClient],
    *,
    separator: str = "_",
    **options: Unpack[ClientOptions],
) -> Iterator[BlockingClients]:
    """Connect to several servers at once from a plain program; see `mcptrio.connect_all`.

    Clients among the servers are those of `connect` here; callbacks are plain functions, and may block.
    All clients share one thread with Trio.
    """
    home = _TrioThread()
    adapted = cast("ClientOptions", _adapted(options))
    clients = home.open(connect_all_in_trio(unwrapped(servers), separator=separator, **adapted))
    try:
        yield BlockingClients(home, clients, servers)
    finally:
        home.close()
