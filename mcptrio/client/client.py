"""The client: everything that can be asked of a server, whatever its revision and wherever it is."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, TypeVar, Unpack, overload

from mcptrio import telemetry
from mcptrio._eras.choose import Served
from mcptrio._wire.converter import unstructure
from mcptrio.client.asking import Asker, How, read
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
from mcptrio.client.opening import Introduction
from mcptrio.client.pages import Pages
from mcptrio.client.plain import open_plain_nursery
from mcptrio.client.signing import Unhurried
from mcptrio.client.targets import HowToReach, Target, carrier_for
from mcptrio.errors import (
    HEADER_MISMATCH,
    DeclarationError,
    LocalProtocolError,
    McpError,
)
from mcptrio.types import (
    CallToolResult,
    CompleteResult,
    Completion,
    CompletionReference,
    GetPromptResult,
    Implementation,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    LoggingLevel,
    ProgressParams,
    Prompt,
    PromptReference,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    ResourceTemplateReference,
    ServerCapabilities,
    Tool,
)

logger = logging.getLogger("mcptrio.client")

T = TypeVar("T")
ProgressCallback = Callable[[ProgressParams], Awaitable[None] | None]
Answers = Mapping[str, Any]


class Client:
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
            raise DeclarationError(f"a setting of the client is wrong: {error}") from error
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

    @property
    def transport(self) -> str:
        """How the server is reached: `http`, `stdio`, `memory`, `websocket`, `sse`."""
        return self._keeper.carrier.name

    @property
    def _said(self) -> Introduction:
        if self._keeper.introduction is None:
            raise LocalProtocolError("the client is not open: use `async with`")
        return self._keeper.introduction

    # -- tools

    def iter_tools(self, *, cached: bool = True) -> Pages[Tool]:
        """The server's tools, page by page."""

        async def fetch(params: dict[str, Any]) -> tuple[tuple[Tool, ...], str | None]:
            page = await self._asker.get("tools/list", params, ListToolsResult, {}, cached=cached)
            mirrors = self.transport == "http" and not self._said.era.stateful
            return self._tools.learn(page.tools, over_http=mirrors), page.next_cursor

        return self._pages("tools/list", fetch)

    async def list_tools(self, *, cached: bool = True) -> tuple[Tool, ...]:
        """All tools of the server."""
        return await self.iter_tools(cached=cached).all()

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
        """Call a tool.

        Args:
            name: Which one.
            arguments: What with.
            into: Turn the result into this type; a failed tool raises `ToolError` then.
            how: See `How`: `timeout`, `on_progress` and so on.

        Raises:
            McpError: the server refused the call.
            UrlElicitationRequired: it did because a person must visit a page first, and nobody did.
            InputRequired: the server asks back more often than `max_rounds` allows.
        """
        return self._tool_result(name, await self._call(name, arguments, how), into)

    async def _call(self, name: str, arguments: Mapping[str, Any] | None, how: How) -> dict[str, Any]:
        params: dict[str, Any] = {"name": name}
        if arguments is not None:
            params["arguments"] = dict(arguments)
        repeat = self._tools.may_repeat(name)
        try:
            return await self._asker.ask("tools/call", params, how, repeat=repeat)
        except McpError as error:
            if error.code != HEADER_MISMATCH or self.transport != "http":
                raise
            # 2026-07-28 basic/transports/streamable-http: look at the tool's schema again, then retry
            await self.list_tools(cached=False)
            if not self._tools.has_marks(name):
                raise
            return await self._asker.ask("tools/call", params, how, repeat=repeat)

    def _tool_result(self, name: str, raw: dict[str, Any], into: Any) -> Any:
        result = read(raw, CallToolResult, "tools/call")
        if self._service.config.check_results:
            self._tools.check(name, result, any_value=self._said.era.features.any_structured_content)
        return result if into is None else tools.convert(result, into, name)

    # -- resources

    def iter_resources(self, *, cached: bool = True) -> Pages[Resource]:
        async def fetch(params: dict[str, Any]) -> tuple[tuple[Resource, ...], str | None]:
            page = await self._asker.get("resources/list", params, ListResourcesResult, {}, cached=cached)
            return page.resources, page.next_cursor

        return self._pages("resources/list", fetch)

    async def list_resources(self, *, cached: bool = True) -> tuple[Resource, ...]:
        """All resources that the server lists."""
        return await self.iter_resources(cached=cached).all()

    def iter_resource_templates(self, *, cached: bool = True) -> Pages[ResourceTemplate]:
        async def fetch(params: dict[str, Any]) -> tuple[tuple[ResourceTemplate, ...], str | None]:
            page = await self._asker.get(
                "resources/templates/list", params, ListResourceTemplatesResult, {}, cached=cached
            )
            return page.resource_templates, page.next_cursor

        return self._pages("resources/templates/list", fetch)

    async def list_resource_templates(self, *, cached: bool = True) -> tuple[ResourceTemplate, ...]:
        """All resource templates of the server."""
        return await self.iter_resource_templates(cached=cached).all()

    async def read_resource(self, uri: str, *, cached: bool = True, **how: Unpack[How]) -> ReadResourceResult:
        """Read a resource."""
        return await self._asker.get("resources/read", {"uri": uri}, ReadResourceResult, how, cached=cached)

    async def subscribe(self, uri: str) -> None:
        """Be told of changes of a resource, by `on_notification`; for the stateful dates. `listen` does it for all."""
        await self._asker.ask("resources/subscribe", {"uri": uri}, {})
        self._listening.subscribed[uri] += 1

    async def unsubscribe(self, uri: str) -> None:
        await self._asker.ask("resources/unsubscribe", {"uri": uri}, {})
        del self._listening.subscribed[uri]

    # -- prompts and completion

    def iter_prompts(self, *, cached: bool = True) -> Pages[Prompt]:
        async def fetch(params: dict[str, Any]) -> tuple[tuple[Prompt, ...], str | None]:
            page = await self._asker.get("prompts/list", params, ListPromptsResult, {}, cached=cached)
            return page.prompts, page.next_cursor

        return self._pages("prompts/list", fetch)

    async def list_prompts(self, *, cached: bool = True) -> tuple[Prompt, ...]:
        """All prompts of the server."""
        return await self.iter_prompts(cached=cached).all()

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **how: Unpack[How]
    ) -> GetPromptResult:
        """Fill in a prompt."""
        params: dict[str, Any] = {"name": name}
        if arguments is not None:
            params["arguments"] = dict(arguments)
        return await self._asker.get("prompts/get", params, GetPromptResult, how)

    async def complete(
        self,
        ref: CompletionReference | str,
        argument: str,
        value: str = "",
        *,
        context: Mapping[str, str] | None = None,
        **how: Unpack[How],
    ) -> Completion:
        """Suggestions for an argument of a prompt (`ref` is its name) or of a resource template (its URI)."""
        if isinstance(ref, str):
            ref = ResourceTemplateReference(uri=ref) if "://" in ref else PromptReference(name=ref)
        params: dict[str, Any] = {"ref": unstructure(ref), "argument": {"name": argument, "value": value}}
        if context:
            params["context"] = {"arguments": dict(context)}
        result = await self._asker.get("completion/complete", params, CompleteResult, how)
        return result.completion

    # -- the rest

    async def ping(self, *, timeout: float | None = None) -> None:
        """Ask whether the server is there."""
        method = "ping" if self._said.era.stateful else "server/discover"
        await self._asker.ask(method, {}, {"timeout": timeout})

    async def set_log_level(self, level: LoggingLevel) -> None:
        """Ask for log messages of this level and above, from now on."""
        if self._said.era.stateful:
            await self._asker.ask("logging/setLevel", {"level": level}, {})
        self._service.log_level = level

    async def set_roots(self, roots: Iterable[RootLike] | RootsCallback) -> None:
        """Let the server work in other places; it is told, where its date has a way to."""
        if self._service.host.roots is None:
            raise LocalProtocolError("this client was opened without roots and has not declared any")
        self._service.host.roots = roots if callable(roots) else tuple(roots)
        if self._said.era.stateful:
            await self.notify("notifications/roots/list_changed")

    async def request(self, method: str, params: Mapping[str, Any] | None = None, **how: Unpack[How]) -> dict[str, Any]:
        """Send any request and return its result as it came. Rounds are driven as for any other call."""
        return await self._asker.ask(method, dict(params or {}), how)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send any notification."""
        await (await self._keeper.connected()).notify(method, dict(params or {}))

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
        level = self._service.config.log_level if not again else self._service.log_level
        if level is not None and connection.capabilities is not None and connection.capabilities.logging is not None:
            await connection.ask("logging/setLevel", {"level": level})
        await self._listening.on_open(connection)

    def _pages(self, method: str, fetch: Any) -> Pages[Any]:
        config = self._service.config
        return Pages(method=method, fetch=fetch, max_pages=config.max_pages, max_items=config.max_items)


def connect(target: Target, **options: Any) -> Client:
    """Connect to a server: `async with connect("https://example.org/mcp") as client`.

    `target` is a URL (http, https, ws, wss), a command as a list of arguments, or a `Server` object. The options are
    those of `Client`.
    """
    return Client(target, **options)


def _own_info() -> Implementation:
    package = sys.modules[__name__.partition(".")[0]]
    return Implementation(name=package.__name__, version=package.__version__)
