"""The requests of a client: a typed method for each one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, Unpack, overload

import trio

from mcptrio._wire.objects.converter import unstructure
from mcptrio.client.callbacks import RootsCallback
from mcptrio.client.connection import ClientService
from mcptrio.client.features import tools
from mcptrio.client.features.listen import Listeners
from mcptrio.client.features.roots import RootLike
from mcptrio.client.handshake import HandshakeResult
from mcptrio.client.pages import Pages
from mcptrio.client.reconnect import Connector
from mcptrio.client.requester import How, Requester, read
from mcptrio.errors import HEADER_MISMATCH, LocalProtocolError, MCPError
from mcptrio.types import (
    CallToolResult,
    CompleteResult,
    Completion,
    CompletionReference,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    LoggingLevel,
    PaginatedResult,
    Prompt,
    PromptReference,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    ResourceTemplateReference,
    Tool,
)

T = TypeVar("T")
PageT = TypeVar("PageT", bound=PaginatedResult)


class Requests:
    """The requests of a client, independent of the transport."""

    _service: ClientService
    _connector: Connector
    _requester: Requester
    _listeners: Listeners
    _tools: tools.KnownTools

    @property
    def transport(self) -> str:
        """The kind of transport: `http`, `stdio`, `memory`, `websocket`, `sse`."""
        return self._connector.transport.name

    @property
    def _said(self) -> HandshakeResult:
        if self._connector.handshake is None:
            raise LocalProtocolError("the client is not open: use `async with`")
        return self._connector.handshake

    # -- tools

    def iter_tools(self, *, cached: bool = True) -> Pages[Tool]:
        """Iterate over the server's tools, page by page."""

        async def fetch(params: dict[str, Any]) -> tuple[tuple[Tool, ...], str | None]:
            page = await self._requester.get("tools/list", params, ListToolsResult, {}, cached=cached)
            mirrors = self.transport == "http" and not self._said.era.stateful
            return await self._tools.learn(page.tools, over_http=mirrors), page.next_cursor

        return self._pages("tools/list", fetch)

    async def list_tools(self, *, cached: bool = True) -> tuple[Tool, ...]:
        """List all tools of the server."""
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
            name: The tool's name.
            arguments: The arguments of the call.
            into: Convert the result to this type; a failed tool then raises `ToolError`.
            how: See `How`: `timeout`, `on_progress` and so on.

        Raises:
            MCPError: the server refused the call.
            UrlElicitationRequired: the user must visit a page first, and did not.
            InputRequired: the server asks for input more often than `max_rounds` allows.
        """
        return await self._tool_result(name, await self._call(name, arguments, how), into)

    async def _call(self, name: str, arguments: Mapping[str, Any] | None, how: How) -> dict[str, Any]:
        params: dict[str, Any] = {"name": name}
        if arguments is not None:
            params["arguments"] = dict(arguments)
        repeat = self._tools.may_repeat(name)
        try:
            return await self._requester.ask("tools/call", params, how, repeat=repeat)
        except MCPError as error:
            if error.code != HEADER_MISMATCH or self.transport != "http":
                raise
            # 2026-07-28 basic/transports/streamable-http: look at the tool's schema again, then retry
            await self.list_tools(cached=False)
            if not self._tools.has_marks(name):
                raise
            return await self._requester.ask("tools/call", params, how, repeat=repeat)

    async def _tool_result(self, name: str, raw: dict[str, Any], into: Any) -> Any:
        result = await read(raw, CallToolResult, "tools/call")
        if self._service.config.check_results:
            await self._tools.check(name, result, any_value=self._said.era.features.any_structured_content)
        return result if into is None else tools.convert(result, into, name)

    # -- resources

    def iter_resources(self, *, cached: bool = True) -> Pages[Resource]:
        """Iterate over the server's resources, page by page."""
        return self._list("resources/list", ListResourcesResult, lambda page: page.resources, cached)

    async def list_resources(self, *, cached: bool = True) -> tuple[Resource, ...]:
        """List all resources of the server."""
        return await self.iter_resources(cached=cached).all()

    def iter_resource_templates(self, *, cached: bool = True) -> Pages[ResourceTemplate]:
        """Iterate over the server's resource templates, page by page."""
        result = ListResourceTemplatesResult
        return self._list("resources/templates/list", result, lambda page: page.resource_templates, cached)

    async def list_resource_templates(self, *, cached: bool = True) -> tuple[ResourceTemplate, ...]:
        """List all resource templates of the server."""
        return await self.iter_resource_templates(cached=cached).all()

    async def read_resource(self, uri: str, *, cached: bool = True, **how: Unpack[How]) -> ReadResourceResult:
        """Read a resource."""
        return await self._requester.get("resources/read", {"uri": uri}, ReadResourceResult, how, cached=cached)

    async def subscribe(self, uri: str) -> None:
        """Subscribe to changes of a resource, for `on_notification`, at the stateful revisions. See also `listen`."""
        await self._requester.ask("resources/subscribe", {"uri": uri}, {})
        self._listeners.subscribe(uri)

    async def unsubscribe(self, uri: str) -> None:
        """Undo one `subscribe`; unsubscribe at the server when no other one and no `listen` needs the resource."""
        if self._listeners.unsubscribe(uri):
            await self._requester.ask("resources/unsubscribe", {"uri": uri}, {})
        else:
            await trio.lowlevel.checkpoint()

    # -- prompts and completion

    def iter_prompts(self, *, cached: bool = True) -> Pages[Prompt]:
        """Iterate over the server's prompts, page by page."""
        return self._list("prompts/list", ListPromptsResult, lambda page: page.prompts, cached)

    async def list_prompts(self, *, cached: bool = True) -> tuple[Prompt, ...]:
        """List all prompts of the server."""
        return await self.iter_prompts(cached=cached).all()

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **how: Unpack[How]
    ) -> GetPromptResult:
        """Get a prompt with its arguments filled in."""
        params: dict[str, Any] = {"name": name}
        if arguments is not None:
            params["arguments"] = dict(arguments)
        return await self._requester.get("prompts/get", params, GetPromptResult, how)

    async def complete(
        self,
        ref: CompletionReference | str,
        argument: str,
        value: str = "",
        *,
        context: Mapping[str, str] | None = None,
        **how: Unpack[How],
    ) -> Completion:
        """Return suggestions for an argument of a prompt (`ref` is its name) or of a resource template (its URI)."""
        if isinstance(ref, str):
            ref = ResourceTemplateReference(uri=ref) if "://" in ref else PromptReference(name=ref)
        params: dict[str, Any] = {"ref": unstructure(ref), "argument": {"name": argument, "value": value}}
        if context:
            params["context"] = {"arguments": dict(context)}
        result = await self._requester.get("completion/complete", params, CompleteResult, how)
        return result.completion

    # -- other requests

    async def ping(self, *, timeout: float | None = None) -> None:
        """Check whether the server responds."""
        method = "ping" if self._said.era.stateful else "server/discover"
        await self._requester.ask(method, {}, {"timeout": timeout})

    async def set_log_level(self, level: LoggingLevel) -> None:
        """Request log messages of this level and above."""
        if self._said.era.stateful:
            await self._requester.ask("logging/setLevel", {"level": level}, {})
        else:
            await trio.lowlevel.checkpoint()
        self._service.log_level = level

    async def set_roots(self, roots: Iterable[RootLike] | RootsCallback) -> None:
        """Replace the roots, and notify the server if its protocol version allows it."""
        if self._service.callbacks.roots is None:
            raise LocalProtocolError("this client was opened without roots and has not declared any")
        self._service.callbacks.roots = roots if callable(roots) else tuple(roots)
        if self._said.era.stateful:
            await self.notify("notifications/roots/list_changed")
        else:
            await trio.lowlevel.checkpoint()

    async def request(self, method: str, params: Mapping[str, Any] | None = None, **how: Unpack[How]) -> dict[str, Any]:
        """Send any request and return its raw result. Rounds are driven as for any other call."""
        return await self._requester.ask(method, dict(params or {}), how)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send any notification."""
        await (await self._connector.connected()).notify(method, dict(params or {}))

    def _list(
        self, method: str, result: type[PageT], items: Callable[[PageT], tuple[T, ...]], cached: bool
    ) -> Pages[T]:
        async def fetch(params: dict[str, Any]) -> tuple[tuple[T, ...], str | None]:
            page = await self._requester.get(method, params, result, {}, cached=cached)
            return items(page), page.next_cursor

        return self._pages(method, fetch)

    def _pages(self, method: str, fetch: Any) -> Pages[Any]:
        config = self._service.config
        return Pages(method=method, fetch=fetch, max_pages=config.max_pages, max_items=config.max_items)
