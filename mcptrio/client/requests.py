"""What can be asked of a server: a typed method for every request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, Unpack, overload

import trio

from mcptrio._wire.converter import unstructure
from mcptrio.client.asking import Asker, How, read
from mcptrio.client.connection import ClientService
from mcptrio.client.features import tools
from mcptrio.client.features.roots import RootLike
from mcptrio.client.healing import Keeper
from mcptrio.client.host import RootsCallback
from mcptrio.client.listening import Listening
from mcptrio.client.opening import Introduction
from mcptrio.client.pages import Pages
from mcptrio.errors import HEADER_MISMATCH, LocalProtocolError, McpError
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
    Prompt,
    PromptReference,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    ResourceTemplateReference,
    Tool,
)

T = TypeVar("T")


class Requests:
    """The requests of a client, whatever is at the other end."""

    _service: ClientService
    _keeper: Keeper
    _asker: Asker
    _listening: Listening
    _tools: tools.KnownTools

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
        else:
            await trio.lowlevel.checkpoint()
        self._service.log_level = level

    async def set_roots(self, roots: Iterable[RootLike] | RootsCallback) -> None:
        """Let the server work in other places; it is told, where its date has a way to."""
        if self._service.host.roots is None:
            raise LocalProtocolError("this client was opened without roots and has not declared any")
        self._service.host.roots = roots if callable(roots) else tuple(roots)
        if self._said.era.stateful:
            await self.notify("notifications/roots/list_changed")
        else:
            await trio.lowlevel.checkpoint()

    async def request(self, method: str, params: Mapping[str, Any] | None = None, **how: Unpack[How]) -> dict[str, Any]:
        """Send any request and return its result as it came. Rounds are driven as for any other call."""
        return await self._asker.ask(method, dict(params or {}), how)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send any notification."""
        await (await self._keeper.connected()).notify(method, dict(params or {}))

    def _pages(self, method: str, fetch: Any) -> Pages[Any]:
        config = self._service.config
        return Pages(method=method, fetch=fetch, max_pages=config.max_pages, max_items=config.max_items)
