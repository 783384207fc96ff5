"""The server: what people declare tools, resources and prompts on, and serve."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import trio
from msgspec.structs import replace

from mcptrio import telemetry, types
from mcptrio._actors.call import Call, Limits
from mcptrio._actors.extension import Extension, Extensions, shipped
from mcptrio._actors.parking import Parking
from mcptrio._actors.router import Middleware, Route, Router
from mcptrio._actors.runtime import Runtime
from mcptrio._actors.session import Session
from mcptrio._actors.supervisor import Supervisor, SupervisorLimits
from mcptrio._eras.choose import Served
from mcptrio._peer.effects import Start
from mcptrio._peer.era import Era, Role
from mcptrio._wire.converter import structure, unstructure
from mcptrio._wire.request_state import KeyRing
from mcptrio.errors import DeclarationError
from mcptrio.server import methods
from mcptrio.server.agreeing import check_limits
from mcptrio.server.context import Context, SessionHandle
from mcptrio.server.features.completion import Completions, Declared
from mcptrio.server.features.hints import Cache, Hints, caches_of
from mcptrio.server.features.invoke import caller_names
from mcptrio.server.features.lifecycle import Lifecycle
from mcptrio.server.features.listening import Listening
from mcptrio.server.features.prompts import PromptEntry, PromptOptions, Prompts, declare_prompt
from mcptrio.server.features.resources import ResourceEntry, ResourceOptions, Resources, declare_resource
from mcptrio.server.features.scopes import UNSET
from mcptrio.server.features.subscriptions import Publisher, Subscriptions, topic
from mcptrio.server.features.tools import OWN_OPTIONS, ToolEntry, ToolOptions, Tools, declare_tool
from mcptrio.server.registry import PageSize, page_size_of

if TYPE_CHECKING:
    from mcptrio.server.serving import Auth
    from mcptrio.stores import Bus, Store
    from mcptrio.transports.http_server.config import HttpConfig
    from mcptrio.types import (
        Icon,
        Params,
        ServerCapabilities,
    )

F = TypeVar("F", bound=Callable[..., Any])


class Server:
    """An MCP server.

    Declare what it can do with the decorators, then `run()` it, or serve it inside a Trio program with
    `serve_stdio()`, `serve_http()` or `asgi()`. The object holds declarations only: whatever belongs to a client lives
    in that client's session.
    """

    role = Role.SERVER

    def __init__(
        self,
        name: str,
        version: str = "0.1.0",
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
        session_limits: SupervisorLimits | None = None,
        state_keys: KeyRing | Iterable[str] | None = None,
        state_audience: str | None = None,
        experimental: Mapping[str, Mapping[str, Any]] | None = None,
        threads: int = 16,
        max_reply: int = 16 * 1024 * 1024,
    ) -> None:
        """
        Args:
            name: What the server is called, for programs.
            version: The version of the server itself.
            title: What it is called, for people.
            description: What it is for.
            instructions: How a model should use it; hosts may add this to the model's prompt.
            website_url: Where people learn more.
            icons: Pictures for hosts to show.
            lifespan: An async context manager function around the whole process; its value is `ctx.lifespan`.
            protocols: Serve only these protocol versions; all known ones by default.
            page_size: How many entries a page of a list has, for all lists or by name (`{"resources": 50}`).
            cache: How long clients may keep lists, for all lists or by name (`{"tools": Cache(ttl=60)}`).
            limits: The bounds of each session.
            session_limits: How many sessions, and how long they may be idle; how many calls may be parked.
            state_keys: The keys that the state of a question is sealed with where it travels through the client (from
                2026-07-28): 32 bytes each, in base64 or hexadecimal. The first one seals, every one opens, so keys can
                be changed one after the other. Processes that share them can take up each other's calls. By default
                each process has a random one.
            state_audience: Whom these states are for; servers that share keys and not states have different ones. By
                default the server's name.
            experimental: Experimental capabilities to declare.
            threads: How many plain (not async) functions run at the same time.
            max_reply: The largest answer, in bytes.
        """
        self.info = types.Implementation(
            name=name,
            version=version,
            title=title,
            description=description,
            website_url=website_url,
            icons=icons,
        )
        self.eras = Served.only(protocols)
        self.limits = limits or Limits()
        self.session_limits = session_limits or SupervisorLimits()
        check_limits(self.limits, self.session_limits)
        self.state_keys = _keys(state_keys)
        self.state_audience = state_audience if state_audience is not None else name
        self.telemetry = telemetry.Hub()
        self.router = Router(max_reply=max_reply)
        self.experimental = experimental
        self._lifespan = lifespan
        self._roots_changed: Callable[[Context], Any] | None = None
        self._offers: frozenset[str] | None = None
        self.publisher = Publisher()
        limiter = trio.CapacityLimiter(threads)
        self.hints = Hints(unstructure(self.info), caches_of(cache))
        size_of = partial(page_size_of, page_size)
        self.tools = Tools(limiter, self.hints, size_of("tools"))
        self.prompts = Prompts(limiter, self.hints, size_of("prompts"))
        self.resources = Resources(limiter, self.hints, size_of("resources"), size_of("templates"))
        self.extensions = Extensions()
        self.listening = Listening(self.resources, self.extensions)
        self.subscriptions = Subscriptions(self.resources)
        self.completions = Completions(self.prompts, self.resources, limiter)
        self.lifecycle = Lifecycle(self.info, instructions, self._declared, self.hints, lambda: self.eras.dates)
        self.router.add_all(methods.methods(self))
        self.router.finish = self._finish_answer
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
        `ToolOptions` says what else can be set.
        """
        names = caller_names(2)

        def decorate(fn: Any) -> Any:
            self._add_tool(fn, names, options)
            return fn

        return decorate if fn is None else decorate(fn)

    def _add_tool(self, fn: Any, names: Mapping[str, Any], options: Any) -> None:
        extra = {name: value for name, value in options.items() if name not in OWN_OPTIONS and value is not None}
        entry = declare_tool(fn, names, **{name: value for name, value in options.items() if name in OWN_OPTIONS})
        entry = self._extended(replace(entry, extra=extra))
        self.tools.registry.check_free(entry.name)
        for option, value in extra.items():
            self._extension_for(option).declared(self, entry, option, value)
        self.tools.registry.add(entry.name, entry)

    def _extended(self, entry: ToolEntry) -> ToolEntry:
        for option, value in entry.extra.items():
            entry = self._extension_for(option).tool(entry, option, value)
        return entry

    def _extension_for(self, option: str) -> Extension:
        found = self.extensions.for_option(option)
        if found is None:
            found = shipped(option)
            if found is None:
                from difflib import get_close_matches

                known = ", ".join(sorted(ToolOptions.__annotations__))
                near = get_close_matches(option, ToolOptions.__annotations__, n=1)
                hint = f"did you mean {near[0]}? There" if near else "there"
                raise DeclarationError(
                    f"there is no tool option {option!r}; {hint} are {known}, and those of extensions"
                )
            self.add_extension(found)
        return found

    def add_extension(self, extension: Extension) -> None:
        """Add an extension of the protocol, such as `Tasks()`, `Skills.from_folder(...)` or one of your own.

        Those with a tool option (`task=`, `ui=`) are added by using it; add one yourself to give it settings.
        """
        self.extensions.add(extension)
        for route in extension.routes():
            self.router.add(route)
        self._offers = None
        extension.bind(self)

    def add_tool(self, fn: Callable[..., Any], **options: Unpack[ToolOptions]) -> None:
        """Declare a tool without a decorator, also while serving; clients are told."""
        self._add_tool(fn, caller_names(2), options)

    def remove_tool(self, name: str) -> None:
        self.tools.registry.remove(name)

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[Callable[..., Any]], Declared]:
        """Declare a resource, or with `{variables}` in its URI (RFC 6570) a template; the variables are parameters."""
        if not isinstance(uri, str):
            raise DeclarationError('a resource needs its URI: write @server.resource("notes://today")')
        names = caller_names(2)

        return lambda fn: self._add_resource(uri, fn, names, options)

    def _add_resource(self, uri: str, fn: Callable[..., Any], names: Mapping[str, Any], options: Any) -> Declared:
        entry = declare_resource(uri, fn, names, **options)
        self.resources.add(uri, entry)
        return Declared(fn, entry)

    def add_resource(self, uri: str, fn: Callable[..., Any], **options: Unpack[ResourceOptions]) -> Declared:
        """Declare a resource without a decorator, also while serving; clients are told."""
        return self._add_resource(uri, fn, caller_names(2), options)

    def remove_resource(self, uri: str) -> None:
        self.resources.remove(uri)

    @overload
    def prompt(self, fn: Callable[..., Any], /) -> Declared: ...
    @overload
    def prompt(self, **options: Unpack[PromptOptions]) -> Callable[[Callable[..., Any]], Declared]: ...

    def prompt(self, fn: Any = None, /, **options: Any) -> Any:  # type: ignore[misc]  # mypy cannot match Unpack
        """Declare a prompt: messages made by a function whose parameters the person fills in."""
        names = caller_names(2)

        def decorate(fn: Any) -> Declared:
            return self._add_prompt(fn, names, options)

        return decorate if fn is None else decorate(fn)

    def _add_prompt(self, fn: Any, names: Mapping[str, Any], options: Any) -> Declared:
        entry = declare_prompt(fn, names, **options)
        self.prompts.registry.add(entry.prompt.name, entry)
        return Declared(fn, entry)

    def add_prompt(self, fn: Callable[..., Any], **options: Unpack[PromptOptions]) -> Declared:
        """Declare a prompt without a decorator, also while serving; clients are told."""
        return self._add_prompt(fn, caller_names(2), options)

    def remove_prompt(self, name: str) -> None:
        self.prompts.registry.remove(name)

    def session(self, fn: Callable[[SessionHandle], Any]) -> Callable[[SessionHandle], Any]:
        """Declare what happens around each session: an async generator function that yields once.

        What it yields is `ctx.state` in that session. It may raise `SessionRefused` before, may set
        `session.capabilities` to something narrower, and finds in `session.ended` why the session is over.
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
        """Declare what to do when a client says that its roots have changed."""
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
        """Put a handler into the routing table: `async def handler(ctx, params)`.

        A method of your own, or one of the protocol's, whose built-in row it replaces. `params` is the class that the
        parameters become; without it the handler gets the JSON object as it came. Usable as a decorator.
        """

        def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
            if not inspect.iscoroutinefunction(fn):
                raise DeclarationError(f"the handler of {method!r} must be async: async def handler(ctx, params)")
            self.router.add(Route(method, params, fn))
            return fn

        return decorate if handler is None else decorate(handler)

    def use(self, middleware: Middleware) -> Middleware:
        """Wrap every request: `async def middleware(ctx, request, call_next)`; it awaits `call_next(ctx, request)`."""
        self.router.use(middleware)
        return middleware

    def include(self, other: Server, *, prefix: str = "") -> None:
        """Take over the tools, prompts and resources of another server; names get the prefix, URIs stay."""
        from mcptrio.server.including import include

        include(self, other, prefix)

    def on_event(self, listener: telemetry.Listener) -> telemetry.Listener:
        """Hear of everything that happens: `listener(event)` gets the classes of `mcptrio.telemetry`."""
        self.telemetry.add(listener)
        return listener

    # -- what it says of itself

    def capabilities(self) -> ServerCapabilities:
        """What the server can do now; a list that is empty, and that nobody routed, is not declared."""
        return structure(self._declared(), types.ServerCapabilities, at="capabilities")

    def _declared(self) -> dict[str, Any]:
        """The same as it goes over the wire."""
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

    def publish(self, uri: str) -> None:
        """Tell every client that subscribed to this resource that it has changed. Callable from any thread."""
        self.publisher.publish(topic(uri), uri)

    def _list_changed(self, kind: str) -> None:
        self._offers = None
        self.publisher.publish(f"list {kind}", kind)

    # -- what the runtime needs

    def attach(self, runtime: Runtime) -> Callable[[], None]:
        return self.publisher.attach(runtime)

    def finish(self, result: dict[str, Any], era: Era) -> dict[str, Any]:
        return self.hints.finish(result, era)

    def _finish_answer(self, result: dict[str, Any], ctx: Context) -> dict[str, Any]:
        era = ctx._call.start.era
        return result if era.stateful else self.hints.finish(result, era)

    def may_replay(self, start: Start) -> bool:
        """Prompts and resources only read; a tool must say that it may be run again."""
        if start.method != "tools/call":
            return True
        entry = self.tools.registry.get(str(start.params.get("name")))
        return entry is not None and entry.replay

    def request_scope(self, session: Session, call: Call) -> AbstractAsyncContextManager[Any] | None:
        return self.lifecycle.around_request(session, call)

    def offers_now(self) -> frozenset[str]:
        """The names of the capabilities that would be declared now."""
        if self._offers is None:
            self._offers = frozenset(self._declared())
        return self._offers

    def parameter_headers(self, tool: str) -> Mapping[str, tuple[str, ...]]:
        """Header mark -> the path of the argument that it repeats (`x-mcp-header`)."""
        entry = self.tools.registry.get(tool)
        return {} if entry is None else entry.headers

    def needed_scopes(self, method: str, params: Mapping[str, Any], all_of_them: bool = False) -> tuple[str, ...]:
        """The scopes that a request needs. What not everybody may see is left out, so that nobody learns of it here."""
        entry: ToolEntry | PromptEntry | ResourceEntry | None = None
        if method == "tools/call":  # by far the most frequent
            name = params.get("name")
            tool = self.tools.registry.get(name) if type(name) is str else None
            return () if tool is None or (tool.visible is not None and not all_of_them) else tool.scopes
        match method, params:
            case ("prompts/get", {"name": str(name)}) | ("completion/complete", {"ref": {"name": str(name)}}):
                entry = self.prompts.registry.get(name)
            case ("resources/read" | "resources/subscribe", {"uri": str(uri)}):
                entry = self.resources.entry_of(uri)
            case "completion/complete", {"ref": {"uri": str(uri)}}:
                entry = self.resources.templates.get(uri) or self.resources.registry.get(uri)
        return () if entry is None or (entry.visible is not None and not all_of_them) else entry.scopes

    def all_scopes(self) -> frozenset[str]:
        """Every scope that anything asks for."""
        entries = (*self.tools.registry, *self.prompts.registry, *self.resources.registry, *self.resources.templates)
        return frozenset(scope for entry in entries for scope in entry.scopes)

    def make_context(self, session: Session, call: Call) -> Context:
        return Context(session, call)

    def lifespan_context(self) -> AbstractAsyncContextManager[Any]:
        return nullcontext() if self._lifespan is None else self._lifespan(self)

    def make_runtime(self, store: Store | None = None, bus: Bus | None = None) -> Runtime:
        from mcptrio.stores import MemoryBus, MemoryStore

        return Runtime(
            app=self,
            store=store if store is not None else MemoryStore(),
            bus=bus if bus is not None else MemoryBus(),
            supervisor=Supervisor(limits=self.session_limits),
            parking=Parking(
                audience=self.state_audience,
                keys=self.state_keys or KeyRing.random(),
                max_parked=self.session_limits.parked_max,
                ttl=self.session_limits.parked_ttl,
            ),
        )

    # -- serving

    async def serve_stdio(self, *, store: Store | None = None) -> None:
        """Serve one client over standard input and output until it hangs up."""
        from mcptrio.server.serving import serve_stdio

        await serve_stdio(self, store=store)

    async def serve_http(
        self,
        config: HttpConfig | None = None,
        *,
        auth: Auth | None = UNSET,
        store: Store | None = None,
        task_status: trio.TaskStatus[Any] = trio.TASK_STATUS_IGNORED,
        **settings: Any,
    ) -> None:
        """Serve Streamable HTTP until cancelled; `settings` are fields of `HttpConfig` and of the listener.

        `auth` says who may come in: a `BearerAuth`, `StaticTokens` or `ClientCertificates` of `mcptrio.auth.server`, or
        a function of your own. With None everybody may, also to what asks for scopes.
        With `await nursery.start(server.serve_http)` the addresses are returned once the port is bound.
        """
        from mcptrio.server.serving import serve_http

        await serve_http(self, config, settings, auth=auth, store=store, task_status=task_status)

    def asgi(
        self,
        config: HttpConfig | None = None,
        *,
        auth: Auth | None = UNSET,
        store: Store | None = None,
        **settings: Any,
    ) -> Any:
        """An ASGI application for Hypercorn's trio worker, or to mount in another application."""
        from mcptrio.server.serving import asgi

        return asgi(self, config, settings, auth=auth, store=store)

    def run(self, transport: str = "stdio", **settings: Any) -> None:
        """Serve until the client hangs up or a signal arrives: what a server file ends with."""
        from mcptrio.server.serving import run

        run(self, transport, **settings)

    @asynccontextmanager
    async def open_memory_link(self) -> AsyncIterator[Any]:
        """A link to this server inside the process, for `connect(server)` and for tests."""
        from mcptrio.transports.memory import open_memory_link

        async with self.make_runtime().open() as runtime, open_memory_link(runtime) as end:
            yield end


def _keys(keys: KeyRing | Iterable[str] | None) -> KeyRing | None:
    if isinstance(keys, str):
        raise DeclarationError("state_keys is a list of keys; put the one key into a list")
    return keys if keys is None or isinstance(keys, KeyRing) else KeyRing.from_texts(keys)
