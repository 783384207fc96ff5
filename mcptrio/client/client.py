"""The client: declaration, life cycle, and the wiring of its parts."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

import trio

from mcptrio import telemetry
from mcptrio._eras.choose import Served
from mcptrio.client.cache import ResultCache
from mcptrio.client.callbacks import (
    ElicitCallback,
    HostCallbacks,
    LogCallback,
    NotificationCallback,
    RootsCallback,
    SampleCallback,
)
from mcptrio.client.checks import check_client
from mcptrio.client.config import ClientConfig
from mcptrio.client.connection import ClientService, Connection
from mcptrio.client.exceptions import open_unwrapped_nursery
from mcptrio.client.features import tools
from mcptrio.client.features.listen import Listeners
from mcptrio.client.features.roots import RootLike
from mcptrio.client.features.round_trips import OtherResult
from mcptrio.client.features.subscriptions import Changes, Kind
from mcptrio.client.features.url_elicitation import UrlElicitations, VisitedCallback
from mcptrio.client.methods import custom
from mcptrio.client.reconnect import Connector
from mcptrio.client.requester import Requester
from mcptrio.client.requests import Requests
from mcptrio.client.targets import Target, TransportOptions, transport_for
from mcptrio.client.timeouts import PausingAuth
from mcptrio.errors import DeclarationError, LocalProtocolError
from mcptrio.transports.retry import Reconnect
from mcptrio.types import Implementation, LoggingLevel, ServerCapabilities

if TYPE_CHECKING:
    import httpx2

    from mcptrio.client.options import ClientOptions, ClientSettings
    from mcptrio.transports.http_client import HttpAuth, HttpClientConfig


class Client(Requests):
    """A connection to one server, opened with `async with`.

    Every call raises one plain exception: `MCPError` when the server refused, `RequestTimeout`, `ConnectionLost` when
    the server is gone, `RemoteProtocolError` when it broke the protocol, `LocalProtocolError` for an invalid call.
    """

    def __init__(
        self,
        target: Target,
        *,
        elicit: ElicitCallback | None = None,
        elicit_modes: Iterable[str] = ("form", "url"),
        visited: VisitedCallback | None = None,
        sample: SampleCallback | None = None,
        sample_tools: bool = False,
        roots: Iterable[RootLike] | RootsCallback | None = None,
        log: LogCallback | None = None,
        log_level: LoggingLevel | None = None,
        on_notification: NotificationCallback | None = None,
        routes: Mapping[str, Callable[..., Awaitable[Any]]] | None = None,
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
        auth: HttpAuth | None = None,
        headers: Mapping[str, str] | None = None,
        http_client: httpx2.AsyncClient | None = None,
        http: HttpClientConfig | None = None,
        env: Mapping[str, str | os.PathLike[str]] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        on_stderr: Callable[[str], None] | None = None,
        protocol: str | Iterable[str] | None = None,
        info: Implementation | None = None,
        timeout: float = 60.0,
        total_timeout: float = 900.0,
        reconnect: Reconnect | None = None,
        on_event: telemetry.Listener | None = None,
        **settings: Unpack[ClientSettings],
    ) -> None:
        """Declare a client without opening it.

        Args:
            target: A URL (http, https, ws, wss), a command as a list of arguments, a host's configuration (`mcp.json`,
                or with several servers `mcp.json:NAME`), a `Server` object, or a `Transport` of your own.
            elicit: Asks the user; it gets `ElicitParams` and returns the content of the form, or the user's action.
            elicit_modes: The elicitation modes that `elicit` supports.
            visited: Waits until the user is done at a page that a request needs first, after `elicit` accepted it;
                cancelled if the server reports completion earlier.
            sample: Calls the host's model; it gets `CreateMessageParams` and returns a result or a text.
            sample_tools: Whether `sample` can give the model tools.
            roots: The directories that a server may work in, or a function that returns them.
            log: Gets the server's log messages.
            log_level: The lowest severity of log messages to request; None: `info` if there is a `log` callback.
            on_notification: Gets the method and parameters of every notification.
            routes: Handlers for custom requests of the server: `async def handler(ctx, params)`.
            extensions: Extensions that this client declares, with their settings.
            auth: Authorizes HTTP requests: see `mcptrio.transports.http_client.HttpAuth`.
            headers: Sent with every HTTP request, to the target's own origin only.
            http_client: An `httpx2.AsyncClient` to send with.
            http: An `HttpClientConfig`.
            env: Variables for a subprocess, in addition to a minimal environment.
            cwd: The working directory of a subprocess.
            on_stderr: Gets each line of a subprocess's standard error.
            protocol: The protocol version to use, or several; None negotiates.
            info: Name and version of the host.
            timeout: Seconds without a response or progress after which a request fails.
            total_timeout: Seconds after which a request fails in any case.
            reconnect: The retry policy.
            on_event: Gets telemetry events.
            settings: Further fields of `ClientConfig`.
        """
        checked = check_client(locals())
        try:
            config = ClientConfig(
                info=info or _own_info(),
                timeout=timeout,
                total_timeout=total_timeout,
                reconnect=reconnect or Reconnect(),
                **settings,
            )
        except (TypeError, ValueError) as error:
            raise DeclarationError(_what_is_wrong(settings, error)) from error
        callbacks = HostCallbacks(
            elicit=elicit,
            elicit_modes=checked["elicit_modes"],
            sample=sample,
            sample_tools=sample_tools,
            roots=roots,
            log=log,
            on_notification=on_notification,
            extensions=extensions or {},
            timeout=config.callback_timeout,
        )
        self._service = ClientService(
            config=config,
            callbacks=callbacks,
            eras=Served.only([protocol] if isinstance(protocol, str) else protocol),
            telemetry=telemetry.Hub([on_event] if on_event is not None else []),
            routes=tuple(custom(method, handler) for method, handler in (routes or {}).items()),
            log_level=checked["log_level"] or ("info" if log is not None else None),
        )
        cache = ResultCache(config.cache_entries)
        how = TransportOptions(
            headers=headers or {},
            auth=None
            if auth is None
            else PausingAuth(auth, self._service.timeouts, config.callback_timeout, cache.clear),
            http_client=http_client,
            http=http,
            reconnect=config.reconnect,
            env=env or {},
            cwd=cwd,
            on_stderr=on_stderr,
        )
        self._connector = Connector(
            service=self._service,
            transport=transport_for(target, how),
            on_notified=self._on_notified,
            mirror=self._mirror,
            on_open=self._on_open,
        )
        url_elicitations = UrlElicitations(callbacks=callbacks, timeout=config.visit_timeout, visited=visited)
        self._requester = Requester(
            service=self._service, connector=self._connector, cache=cache, url_elicitations=url_elicitations
        )
        self._listeners = Listeners(service=self._service, connector=self._connector)
        self._tools = tools.KnownTools()
        self._manager: AbstractAsyncContextManager[Client] | None = None

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            from mcptrio._hints import missing_attribute

            return missing_attribute("client", self, name)

        def __enter__(self):
            raise TypeError(
                "write `async with` in place of `with`; a program without an event loop uses mcptrio.blocking.connect"
            )

        def __exit__(self, *_):
            """Let `with` get as far as `__enter__`."""

    # -- life cycle

    async def __aenter__(self) -> Client:
        if self._manager is not None:
            raise LocalProtocolError("a client is opened once; make another one")
        if not trio.lowlevel.in_trio_task():
            raise LocalProtocolError(
                "mcptrio.connect needs Trio: start the program with trio.run(main); in an asyncio program use "
                "mcptrio.aio.connect, and without an event loop mcptrio.blocking.connect"
            )
        self._manager = self._open()
        return await self._manager.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._manager is not None
        return await self._manager.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Client]:
        async with open_unwrapped_nursery() as nursery:
            await nursery.start(self._connector.live)
            try:
                await self._connector.connected()
                yield self
            finally:
                self._connector.close_nowait()

    async def aclose(self) -> None:
        """Close the client, from any task: pending requests fail with `ConnectionLost`."""
        self._connector.close_nowait()
        if self._manager is not None:
            await self._connector.wait_closed()

    # -- the server

    @property
    def server_info(self) -> Implementation | None:
        """Name and version of the server, as it reports them."""
        return self._said.server_info

    @property
    def capabilities(self) -> ServerCapabilities:
        return self._said.capabilities

    @property
    def protocol_version(self) -> str:
        """The protocol version of the connection."""
        return self._said.era.date

    @property
    def instructions(self) -> str | None:
        """The server's instructions for its use."""
        return self._said.instructions

    # -- listening

    def listen(
        self, *, tools: bool = False, prompts: bool = False, resource_list: bool = False, resources: Iterable[str] = ()
    ) -> AbstractAsyncContextManager[Changes]:
        """Subscribe to changes: `async with client.listen(tools=True) as changes: async for change in changes`.

        Args:
            tools: Changes of the list of tools.
            prompts: Changes of the list of prompts.
            resource_list: Changes of the list of resources.
            resources: URIs of resources whose contents to watch.
        """
        kinds: dict[Kind, bool] = {"tools": tools, "prompts": prompts, "resources": resource_list}
        changes = Changes(frozenset(kind for kind, wanted in kinds.items() if wanted), frozenset(resources))
        return self._listeners.open(changes)

    @property
    def result_types(self) -> dict[str, OtherResult]:
        """Handlers for results of extensions, by `resultType`."""
        return self._requester.result_types

    # -- events of the connection

    def _on_notified(self, method: str, params: dict[str, Any]) -> None:
        self._requester.cache.on_notification(method, params)
        self._requester.url_elicitations.on_notification(method, params)
        self._listeners.on_notification(method, params)
        self._service.callbacks.notify(method, params)

    def _mirror(self, method: str, params: Mapping[str, Any]) -> Mapping[str, str]:
        return self._tools.headers(params.get("name"), params.get("arguments")) if method == "tools/call" else {}

    async def _on_open(self, connection: Connection, again: bool) -> None:
        """Repeat in a new session the settings that the previous one had."""
        if again:
            self._requester.cache.clear()
        if connection.era is None or not connection.era.stateful:
            return
        level = self._service.log_level
        if level is not None and connection.capabilities is not None and connection.capabilities.logging is not None:
            await connection.restore("logging/setLevel", {"level": level})
        await self._listeners.on_open(connection)


def connect(target: Target, **options: Unpack[ClientOptions]) -> Client:
    """Connect to a server: `async with connect("https://example.org/mcp") as client`.

    `target` is a URL (http, https, ws, wss), a command as a list of arguments, a host's configuration (`mcp.json`, or
    with several servers `mcp.json:NAME`), a `Server` object, or a `Transport` of your own. The options are those of
    `Client`.
    """
    return Client(target, **options)


def _what_is_wrong(settings: Mapping[str, Any], error: Exception) -> str:
    from inspect import signature

    from mcptrio._hints import hint

    known = {*signature(Client).parameters, *signature(ClientConfig).parameters} - {"settings"}
    for name in settings.keys() - known:
        found = hint("client option", name, known)
        return f"a client has no setting {name!r}" + (f"; {found}" if found is not None else "")
    return f"a setting of the client is wrong: {error}"


def _own_info() -> Implementation:
    package = sys.modules[__name__.partition(".")[0]]
    return Implementation(name=package.__name__, version=package.__version__)
