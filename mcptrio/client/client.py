"""The client: how it is declared, opened and closed, and what its parts hear of each other."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any

import trio

from mcptrio import telemetry
from mcptrio._eras.choose import Served
from mcptrio.client.asking import Asker
from mcptrio.client.cache import ResultCache
from mcptrio.client.config import ClientConfig, Reconnect
from mcptrio.client.connection import ClientService, Connection
from mcptrio.client.features import tools
from mcptrio.client.features.roots import RootLike
from mcptrio.client.features.rounds import OtherResult
from mcptrio.client.features.subscriptions import Changes, Kind
from mcptrio.client.features.visits import VisitedCallback, Visits
from mcptrio.client.healing import Keeper
from mcptrio.client.host import (
    ElicitCallback,
    Host,
    LogCallback,
    NotificationCallback,
    RootsCallback,
    SampleCallback,
)
from mcptrio.client.listening import Listening
from mcptrio.client.methods import custom
from mcptrio.client.plain import open_plain_nursery
from mcptrio.client.requests import Requests
from mcptrio.client.signing import Unhurried
from mcptrio.client.targets import HowToReach, Target, carrier_for
from mcptrio.errors import DeclarationError, LocalProtocolError, McpError
from mcptrio.types import Implementation, LoggingLevel, ServerCapabilities

logger = logging.getLogger("mcptrio.client")


class Client(Requests):
    """A connection to one server, opened with `async with`.

    Every call raises one plain exception: `McpError` when the server refused, `RequestTimeout`, `LinkClosed` when the
    server is gone, `RemoteProtocolError` when it broke the protocol, `LocalProtocolError` when the call is impossible.
    """

    def __init__(
        self,
        target: Target,
        *,
        elicit: ElicitCallback | None = None,
        elicit_modes: tuple[str, ...] = ("form", "url"),
        visited: VisitedCallback | None = None,
        sample: SampleCallback | None = None,
        sample_tools: bool = False,
        roots: Iterable[RootLike] | RootsCallback | None = None,
        log: LogCallback | None = None,
        log_level: LoggingLevel | None = None,
        on_notification: NotificationCallback | None = None,
        routes: Mapping[str, Callable[..., Awaitable[Any]]] | None = None,
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
        auth: Any = None,
        headers: Mapping[str, str] | None = None,
        http_client: Any = None,
        http: Any = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        on_stderr: Callable[[str], None] | None = None,
        protocol: str | Iterable[str] | None = None,
        info: Implementation | None = None,
        timeout: float = 60.0,
        total_timeout: float = 900.0,
        reconnect: Reconnect | None = None,
        on_event: telemetry.Listener | None = None,
        **settings: Any,
    ) -> None:
        """Declare a client; nothing is opened yet.

        Args:
            target: A URL (http, https, ws, wss), a command as a list of arguments, or a `Server` object.
            elicit: Asks the person; it gets `ElicitParams` and returns the content of the form, or what they did.
            elicit_modes: Which ways of asking `elicit` knows.
            visited: Waits until the person is done at a page that a request needs first, after `elicit` accepted it;
                the server may say so earlier, which cancels it.
            sample: Asks the host's model; it gets `CreateMessageParams` and returns a result or a text.
            sample_tools: `sample` can give the model tools.
            roots: The places a server may work in, or a function that returns them.
            log: Gets the server's log messages.
            log_level: The least severe messages to ask for.
            on_notification: Gets every notification, with its method.
            routes: Handlers for requests of the server's own: `async def handler(ctx, params)`.
            extensions: Extensions that this client declares, with their settings.
            auth: Authorizes HTTP requests: see `mcptrio.transports.http_client.HttpAuth`.
            headers: Sent with every HTTP request, to the target's own origin only.
            http_client: An `httpx2.AsyncClient` to send with.
            http: An `HttpClientConfig`.
            env: Variables for a subprocess, beside the few it gets anyway.
            cwd: The directory a subprocess is started in.
            on_stderr: Gets each line of a subprocess's standard error.
            protocol: The protocol version to speak, or several; None finds out.
            info: Name and version of the host.
            timeout: A request without a sign of life for so many seconds is given up.
            total_timeout: A request is given up after so many seconds in any case.
            reconnect: When and how a lost server is looked for again.
            on_event: Gets telemetry events.
            settings: Further fields of `ClientConfig`.
        """
        try:
            config = ClientConfig(
                info=info or _own_info(),
                timeout=timeout,
                total_timeout=total_timeout,
                reconnect=reconnect or Reconnect(),
                log_level=log_level,
                **settings,
            )
        except (TypeError, ValueError) as error:
            raise DeclarationError(_what_is_wrong(settings, error)) from error
        host = Host(
            elicit=elicit,
            elicit_modes=elicit_modes,
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
            host=host,
            eras=Served.only([protocol] if isinstance(protocol, str) else protocol),
            telemetry=telemetry.Hub([on_event] if on_event is not None else []),
            routes=tuple(custom(method, handler) for method, handler in (routes or {}).items()),
            log_level=log_level or ("info" if log is not None else None),
        )
        how = HowToReach(
            headers=headers or {},
            auth=None if auth is None else Unhurried(auth, self._service.patience, config.callback_timeout),
            http_client=http_client,
            http=http,
            env=env or {},
            cwd=cwd,
            on_stderr=on_stderr,
        )
        self._keeper = Keeper(
            service=self._service,
            carrier=carrier_for(target, how),
            on_told=self._on_told,
            mirror=self._mirror,
            on_open=self._on_open,
        )
        cache = ResultCache(config.cache_entries)
        visits = Visits(host=host, timeout=config.visit_timeout, visited=visited)
        self._asker = Asker(service=self._service, keeper=self._keeper, cache=cache, visits=visits)
        self._listening = Listening(service=self._service, keeper=self._keeper)
        self._tools = tools.KnownTools()
        self._manager: AbstractAsyncContextManager[Client] | None = None

    # -- its life

    async def __aenter__(self) -> Client:
        if self._manager is not None:
            raise LocalProtocolError("a client is opened once; make another one")
        if not trio.lowlevel.in_trio_run():
            raise LocalProtocolError("mcptrio needs Trio: start the program with trio.run(main), not with asyncio")
        self._manager = self._open()
        return await self._manager.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._manager is not None
        return await self._manager.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Client]:
        async with open_plain_nursery() as nursery:
            await nursery.start(self._keeper.live)
            try:
                await self._keeper.connected()
                yield self
            finally:
                self._keeper.close_nowait()

    async def aclose(self) -> None:
        """Close the client, from any task: what waits for an answer gets `LinkClosed`."""
        self._keeper.close_nowait()
        if self._manager is not None:
            await self._keeper.wait_closed()

    # -- who the server is

    @property
    def server_info(self) -> Implementation | None:
        """Name and version of the server, as it says."""
        return self._said.server_info

    @property
    def capabilities(self) -> ServerCapabilities:
        return self._said.capabilities

    @property
    def protocol_version(self) -> str:
        """The protocol version that both sides speak."""
        return self._said.era.date

    @property
    def instructions(self) -> str | None:
        """What the server says about how it wants to be used."""
        return self._said.instructions

    # -- listening

    def listen(
        self, *, tools: bool = False, prompts: bool = False, resource_list: bool = False, resources: Iterable[str] = ()
    ) -> AbstractAsyncContextManager[Changes]:
        """Be told what changes: `async with client.listen(tools=True) as changes: async for change in changes`.

        Args:
            tools: The list of tools.
            prompts: The list of prompts.
            resource_list: The list of resources.
            resources: The contents of these, by their URIs.
        """
        kinds: dict[Kind, bool] = {"tools": tools, "prompts": prompts, "resources": resource_list}
        changes = Changes(frozenset(kind for kind, wanted in kinds.items() if wanted), frozenset(resources))
        return self._listening.open(changes)

    @property
    def result_types(self) -> dict[str, OtherResult]:
        """What to do with results of extensions, by their `resultType`."""
        return self._asker.result_types

    # -- what the connection tells

    def _on_told(self, method: str, params: dict[str, Any]) -> None:
        self._asker.cache.on_notification(method, params)
        self._asker.visits.on_notification(method, params)
        self._listening.on_notification(method, params)
        self._service.host.tell(method, params)

    def _mirror(self, method: str, params: Mapping[str, Any]) -> Mapping[str, str]:
        return self._tools.headers(params.get("name"), params.get("arguments")) if method == "tools/call" else {}

    async def _on_open(self, connection: Connection, again: bool) -> None:
        """Tell a new session what an older one knew."""
        if again:
            self._asker.cache.clear()
        if connection.era is None or not connection.era.stateful:
            return
        level = self._service.log_level
        if level is not None and connection.capabilities is not None and connection.capabilities.logging is not None:
            try:
                await connection.ask("logging/setLevel", {"level": level})
            except McpError as error:
                logger.warning("the server does not take the log level: %s", error)
        await self._listening.on_open(connection)


def connect(target: Target, **options: Any) -> Client:
    """Connect to a server: `async with connect("https://example.org/mcp") as client`.

    `target` is a URL (http, https, ws, wss), a command as a list of arguments, or a `Server` object. The options are
    those of `Client`.
    """
    return Client(target, **options)


def _what_is_wrong(settings: Mapping[str, Any], error: Exception) -> str:
    from difflib import get_close_matches
    from inspect import signature

    known = {*signature(Client).parameters, *signature(ClientConfig).parameters} - {"settings"}
    for name in settings.keys() - known:
        near = get_close_matches(name, known, n=1)
        return f"a client has no setting {name!r}" + (f"; did you mean {near[0]}?" if near else "")
    return f"a setting of the client is wrong: {error}"


def _own_info() -> Implementation:
    package = sys.modules[__name__.partition(".")[0]]
    return Implementation(name=package.__name__, version=package.__version__)
