"""A server as its runtime and its sessions see it: declarations, routing table and settings, behind `Server`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import trio
from msgspec.structs import replace

from mcptrio import telemetry
from mcptrio._actors.call import Call
from mcptrio._actors.extension import Extension, Extensions, shipped
from mcptrio._actors.limits import Limits
from mcptrio._actors.parking import Parking
from mcptrio._actors.places import Threads
from mcptrio._actors.router import Router
from mcptrio._actors.runtime import Runtime
from mcptrio._actors.service import Actor
from mcptrio._actors.shares import Shares
from mcptrio._actors.supervisor import Supervisor
from mcptrio._eras.choose import Served
from mcptrio._peer.effects import Start
from mcptrio._peer.era import Era, Role
from mcptrio._wire.objects.converter import unstructure
from mcptrio.auth.request_state import KeyRing
from mcptrio.errors import DeclarationError
from mcptrio.server import methods
from mcptrio.server.context import Context
from mcptrio.server.features.broadcasts import Broadcasts, in_broadcast
from mcptrio.server.features.completion import Completable, Completions, P, R
from mcptrio.server.features.lifecycle import Lifecycle, SessionT
from mcptrio.server.features.listen import ListenRequests
from mcptrio.server.features.options import unknown_option
from mcptrio.server.features.prompts import PromptEntry, PromptOptions, Prompts, declare_prompt
from mcptrio.server.features.resources import ResourceEntry, ResourceOptions, Resources, declare_resource
from mcptrio.server.features.result_fields import Cache, ResultFields, caches_of
from mcptrio.server.features.subscriptions import Publisher, Subscriptions
from mcptrio.server.features.tool_declaration import OWN_OPTIONS, ToolDefaults, ToolEntry, ToolOptions, declare_tool
from mcptrio.server.features.tools import Tools
from mcptrio.server.registry import PageSize, page_size_of

if TYPE_CHECKING:
    from mcptrio._actors.record import SessionRecord
    from mcptrio._peer.link import ReplyLink
    from mcptrio.server.server import Server
    from mcptrio.stores import Store
    from mcptrio.types import Implementation, Params, Tool

logger = logging.getLogger("mcptrio.server")


class App:
    """The application that the runtimes of a server run: its declarations, its handlers and its routing table.

    Owns: the registries, the routing table, the telemetry hub.   Borrows: the `Server`, which extensions are given.
    """

    role = Role.SERVER
    make_context = Context

    def __init__(
        self,
        server: Server,
        info: Implementation,
        *,
        instructions: str | None,
        lifespan: Callable[[Server], AbstractAsyncContextManager[Any]] | None,
        protocols: Iterable[str] | None,
        page_size: PageSize,
        cache: Cache | Mapping[str, Cache] | None,
        limits: Limits,
        state_keys: KeyRing | Iterable[str] | None,
        state_audience: str,
        experimental: Mapping[str, Mapping[str, Any]] | None,
        threads: int,
        max_reply: int,
        tool_defaults: ToolDefaults,
    ) -> None:
        self.server = server
        self.info = info
        self.eras = Served.only(protocols)
        self.limits = limits
        self.tool_defaults = tool_defaults
        self.state_keys = _keys(state_keys)
        self.telemetry = telemetry.Hub()
        self.router = Router(max_reply=max_reply)
        self.publisher = Publisher()
        self.broadcasts = Broadcasts()
        self._hinted = False
        self.roots_changed: Callable[[Context], Any] | None = None
        self.result_fields = ResultFields(unstructure(info), caches_of(cache))
        size_of = partial(page_size_of, page_size)
        self.tools = Tools(self.result_fields, size_of("tools"))
        self.prompts = Prompts(self.result_fields, size_of("prompts"))
        self.resources = Resources(self.result_fields, size_of("resources"), size_of("templates"))
        self.extensions = Extensions()
        self.listen_requests = ListenRequests(self.resources, self.extensions)
        self.subscriptions = Subscriptions(self.resources)
        self.completions = Completions(self.prompts, self.resources)
        self.lifecycle = Lifecycle(info, instructions, self.capabilities, self.result_fields, lambda: self.eras.dates)
        self._lifespan = lifespan
        self._state_audience = state_audience
        self._experimental = experimental
        self._threads = threads
        self._offers: frozenset[str] | None = None
        self.router.add_all(methods.methods(self))
        self.tools.registry.on_change.append(lambda: self._own_list_changed("tools"))
        self.prompts.registry.on_change.append(lambda: self._own_list_changed("prompts"))
        self.resources.registry.on_change.append(lambda: self._own_list_changed("resources"))
        self.resources.templates.on_change.append(lambda: self._own_list_changed("resources"))

    # -- declarations

    def add_tool(self, fn: Any, names: Mapping[str, Any], options: Any, tool: Tool | None = None) -> None:
        """Declare a tool; `tool` is its listing, if the function's own is not to be used.

        Raises:
            DeclarationError: the function or an option cannot be used; nothing has changed.
        """
        extra = {name: value for name, value in options.items() if name not in OWN_OPTIONS and value is not None}
        own = {name: value for name, value in options.items() if name in OWN_OPTIONS and value is not None}
        entry = declare_tool(fn, names, **{**self.tool_defaults, **own})
        if tool is not None:
            listed = unstructure(tool)  # exactly as given, except for an output schema that results would violate
            if entry.result == "text" or entry.max_result_bytes is not None:
                listed.pop("outputSchema", None)
            entry = replace(entry, wire=listed)
        self.tools.registry.check_free(entry.name)
        # Add an extension only after all checks, so that a refusal changes nothing.
        extensions = {option: self._extension_for(option) for option in extra}
        new = [extension for extension in extensions.values() if self.extensions.get(extension.identifier) is None]
        for extension in new:
            self.check_extension(extension)
        entry = replace(entry, extra=extra)
        for option, value in extra.items():
            entry = extensions[option].tool(entry, option, value)
        for option, value in extra.items():
            extensions[option].declared(self.server, entry, option, value)
        for extension in new:
            self.add_extension(extension)
        self.tools.registry.add(entry.name, entry)

    def remove_tool(self, name: str) -> None:
        entry = self.tools.registry.get(name)
        self.tools.registry.remove(name)
        for option, value in () if entry is None else entry.extra.items():
            if (extension := self.extensions.for_option(option)) is not None:
                extension.removed(self.server, entry, option, value)

    def add_session_function(self, fn: SessionT, *, movable: bool) -> SessionT:
        """Declare the session function. It may wait, so `initialize` runs in a task of the session from now on."""
        row = replace(self.router["initialize"], handler=self.lifecycle.initialize_with_state, inline=False)
        self.router.check(row)
        self.lifecycle.declare(fn, movable=movable)
        self.router.add(row)
        return fn

    def add_resource(
        self, uri: str, fn: Callable[P, R], names: Mapping[str, Any], options: ResourceOptions
    ) -> Completable[P, R]:
        entry = declare_resource(uri, fn, names, **options)
        self.resources.add(uri, entry)
        return Completable(fn, entry)

    def add_prompt(self, fn: Callable[P, R], names: Mapping[str, Any], options: PromptOptions) -> Completable[P, R]:
        entry = declare_prompt(fn, names, **options)
        self.prompts.registry.add(entry.prompt.name, entry)
        return Completable(fn, entry)

    def _extension_for(self, option: str) -> Extension:
        """Return the extension that handles a tool option; those that mcptrio ships are added on first use."""
        found = self.extensions.for_option(option) or shipped(option)
        if found is None:
            known = {*ToolOptions.__annotations__, *(name for each in self.extensions for name in each.tool_options)}
            raise DeclarationError(unknown_option("tool", option, known))
        return found

    def check_extension(self, extension: Extension) -> None:
        """Raise `DeclarationError` if an extension cannot be added."""
        self.extensions.check(extension)
        for route in extension.routes():
            self.router.check(route)

    def add_extension(self, extension: Extension) -> None:
        self.check_extension(extension)
        routes = dict(self.router.routes)
        self.extensions.add(extension)
        for route in extension.routes():
            self.router.add(route)
        self._offers = None
        try:
            extension.bind(self.server)
        except BaseException:  # refused: a second try must not find it half added
            self.extensions.remove(extension)
            self.router.routes.clear()
            self.router.routes.update(routes)
            raise

    # -- capabilities and changes

    def capabilities(self) -> dict[str, Any]:
        """Return the current capabilities in their wire form."""
        own = {route.method for route in self.router if not route.builtin}
        found: dict[str, Any] = {"logging": {}}
        if self._experimental is not None:
            found["experimental"] = self._experimental
        if self.completions.any or "completion/complete" in own:
            found["completions"] = {}
        if len(self.prompts.registry) or "prompts/list" in own:
            found["prompts"] = {"listChanged": True}
        linked = any(tool.max_result_bytes is not None for tool in self.tools.registry)
        if linked or len(self.resources.registry) or len(self.resources.templates) or "resources/list" in own:
            found["resources"] = {"subscribe": True, "listChanged": True}
        if len(self.tools.registry) or "tools/list" in own:
            found["tools"] = {"listChanged": True}
        if len(self.extensions):
            found["extensions"] = self.extensions.settings()
        return found

    def offers_now(self) -> frozenset[str]:
        """Return the names of the current capabilities."""
        if self._offers is None:
            self._offers = frozenset(self.capabilities())
        return self._offers

    def list_changed(self, kind: str) -> None:
        """Announce that a list (`tools`, `prompts` or `resources`) has changed."""
        self._offers = None
        # Every worker runs an `on_broadcast` function, and notifies its own clients.
        self.publisher.list_changed(kind, everywhere=not in_broadcast.get())

    def _own_list_changed(self, kind: str) -> None:
        """Announce a change of a list of this process; log once that the lists of other workers are as before."""
        self.list_changed(kind)
        if not self._hinted and not in_broadcast.get() and self.publisher.in_cluster:
            self._hinted = True
            logger.warning(
                "the list of %s has changed in this worker only; to change every worker, call server.broadcast(topic, "
                "value) and change the list in a function declared with @server.on_broadcast(topic)",
                kind,
            )

    async def on_roots_changed(self, ctx: Context, params: Params) -> None:
        if self.roots_changed is not None:
            await self.roots_changed(ctx)

    # -- requests

    def finish(self, result: dict[str, Any], era: Era) -> dict[str, Any]:
        return self.result_fields.finish(result, era)

    def may_replay(self, start: Start) -> bool:
        """Return whether a request may run again: prompts and resources only read; a tool must declare it."""
        if start.method != "tools/call":
            return True
        entry = self.tools.registry.get(str(start.params.get("name")))
        return entry is not None and entry.replay

    def may_rerun(self, method: str, params: Mapping[str, Any]) -> bool:
        """Return whether a request of a session may run twice: it only reads, or its tool is declared idempotent.

        `replay=True` is not enough: the results of `once` are not stored for calls of sessions.
        """
        if method != "tools/call":
            return method in ("resources/read", "prompts/get", "completion/complete")
        entry = self.tools.registry.get(str(params.get("name")))
        hints = {} if entry is None else entry.wire.get("annotations") or {}
        return bool(hints.get("readOnlyHint") or hints.get("idempotentHint"))

    def request_scope(self, session: Actor, call: Call) -> AbstractAsyncContextManager[Any] | None:
        return self.lifecycle.around_request(session, call)

    def parameter_headers(self, tool: str) -> Mapping[str, tuple[str, ...]]:
        """Return header mark -> path of the argument that it repeats (`x-mcp-header`)."""
        entry = self.tools.registry.get(tool)
        return {} if entry is None else entry.headers

    def needed_scopes(self, method: str, params: Mapping[str, Any], all_of_them: bool = False) -> tuple[str, ...]:
        """Return the scopes that a request requires; entries with `visible=` are left out, so that they stay hidden."""
        entry: ToolEntry | PromptEntry | ResourceEntry | None = None
        if method == "tools/call":  # by far the most frequent
            name = params.get("name")
            tool = self.tools.registry.entries.get(name) if type(name) is str else None
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

    # -- durable sessions

    def topics(self, session: Actor) -> list[str]:
        return self.subscriptions.topics(session)

    async def restore(self, session: Actor, record: SessionRecord, link: ReplyLink) -> None:
        era = session.peer.era
        assert era is not None

        def context(method: str, params: dict[str, Any]) -> Context:
            start = Start(0, None, method, params, era, link, None, None)
            return Context(session, Call(start, session, trio.CancelScope(), 0.0, 0.0, 0.0))

        await self.lifecycle.restore(session, record)
        await self.subscriptions.restore(session, record, context)

    # -- runtimes

    def lifespan_context(self) -> AbstractAsyncContextManager[Any]:
        return nullcontext() if self._lifespan is None else self._lifespan(self.server)

    def attach(self, runtime: Runtime) -> Callable[[], None]:
        with ExitStack() as ends:
            ends.callback(self.publisher.attach(runtime))
            ends.callback(self.broadcasts.attach(runtime))
            for extension in self.extensions:
                ends.callback(extension.attach(runtime))
            return ends.pop_all().close

    def make_runtime(self, store: Store | None = None) -> Runtime:
        from mcptrio.stores import MemoryBus, MemoryStore

        store = store if store is not None else MemoryStore()
        return Runtime(
            app=self,
            store=store,
            bus=store.bus or MemoryBus(),
            supervisor=Supervisor(limits=self.limits),
            threads=Threads(Shares(self._threads)),
            parking=Parking(
                audience=self._state_audience,
                keys=self.state_keys or KeyRing.random(),
                max_parked=self.limits.parked_max,
                max_memory=self.limits.max_call_memory // 2,
                ttl=self.limits.parked_ttl,
            ),
        )


def _keys(keys: KeyRing | Iterable[str] | None) -> KeyRing | None:
    return keys if keys is None or isinstance(keys, KeyRing) else KeyRing.from_texts(keys)


def own_version() -> str:
    """Return the version of mcptrio, which a server without a version of its own reports: MCP requires one."""
    version: str = sys.modules[__name__.partition(".")[0]].__version__
    return version
