"""The server: declares tools, resources and prompts, and serves them.

Longer than 400 lines because it is the public class of a server: its methods are short, and users look for them here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

import trio

from mcptrio import telemetry, types
from mcptrio._actors.extension import Extension
from mcptrio._actors.limits import Limits
from mcptrio._actors.router import Middleware, Route
from mcptrio._wire.jsonrpc import DEFAULT_LIMITS, JsonLimits
from mcptrio._wire.objects.converter import structure
from mcptrio.auth.request_state import KeyRing
from mcptrio.errors import DeclarationError
from mcptrio.server.app import App, own_version
from mcptrio.server.checks import check_server, require_async
from mcptrio.server.features.completion import Completable, F, P, R
from mcptrio.server.features.functions import caller_names
from mcptrio.server.features.lifecycle import SessionT, entered_with
from mcptrio.server.features.prompts import PromptOptions
from mcptrio.server.features.resources import ResourceOptions
from mcptrio.server.features.result_fields import Cache
from mcptrio.server.features.scopes import UNSET
from mcptrio.server.features.tool_declaration import ToolDefaults, ToolOptions, tool_options
from mcptrio.server.registry import PageSize

if TYPE_CHECKING:
    from mcptrio.cluster.config import ClusterConfig
    from mcptrio.server.options import Auth, RunOptions
    from mcptrio.stores import Store
    from mcptrio.transports.http_server.config import HttpConfig
    from mcptrio.transports.http_server.hypercorn.hosted import HostedApp
    from mcptrio.transports.http_server.listener.sockets import BoundAddress
    from mcptrio.transports.http_server.options import HttpOptions
    from mcptrio.transports.link import Link
    from mcptrio.transports.memory.server import MemoryEnd
    from mcptrio.types import Icon, Implementation, ServerCapabilities, Tool

HandlerT = TypeVar("HandlerT", bound=Callable[..., Awaitable[Any]])
MiddlewareT = TypeVar("MiddlewareT", bound=Middleware)
ListenerT = TypeVar("ListenerT", bound=telemetry.Listener)


class Server:
    """An MCP server.

    Declare what it can do with the decorators, then `run()` it, or serve it inside a Trio program with
    `serve_stdio()`, `serve_http()`, `serve(link)` or `asgi()`. The object holds declarations only; the state of a
    client lives in that client's session.
    """

    def __init__(
        self,
        name: str,
        version: str | None = None,
        *,
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: Sequence[Icon] | None = None,
        lifespan: Callable[[Server], AsyncIterator[Any] | AbstractAsyncContextManager[Any]] | None = None,
        protocols: Iterable[str] | None = None,
        page_size: PageSize = None,
        cache: Cache | Mapping[str, Cache] | None = None,
        limits: Limits | None = None,
        state_keys: KeyRing | Iterable[str] | None = None,
        state_audience: str | None = None,
        experimental: Mapping[str, Mapping[str, Any]] | None = None,
        threads: int = 16,
        max_reply: int = 16 * 1024 * 1024,
        **tool_defaults: Unpack[ToolDefaults],
    ) -> None:
        """
        Args:
            name: The server's name, for programs.
            version: The version of the server itself; that of mcptrio if it is not given, since MCP requires one.
            title: The display name, for users.
            description: The purpose of the server.
            instructions: Instructions for the model; hosts may add them to its prompt.
            website_url: The server's website.
            icons: Icons that hosts may show.
            lifespan: A function around the whole process, which gets the server: an async generator function that
                yields once, or one with `@asynccontextmanager`. The value it yields is `ctx.lifespan`.
            protocols: Serve only these protocol versions; default: all supported ones.
            page_size: Entries per page of a list, for all lists or by name (`{"resources": 50}`).
            cache: Cache lifetime of lists, for all lists or by name (`{"tools": Cache(ttl=60)}`).
            limits: The limits of sessions and calls.
            state_keys: Keys that encrypt the state of a call while it travels through the client (from 2026-07-28): 32
                bytes each, in base64 or hexadecimal. The first one encrypts, all of them decrypt, so that keys can be
                rotated. Processes that share them can continue each other's calls. By default each process has a
                random key.
            state_audience: The audience of these states; servers that share keys but not states need different ones.
                Default: the server's name.
            experimental: Experimental capabilities to declare.
            threads: Maximum plain (not async) functions that run at the same time.
            max_reply: Maximum size of a response in bytes.
            tool_defaults: Tool options for all tools that do not set them: those of `ToolDefaults`.
        """
        texts = {"version": version, "title": title, "description": description, "instructions": instructions}
        texts |= {"website_url": website_url, "state_audience": state_audience}
        check_server(name, threads, max_reply, limits, icons, experimental, tool_defaults, **texts)
        self._app = App(
            self,
            types.Implementation(
                name=name,
                version=own_version() if version is None else version,
                title=title,
                description=description,
                website_url=website_url,
                icons=icons,
            ),
            instructions=instructions,
            lifespan=None if lifespan is None else entered_with("lifespan", lifespan),
            protocols=protocols,
            page_size=page_size,
            cache=cache,
            limits=limits or Limits(),
            state_keys=state_keys,
            state_audience=state_audience if state_audience is not None else name,
            experimental=experimental,
            threads=threads,
            max_reply=max_reply,
            tool_defaults=tool_defaults,
        )

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            from mcptrio._hints import missing_attribute

            return missing_attribute("server", self, name)

    def __repr__(self) -> str:
        return f"<mcptrio server {self.info.name!r} {self.info.version}>"

    @property
    def info(self) -> Implementation:
        """The name, version and further texts that clients see."""
        return self._app.info

    # -- declaring

    # mypy cannot match an implementation with an optional positional-only parameter and `**`, here and in `prompt`
    @overload
    def tool(self, fn: F, /) -> F: ...
    @overload
    def tool(self, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...

    def tool(self, fn: Any = None, /, **options: Unpack[ToolOptions]) -> Any:  # type: ignore[misc]
        """Declare a tool: a function that the client's model may call.

        Its parameters become the input schema, its docstring the description, its return annotation the output schema.
        `ToolOptions` lists the options.
        """
        names = caller_names()

        def decorate(fn: Any) -> Any:
            self._app.add_tool(fn, names, options)
            return fn

        return decorate if fn is None else decorate(fn)

    @overload
    def add_tool(self, fn: Callable[..., Any], /, **options: Unpack[ToolOptions]) -> None: ...
    @overload
    def add_tool(self, tool: Tool, fn: Callable[..., Any], /, **options: Unpack[ToolOptions]) -> None: ...

    def add_tool(self, tool: Any, fn: Any = None, /, **options: Any) -> None:
        """Declare a tool without a decorator, also while serving; clients are notified.

        Pass a function, or a `types.Tool` and a function: then the tool is listed as it is given, and the function
        takes the arguments as one object, checked against `input_schema`.
        """
        names = caller_names()
        if fn is None:
            self._app.add_tool(tool, names, options)
            return
        if not isinstance(tool, types.Tool):
            raise DeclarationError("add_tool takes a function, or a types.Tool and a function")
        if twice := sorted(options.keys() & tool_options(tool).keys()):
            raise DeclarationError(f"tool {tool.name!r}: {', '.join(twice)} is given twice; set it in the Tool only")
        self._app.add_tool(fn, names, {**tool_options(tool), **options}, tool)

    def remove_tool(self, name: str) -> None:
        """Remove a tool, also while serving; clients are notified."""
        self._app.remove_tool(name)

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[Callable[P, R]], Completable[P, R]]:
        """Declare a resource, or with `{variables}` in its URI (RFC 6570) a template; the variables are parameters."""
        if not isinstance(uri, str):
            raise DeclarationError('a resource needs its URI: write @server.resource("notes://today")')
        names = caller_names()

        return lambda fn: self._app.add_resource(uri, fn, names, options)

    def add_resource(self, uri: str, fn: Callable[P, R], **options: Unpack[ResourceOptions]) -> Completable[P, R]:
        """Declare a resource without a decorator, also while serving; clients are notified."""
        return self._app.add_resource(uri, fn, caller_names(), options)

    def remove_resource(self, uri: str) -> None:
        """Remove a resource or template, also while serving; clients are notified and subscriptions end."""
        self._app.resources.remove(uri)

    @overload
    def prompt(self, fn: Callable[P, R], /) -> Completable[P, R]: ...
    @overload
    def prompt(self, **options: Unpack[PromptOptions]) -> Callable[[Callable[P, R]], Completable[P, R]]: ...

    def prompt(self, fn: Any = None, /, **options: Unpack[PromptOptions]) -> Any:  # type: ignore[misc]
        """Declare a prompt: messages from a function whose parameters the user fills in."""
        names = caller_names()

        def decorate(fn: Any) -> Any:
            return self._app.add_prompt(fn, names, options)

        return decorate if fn is None else decorate(fn)

    def add_prompt(self, fn: Callable[P, R], **options: Unpack[PromptOptions]) -> Completable[P, R]:
        """Declare a prompt without a decorator, also while serving; clients are notified."""
        return self._app.add_prompt(fn, caller_names(), options)

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt, also while serving; clients are notified."""
        self._app.prompts.registry.remove(name)

    @overload
    def session(self, fn: SessionT) -> SessionT: ...
    @overload
    def session(self, *, movable: bool = False) -> Callable[[SessionT], SessionT]: ...

    def session(self, fn: Any = None, *, movable: bool = False) -> Any:
        """Declare the session function: an async generator function around each session that yields once.

        Its value is `ctx.state`. Before it may raise `SessionRefused` or narrow `session.capabilities`; afterwards
        `session.ended` is the reason for the end. It pins sessions to this process unless `movable` (docs/howto).
        """
        declare = self._app.add_session_function
        return partial(declare, movable=movable) if fn is None else declare(fn, movable=movable)

    def on_roots_changed(self, fn: HandlerT) -> HandlerT:
        """Declare the handler for the notification that a client's roots have changed: `async def changed(ctx)`."""
        if self._app.roots_changed is not None:
            raise DeclarationError("there is a function for changed roots already; a server has one")
        require_async(fn, "the function for changed roots must be async: async def roots_changed(ctx)")
        self._app.roots_changed = fn
        return fn

    def on_broadcast(self, topic: str) -> Callable[[F], F]:
        """Declare a function, plain or async, that each worker calls with the newest value of a `broadcast`."""

        def decorate(fn: F) -> F:
            self._app.broadcasts.add(topic, fn)
            return fn

        return decorate

    @overload
    def route(self, method: str, handler: HandlerT, *, params: type | None = None) -> HandlerT: ...
    @overload
    def route(self, method: str, *, params: type | None = None) -> Callable[[HandlerT], HandlerT]: ...

    def route(self, method: str, handler: Any = None, *, params: type | None = None) -> Any:
        """Add a handler to the routing table: `async def handler(ctx, params)`.

        The method is a custom one, or one of the protocol, whose built-in handler it replaces. `params` is the class
        for the parameters; without it the handler gets the JSON object as received. Usable as a decorator.
        """

        def decorate(fn: Any) -> Any:
            require_async(fn, f"the handler of {method!r} must be async: async def handler(ctx, params)")
            self._app.router.add(Route(method, params, fn))
            return fn

        return decorate if handler is None else decorate(handler)

    def use(self, middleware: MiddlewareT) -> MiddlewareT:
        """Add middleware around every request: `async def middleware(ctx, request, call_next)`; it awaits
        `call_next`."""
        self._app.router.use(middleware)
        return middleware

    def add_extension(self, extension: Extension) -> None:
        """Add a protocol extension, such as `Tasks()`, `Skills.from_folder(...)` or your own.

        Those with a tool option (`task=`, `ui=`) are added on first use; add one yourself to configure it.
        """
        self._app.add_extension(extension)

    def include(self, other: Server, *, prefix: str = "") -> None:
        """Include the tools, prompts and resources of another server; names get the prefix, URIs stay."""
        from mcptrio.server.composition import include

        include(self._app, other._app, prefix)

    def on_event(self, listener: ListenerT) -> ListenerT:
        """Add a telemetry listener: `listener(event)` gets the events of `mcptrio.telemetry`."""
        self._app.telemetry.add(listener)
        return listener

    # -- changes

    def capabilities(self) -> ServerCapabilities:
        """Return the current capabilities; an empty list without a route of its own is not declared."""
        return structure(self._app.capabilities(), types.ServerCapabilities, at="capabilities")

    def notify_tools_changed(self) -> None:
        """Notify clients that the list of tools has changed. Callable from any thread, like the next three.

        `add_tool` and `remove_tool` do it themselves; use this for changes that mcptrio cannot see, such as another
        result of a `visible=` function or of a custom list handler.
        """
        self._app.list_changed("tools")

    def notify_prompts_changed(self) -> None:
        """Notify clients that the list of prompts has changed."""
        self._app.list_changed("prompts")

    def notify_resources_changed(self) -> None:
        """Notify clients that the list of resources or of resource templates has changed."""
        self._app.list_changed("resources")

    def notify_resource_updated(self, uri: str, meta: Mapping[str, Any] | None = None) -> None:
        """Notify the subscribers of a resource that it has changed; `meta` is the `_meta` they receive, as JSON."""
        self._app.publisher.resource_updated(uri, meta)

    def broadcast(self, topic: str, value: Any = None) -> None:
        """Send a JSON value to every worker of a cluster, this one included; from any thread. See `on_broadcast`."""
        self._app.publisher.broadcast(topic, value)

    # -- serving

    async def serve_stdio(
        self,
        *,
        store: Store | str | None = None,
        stop: trio.Event | None = None,
        drain_timeout: float = 25.0,
        json_limits: JsonLimits = DEFAULT_LIMITS,
    ) -> None:
        """Serve one client over standard input and output until it closes them.

        When `stop` is set, running calls have `drain_timeout` seconds to finish, and the method returns.
        `json_limits` bounds a message of the client.
        """
        from mcptrio.server.serve import serve_stdio

        await serve_stdio(self._app, store=store, stop=stop, drain_timeout=drain_timeout, json_limits=json_limits)

    async def serve(
        self,
        link: Link,
        *,
        store: Store | str | None = None,
        stop: trio.Event | None = None,
        drain_timeout: float = 25.0,
        json_limits: JsonLimits = DEFAULT_LIMITS,
    ) -> None:
        """Serve one client over a custom link until it disconnects.

        Authenticate the client before: as over stdio, there is no principal, and scopes are not checked. Each call runs
        the lifespan function. `stop` and `json_limits` are those of `serve_stdio`. The link is not closed.
        """
        from mcptrio.server.serve import serve_link

        await serve_link(self._app, link, store=store, stop=stop, drain_timeout=drain_timeout, json_limits=json_limits)

    async def serve_http(
        self,
        config: HttpConfig | None = None,
        *,
        auth: Auth | None = UNSET,
        store: Store | str | None = None,
        cluster: ClusterConfig | None = None,
        stop: trio.Event | None = None,
        task_status: trio.TaskStatus[list[BoundAddress]] = trio.TASK_STATUS_IGNORED,
        **settings: Unpack[HttpOptions],
    ) -> None:
        """Serve Streamable HTTP until cancelled; `settings` are fields of `HttpConfig`.

        With `await nursery.start(server.serve_http)` the addresses are returned once the port is bound. When `stop` is
        set, nothing new is accepted, running calls have `drain_timeout` seconds to finish, and the method returns.
        Cancelling ends everything at once. `auth` authenticates callers: a `BearerAuth`, `StaticTokens` or
        `ClientCertificates` of `mcptrio.auth.server`, or your own function. None turns authentication and scopes off.
        `store` is a store or its URL, as in `store="sqlite:///sessions.db"`. With one that several processes share,
        they serve one endpoint together; `cluster` has the settings.
        """
        from mcptrio.server.serve import http_config, serve_http

        http = http_config(config, settings)
        await serve_http(self._app, http, auth=auth, store=store, cluster=cluster, stop=stop, task_status=task_status)

    def asgi(
        self,
        config: HttpConfig | None = None,
        *,
        auth: Auth | None = UNSET,
        store: Store | str | None = None,
        **settings: Unpack[HttpOptions],
    ) -> HostedApp:
        """Return an ASGI application for Hypercorn's trio worker, or to mount in another application."""
        from mcptrio.server.serve import asgi, http_config

        return asgi(self._app, http_config(config, settings), auth=auth, store=store)

    def run(self, transport: Literal["stdio", "http", "sse"] = "stdio", **settings: Unpack[RunOptions]) -> None:
        """Serve until the client closes its connection or a signal arrives, as the last line of a server file.

        Logging, signals and the error message for an unusable address are those of `mcptrio run`.
        """
        from mcptrio.server.program import run

        run(self._app, transport, **settings)

    @asynccontextmanager
    async def open_memory_link(self) -> AsyncIterator[MemoryEnd]:
        """Open an in-process link to this server, for `connect(server)` and for tests."""
        from mcptrio.transports.memory.server import open_memory_link

        async with self._app.make_runtime().open() as runtime, open_memory_link(runtime) as end:
            yield end
