"""The server: declares tools, resources and prompts, and serves them.

Longer than 400 lines because it is the public face of a server: one documented method for each declaration and for each
way to serve.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import trio
from msgspec.structs import replace

from mcptrio import telemetry, types
from mcptrio._actors.call import Call
from mcptrio._actors.extension import Extension, Extensions, shipped
from mcptrio._actors.limits import Limits
from mcptrio._actors.parking import Parking
from mcptrio._actors.places import Threads
from mcptrio._actors.router import Middleware, Route, Router
from mcptrio._actors.runtime import Runtime
from mcptrio._actors.service import Actor
from mcptrio._actors.shares import Shares
from mcptrio._actors.supervisor import Supervisor
from mcptrio._eras.choose import Served
from mcptrio._peer.effects import Start
from mcptrio._peer.era import Era, Role
from mcptrio._wire.objects.converter import structure, unstructure
from mcptrio.auth.request_state import KeyRing
from mcptrio.errors import DeclarationError
from mcptrio.server import methods
from mcptrio.server.checks import check_server
from mcptrio.server.context import Context, SessionHandle
from mcptrio.server.features.completion import Completable, Completions
from mcptrio.server.features.functions import caller_names
from mcptrio.server.features.lifecycle import Lifecycle
from mcptrio.server.features.listen import ListenRequests
from mcptrio.server.features.options import unknown_option
from mcptrio.server.features.prompts import PromptEntry, PromptOptions, Prompts, declare_prompt
from mcptrio.server.features.resources import ResourceEntry, ResourceOptions, Resources, declare_resource
from mcptrio.server.features.result_fields import Cache, ResultFields, caches_of
from mcptrio.server.features.scopes import UNSET
from mcptrio.server.features.subscriptions import Publisher, Subscriptions
from mcptrio.server.features.tool_declaration import (
    OWN_OPTIONS,
    ToolEntry,
    ToolOptions,
    declare_tool,
    tool_options,
)
from mcptrio.server.features.tools import Tools
from mcptrio.server.registry import PageSize, page_size_of

if TYPE_CHECKING:
    from mcptrio.server.serve import Auth
    from mcptrio.stores import Bus, Store
    from mcptrio.transports.http_server.config import HttpConfig
    from mcptrio.transports.link import Link
    from mcptrio.types import (
        Icon,
        Params,
        ServerCapabilities,
        Tool,
    )

F = TypeVar("F", bound=Callable[..., Any])


class Server:
    """An MCP server.

    Declare what it can do with the decorators, then `run()` it, or serve it inside a Trio program with
    `serve_stdio()`, `serve_http()`, `serve(link)` or `asgi()`. The object holds declarations only; the state of a
    client lives in that client's session.
    """

    role = Role.SERVER

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
        lifespan: Callable[[Server], AbstractAsyncContextManager[Any]] | None = None,
        protocols: Iterable[str] | None = None,
        page_size: PageSize = None,
        cache: Cache | Mapping[str, Cache] | None = None,
        limits: Limits | None = None,
        state_keys: KeyRing | Iterable[str] | None = None,
        state_audience: str | None = None,
        experimental: Mapping[str, Mapping[str, Any]] | None = None,
        threads: int = 16,
        max_reply: int = 16 * 1024 * 1024,
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
            lifespan: An async context manager function around the whole process; its value is `ctx.lifespan`.
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
        """
        self.info = types.Implementation(
            name=name,
            version=_own_version() if version is None else version,
            title=title,
            description=description,
            website_url=website_url,
            icons=icons,
        )
        self.eras = Served.only(protocols)
        self.limits = limits or Limits()
        check_server(name, version, threads, max_reply)
        self.state_keys = _keys(state_keys)
        self.state_audience = state_audience if state_audience is not None else name
        self.telemetry = telemetry.Hub()
        self.router = Router(max_reply=max_reply)
        self.experimental = experimental
        self._lifespan = lifespan
        self._roots_changed: Callable[[Context], Any] | None = None
        self._offers: frozenset[str] | None = None
        self.publisher = Publisher()
        self._threads = threads
        self.result_fields = ResultFields(unstructure(self.info), caches_of(cache))
        size_of = partial(page_size_of, page_size)
        self.tools = Tools(self.result_fields, size_of("tools"))
        self.prompts = Prompts(self.result_fields, size_of("prompts"))
        self.resources = Resources(self.result_fields, size_of("resources"), size_of("templates"))
        self.extensions = Extensions()
        self.listen_requests = ListenRequests(self.resources, self.extensions)
        self.subscriptions = Subscriptions(self.resources)
        self.completions = Completions(self.prompts, self.resources)
        self.lifecycle = Lifecycle(self.info, instructions, self._declared, self.result_fields, lambda: self.eras.dates)
        self.router.add_all(methods.methods(self))
        self.tools.registry.on_change.append(lambda: self._list_changed("tools"))
        self.prompts.registry.on_change.append(lambda: self._list_changed("prompts"))
        self.resources.registry.on_change.append(lambda: self._list_changed("resources"))
        self.resources.templates.on_change.append(lambda: self._list_changed("resources"))

    def __repr__(self) -> str:
        return f"<mcptrio server {self.info.name!r} {self.info.version}>"

    # -- declaring

    @overload
    def tool(self, fn: F, /) -> F: ...
    @overload
    def tool(self, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...

    def tool(self, fn: Any = None, /, **options: Any) -> Any:  # type: ignore[misc]  # mypy cannot match Unpack
        """Declare a tool: a function that the client's model may call.

        Its parameters become the input schema, its docstring the description, its return annotation the output schema.
        `ToolOptions` lists the options.
        """
        names = caller_names(2)

        def decorate(fn: Any) -> Any:
            self._add_tool(fn, names, options)
            return fn

        return decorate if fn is None else decorate(fn)

    def _add_tool(self, fn: Any, names: Mapping[str, Any], options: Any, tool: Tool | None = None) -> None:
        extra = {name: value for name, value in options.items() if name not in OWN_OPTIONS and value is not None}
        entry = declare_tool(fn, names, **{name: value for name, value in options.items() if name in OWN_OPTIONS})
        if tool is not None:
            entry = replace(entry, wire=unstructure(tool))  # list the tool exactly as given
        self.tools.registry.check_free(entry.name)
        # Add an extension only after all checks, so that a refusal changes nothing.
        extensions = {option: self._extension_for(option) for option in extra}
        new = [extension for extension in extensions.values() if self.extensions.get(extension.identifier) is None]
        for extension in new:
            self._check_extension(extension)
        entry = replace(entry, extra=extra)
        for option, value in extra.items():
            entry = extensions[option].tool(entry, option, value)
        for option, value in extra.items():
            extensions[option].declared(self, entry, option, value)
        for extension in new:
            self.add_extension(extension)
        self.tools.registry.add(entry.name, entry)

    def _extension_for(self, option: str) -> Extension:
        """Return the extension that handles a tool option; those that mcptrio ships are added on first use."""
        found = self.extensions.for_option(option) or shipped(option)
        if found is None:
            known = {*ToolOptions.__annotations__, *(name for each in self.extensions for name in each.tool_options)}
            raise DeclarationError(unknown_option("tool", option, known))
        return found

    def _check_extension(self, extension: Extension) -> None:
        """Raise `DeclarationError` if an extension cannot be added."""
        self.extensions.check(extension)
        for route in extension.routes():
            self.router.check(route)

    def add_extension(self, extension: Extension) -> None:
        """Add a protocol extension, such as `Tasks()`, `Skills.from_folder(...)` or your own.

        Those with a tool option (`task=`, `ui=`) are added on first use; add one yourself to configure it.
        """
        self._check_extension(extension)
        self.extensions.add(extension)
        for route in extension.routes():
            self.router.add(route)
        self._offers = None
        extension.bind(self)

    @overload
    def add_tool(self, fn: Callable[..., Any], /, **options: Unpack[ToolOptions]) -> None: ...
    @overload
    def add_tool(self, tool: Tool, fn: Callable[..., Any], /, **options: Unpack[ToolOptions]) -> None: ...

    def add_tool(self, tool: Any, fn: Any = None, /, **options: Any) -> None:
        """Declare a tool without a decorator, also while serving; clients are notified.

        Pass a function, or a `types.Tool` and a function: then the tool is listed as it is given, and the function
        takes the arguments as one object, checked against `input_schema`.
        """
        names = caller_names(2)
        if fn is None:
            self._add_tool(tool, names, options)
            return
        if not isinstance(tool, types.Tool):
            raise DeclarationError("add_tool takes a function, or a types.Tool and a function")
        if twice := sorted(options.keys() & tool_options(tool).keys()):
            raise DeclarationError(f"tool {tool.name!r}: {', '.join(twice)} is given twice; set it in the Tool only")
        self._add_tool(fn, names, {**tool_options(tool), **options}, tool)

    def remove_tool(self, name: str) -> None:
        """Remove a tool, also while serving; clients are notified."""
        entry = self.tools.registry.get(name)
        self.tools.registry.remove(name)
        for option, value in () if entry is None else entry.extra.items():
            if (extension := self.extensions.for_option(option)) is not None:
                extension.removed(self, entry, option, value)

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[Callable[..., Any]], Completable]:
        """Declare a resource, or with `{variables}` in its URI (RFC 6570) a template; the variables are parameters."""
        if not isinstance(uri, str):
            raise DeclarationError('a resource needs its URI: write @server.resource("notes://today")')
        names = caller_names(2)

        return lambda fn: self._add_resource(uri, fn, names, options)

    def _add_resource(self, uri: str, fn: Callable[..., Any], names: Mapping[str, Any], options: Any) -> Completable:
        entry = declare_resource(uri, fn, names, **options)
        self.resources.add(uri, entry)
        return Completable(fn, entry)

    def add_resource(self, uri: str, fn: Callable[..., Any], **options: Unpack[ResourceOptions]) -> Completable:
        """Declare a resource without a decorator, also while serving; clients are notified."""
        return self._add_resource(uri, fn, caller_names(2), options)

    def remove_resource(self, uri: str) -> None:
        """Remove a resource or template, also while serving; clients are notified and subscriptions end."""
        self.resources.remove(uri)

    @overload
    def prompt(self, fn: Callable[..., Any], /) -> Completable: ...
    @overload
    def prompt(self, **options: Unpack[PromptOptions]) -> Callable[[Callable[..., Any]], Completable]: ...

    def prompt(self, fn: Any = None, /, **options: Any) -> Any:  # type: ignore[misc]  # mypy cannot match Unpack
        """Declare a prompt: messages from a function whose parameters the user fills in."""
        names = caller_names(2)

        def decorate(fn: Any) -> Completable:
            return self._add_prompt(fn, names, options)

        return decorate if fn is None else decorate(fn)

    def _add_prompt(self, fn: Any, names: Mapping[str, Any], options: Any) -> Completable:
        entry = declare_prompt(fn, names, **options)
        self.prompts.registry.add(entry.prompt.name, entry)
        return Completable(fn, entry)

    def add_prompt(self, fn: Callable[..., Any], **options: Unpack[PromptOptions]) -> Completable:
        """Declare a prompt without a decorator, also while serving; clients are notified."""
        return self._add_prompt(fn, caller_names(2), options)

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt, also while serving; clients are notified."""
        self.prompts.registry.remove(name)

    def session(self, fn: Callable[[SessionHandle], Any]) -> Callable[[SessionHandle], Any]:
        """Declare the session function: an async generator function around each session that yields once.

        The value that it yields is `ctx.state` in that session. Before that it may raise `SessionRefused` or set
        `session.capabilities` to a subset; afterwards `session.ended` is the reason for the session's end.
        """
        if self.lifecycle.session_function is not None:
            raise DeclarationError("there is a session function already; a server has one")
        if inspect.isasyncgenfunction(fn):
            self.lifecycle.session_function = asynccontextmanager(fn)
        elif inspect.iscoroutinefunction(fn) or inspect.isgeneratorfunction(fn):
            raise DeclarationError(
                "a session function is async and yields once: async def session(s): ...; yield state"
            )
        else:
            self.lifecycle.session_function = fn
        return fn

    def on_roots_changed(self, fn: Callable[[Context], Any]) -> Callable[[Context], Any]:
        """Declare the handler for the notification that a client's roots have changed."""
        if self._roots_changed is not None:
            raise DeclarationError("there is a function for changed roots already; a server has one")
        if not inspect.iscoroutinefunction(fn):
            raise DeclarationError("the function for changed roots must be async: async def roots_changed(ctx)")
        self._roots_changed = fn
        return fn

    async def roots_changed(self, ctx: Context, params: Params) -> None:
        if self._roots_changed is not None:
            await self._roots_changed(ctx)

    def route(self, method: str, handler: Callable[..., Any] | None = None, *, params: type | None = None) -> Any:
        """Add a handler to the routing table: `async def handler(ctx, params)`.

        The method is a custom one, or one of the protocol, whose built-in handler it replaces. `params` is the class
        for the parameters; without it the handler gets the JSON object as received. Usable as a decorator.
        """

        def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
            if not inspect.iscoroutinefunction(fn):
                raise DeclarationError(f"the handler of {method!r} must be async: async def handler(ctx, params)")
            self.router.add(Route(method, params, fn))
            return fn

        return decorate if handler is None else decorate(handler)

    def use(self, middleware: Middleware) -> Middleware:
        """Add middleware around every request: `async def middleware(ctx, request, call_next)`; it awaits
        `call_next`."""
        self.router.use(middleware)
        return middleware

    def include(self, other: Server, *, prefix: str = "") -> None:
        """Include the tools, prompts and resources of another server; names get the prefix, URIs stay."""
        from mcptrio.server.composition import include

        include(self, other, prefix)

    def on_event(self, listener: telemetry.Listener) -> telemetry.Listener:
        """Add a telemetry listener: `listener(event)` gets the events of `mcptrio.telemetry`."""
        self.telemetry.add(listener)
        return listener

    # -- capabilities

    def capabilities(self) -> ServerCapabilities:
        """Return the current capabilities; an empty list without a route of its own is not declared."""
        return structure(self._declared(), types.ServerCapabilities, at="capabilities")

    def _declared(self) -> dict[str, Any]:
        """Return the current capabilities in their wire form."""
        own = {route.method for route in self.router if not route.builtin}
        found: dict[str, Any] = {"logging": {}}
        if self.experimental is not None:
            found["experimental"] = self.experimental
        if self.completions.any or "completion/complete" in own:
            found["completions"] = {}
        if len(self.prompts.registry) or "prompts/list" in own:
            found["prompts"] = {"listChanged": True}
        if len(self.resources.registry) or len(self.resources.templates) or "resources/list" in own:
            found["resources"] = {"subscribe": True, "listChanged": True}
        if len(self.tools.registry) or "tools/list" in own:
            found["tools"] = {"listChanged": True}
        if len(self.extensions):
            found["extensions"] = self.extensions.settings()
        return found

    # -- changes

    def notify_tools_changed(self) -> None:
        """Notify clients that the list of tools has changed. Callable from any thread, like the next three.

        `add_tool` and `remove_tool` do it themselves; use this for changes that mcptrio cannot see, such as another
        result of a `visible=` function or of a custom list handler.
        """
        self._list_changed("tools")

    def notify_prompts_changed(self) -> None:
        """Notify clients that the list of prompts has changed."""
        self._list_changed("prompts")

    def notify_resources_changed(self) -> None:
        """Notify clients that the list of resources or of resource templates has changed."""
        self._list_changed("resources")

    def notify_resource_updated(self, uri: str, meta: Mapping[str, Any] | None = None) -> None:
        """Notify the subscribers of a resource that it has changed; `meta` is the `_meta` they receive.

        Raises:
            TypeError, ValueError: `meta` has no JSON form.
        """
        self.publisher.resource_updated(uri, meta)

    def _list_changed(self, kind: str) -> None:
        self._offers = None
        self.publisher.list_changed(kind)

    # -- for the runtime

    def attach(self, runtime: Runtime) -> Callable[[], None]:
        with ExitStack() as ends:
            ends.callback(self.publisher.attach(runtime))
            for extension in self.extensions:
                ends.callback(extension.attach(runtime))
            return ends.pop_all().close

    def finish(self, result: dict[str, Any], era: Era) -> dict[str, Any]:
        return self.result_fields.finish(result, era)

    def may_replay(self, start: Start) -> bool:
        """Return whether a request may run again: prompts and resources only read; a tool must declare it."""
        if start.method != "tools/call":
            return True
        entry = self.tools.registry.get(str(start.params.get("name")))
        return entry is not None and entry.replay

    def request_scope(self, session: Actor, call: Call) -> AbstractAsyncContextManager[Any] | None:
        return self.lifecycle.around_request(session, call)

    def offers_now(self) -> frozenset[str]:
        """Return the names of the current capabilities."""
        if self._offers is None:
            self._offers = frozenset(self._declared())
        return self._offers

    def parameter_headers(self, tool: str) -> Mapping[str, tuple[str, ...]]:
        """Return header mark -> path of the argument that it repeats (`x-mcp-header`)."""
        entry = self.tools.registry.get(tool)
        return {} if entry is None else entry.headers

    def needed_scopes(self, method: str, params: Mapping[str, Any], all_of_them: bool = False) -> tuple[str, ...]:
        """Return the scopes that a request requires; entries with `visible=` are left out, so that they stay hidden."""
        entry: ToolEntry | PromptEntry | ResourceEntry | None = None
        if method == "tools/call":  # by far the most frequent
            name = params.get("name")
            tool = self.tools.registry.get(name) if type(name) is str else None
            return () if tool is None or (tool.visible is not None and not all_of_them) else tool.scopes
        match method, params:
            case ("prompts/get", {"name": str(name)}) | ("completion/complete", {"ref": {"name": str(name)}}):
                entry = self.prompts.registry.get(name)
            case ("resources/read" | "resources/subscribe", {"uri": str(uri)}):
                entry = self.resources.scoped_entry_of(uri)
            case "completion/complete", {"ref": {"uri": str(uri)}}:
                entry = self.resources.templates.get(uri) or self.resources.registry.get(uri)
        return () if entry is None or (entry.visible is not None and not all_of_them) else entry.scopes

    def all_scopes(self) -> frozenset[str]:
        """Return all scopes that any entry requires."""
        entries = (*self.tools.registry, *self.prompts.registry, *self.resources.registry, *self.resources.templates)
        return frozenset(scope for entry in entries for scope in entry.scopes)

    make_context = Context

    def lifespan_context(self) -> AbstractAsyncContextManager[Any]:
        return nullcontext() if self._lifespan is None else self._lifespan(self)

    def make_runtime(self, store: Store | None = None, bus: Bus | None = None) -> Runtime:
        from mcptrio.stores import MemoryBus, MemoryStore

        return Runtime(
            app=self,
            store=store if store is not None else MemoryStore(),
            bus=bus if bus is not None else MemoryBus(),
            supervisor=Supervisor(limits=self.limits),
            threads=Threads(Shares(self._threads)),
            parking=Parking(
                audience=self.state_audience,
                keys=self.state_keys or KeyRing.random(),
                max_parked=self.limits.parked_max,
                ttl=self.limits.parked_ttl,
            ),
        )

    # -- serving

    async def serve_stdio(
        self, *, store: Store | None = None, stop: trio.Event | None = None, drain_timeout: float = 25.0
    ) -> None:
        """Serve one client over standard input and output until it closes them.

        When `stop` is set, running calls have `drain_timeout` seconds to finish, and the method returns.
        """
        from mcptrio.server.serve import serve_stdio

        await serve_stdio(self, store=store, stop=stop, drain_timeout=drain_timeout)

    async def serve(
        self, link: Link, *, store: Store | None = None, stop: trio.Event | None = None, drain_timeout: float = 25.0
    ) -> None:
        """Serve one client over a custom link until it disconnects.

        Authenticate the client before: as over stdio, there is no principal, and scopes are not checked. Each call of
        this method runs the lifespan function. When `stop` is set, running calls have `drain_timeout` seconds to
        finish, and the method returns. It does not close the link.
        """
        from mcptrio.server.serve import serve_link

        await serve_link(self, link, store=store, stop=stop, drain_timeout=drain_timeout)

    async def serve_http(
        self,
        config: HttpConfig | None = None,
        *,
        auth: Auth | None = UNSET,
        store: Store | None = None,
        stop: trio.Event | None = None,
        task_status: trio.TaskStatus[Any] = trio.TASK_STATUS_IGNORED,
        **settings: Any,
    ) -> None:
        """Serve Streamable HTTP until cancelled; `settings` are fields of `HttpConfig` and of the listener.

        With `await nursery.start(server.serve_http)` the addresses are returned once the port is bound. When `stop` is
        set, the server accepts nothing new, running calls have `drain_timeout` seconds to finish, and the method
        returns. Cancelling ends everything at once. `auth` authenticates callers: a `BearerAuth`, `StaticTokens` or
        `ClientCertificates` of `mcptrio.auth.server`, or your own function. None turns authentication and scopes off.
        """
        from mcptrio.server.serve import serve_http

        await serve_http(self, config, settings, auth=auth, store=store, stop=stop, task_status=task_status)

    def asgi(
        self,
        config: HttpConfig | None = None,
        *,
        auth: Auth | None = UNSET,
        store: Store | None = None,
        **settings: Any,
    ) -> Any:
        """Return an ASGI application for Hypercorn's trio worker, or to mount in another application."""
        from mcptrio.server.serve import asgi

        return asgi(self, config, settings, auth=auth, store=store)

    def run(self, transport: str = "stdio", **settings: Any) -> None:
        """Serve until the client closes its connection or a signal arrives, as the last line of a server file.

        Logging, signals and the error message for an unusable address are those of `mcptrio run`.
        """
        from mcptrio.server.program import run

        run(self, transport, **settings)

    @asynccontextmanager
    async def open_memory_link(self) -> AsyncIterator[Any]:
        """Open an in-process link to this server, for `connect(server)` and for tests."""
        from mcptrio.transports.memory.server import open_memory_link

        async with self.make_runtime().open() as runtime, open_memory_link(runtime) as end:
            yield end


def _keys(keys: KeyRing | Iterable[str] | None) -> KeyRing | None:
    if isinstance(keys, str):
        raise DeclarationError("state_keys must be a list of keys; write state_keys=[key]")
    return keys if keys is None or isinstance(keys, KeyRing) else KeyRing.from_texts(keys)


def _own_version() -> str:
    version: str = sys.modules[__name__.partition(".")[0]].__version__
    return version
