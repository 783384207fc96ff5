"""The apps extension of a server: tools get `_meta.ui`, pages become resources."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import trio
from attrs import define, field
from msgspec.structs import replace

from mcptrio._actors.extension import Extension, declared
from mcptrio.errors import DeclarationError
from mcptrio.extensions.apps.page import Ui
from mcptrio.server.context import Context
from mcptrio.server.features.functions import is_context
from mcptrio.server.features.scopes import shown_to
from mcptrio.server.features.tool_declaration import ToolEntry
from mcptrio.types import TextResourceContents

if TYPE_CHECKING:
    from mcptrio.server.features.resources import ResourceOptions
    from mcptrio.server.server import Server

IDENTIFIER: Final = "io.modelcontextprotocol/ui"
MIME_TYPE: Final = "text/html;profile=mcp-app"


@define(eq=False, repr=False)
class Apps(Extension):
    """Tools whose results are shown with a page."""

    identifier: ClassVar[str] = IDENTIFIER
    tool_options: ClassVar[frozenset[str]] = frozenset({"ui"})

    _pages: dict[str, Ui] = field(factory=dict, init=False)

    def client_settings(self) -> Mapping[str, Any]:
        return {"mimeTypes": [MIME_TYPE]}

    def absorb(self, other: Extension) -> None:
        assert isinstance(other, Apps)
        self._pages.update(other._pages)

    def tool(self, entry: ToolEntry, option: str, value: Any) -> ToolEntry:
        page = _page(entry, value)
        meta = {**entry.wire.get("_meta", {}), "ui": page.tool_meta()}
        return replace(entry, wire={**entry.wire, "_meta": meta})

    def declared(self, server: Server, entry: ToolEntry, option: str, value: Any) -> None:
        page = _page(entry, value)
        known = self._pages.get(page.uri)
        if page.html is None or known is page:
            return
        if known is not None:
            raise DeclarationError(f"there are two pages {page.uri!r}; let both tools share one `Ui`")
        self._add_page(server, page, restricted=_is_restricted(entry))

    def removed(self, server: Server, entry: ToolEntry, option: str, value: Any) -> None:
        """Remove a page with its last tool; restrict it when the last tool that everyone may use has gone."""
        page = self._pages.get(_page(entry, value).uri)
        if page is None:
            return
        tools = _tools_of(server, page)
        shown = server._app.resources.registry.get(page.uri)
        if tools and (shown is None or shown.visible is not None or not all(map(_is_restricted, tools))):
            return
        del self._pages[page.uri]
        if shown is not None:
            server.remove_resource(page.uri)
        if tools:
            self._add_page(server, page, restricted=True)

    def _add_page(self, server: Server, page: Ui, *, restricted: bool) -> None:
        """Declare the resource of a page. A restricted page is visible to the callers that see one of its tools."""
        meta = {"ui": page.resource_meta()} if page.resource_meta() else None

        async def read(ctx: Context) -> TextResourceContents:
            text = await _html(page, ctx)
            return TextResourceContents(uri=page.uri, mime_type=MIME_TYPE, text=text, meta=meta)

        def visible(ctx: Context) -> bool:
            return any(map(shown_to(ctx), _tools_of(server, page)))

        options: ResourceOptions = {"name": page.name or page.uri.removeprefix("ui://"), "mime_type": MIME_TYPE}
        if page.description is not None:
            options["description"] = page.description
        if meta is not None:
            options["meta"] = meta
        if restricted:
            options["visible"] = visible
        server.add_resource(page.uri, read, **options)
        self._pages[page.uri] = page


def _is_restricted(entry: ToolEntry) -> bool:
    return entry.visible is not None or bool(entry.scopes)


def _tools_of(server: Server, page: Ui) -> list[ToolEntry]:
    """Return the tools of a server whose results are shown with a page."""
    tools = server._app.tools.registry
    return [entry for entry in tools if "ui" in entry.extra and _page(entry, entry.extra["ui"]).uri == page.uri]


def _page(entry: ToolEntry, value: Any) -> Ui:
    try:
        return value if isinstance(value, Ui) else Ui(value)
    except (DeclarationError, AttributeError, TypeError) as error:
        hint = "ui= is a Ui, or the ui:// URI of a resource that is declared elsewhere"
        raise DeclarationError(f"tool {entry.name!r}: {hint}: {error}") from error


async def _html(page: Ui, ctx: Context) -> str:
    html = page.html
    if isinstance(html, str):
        await trio.lowlevel.checkpoint()
        return html
    if isinstance(html, Path):
        return await trio.Path(html).read_text(encoding="utf-8")
    assert html is not None
    make = html if (name := _context_parameter(html)) is None else partial(html, **{name: ctx})
    made = make() if inspect.iscoroutinefunction(html) else await trio.to_thread.run_sync(make)
    return str(await made if inspect.isawaitable(made) else made)


def _context_parameter(html: Callable[..., Any]) -> str | None:
    """Return the parameter of a page function that gets the context: one annotated with it, or the one required."""
    try:
        parameters = inspect.signature(html, eval_str=True).parameters.values()
    except NameError:  # an annotation that exists for type checkers only
        parameters = inspect.signature(html).parameters.values()
    annotated = [
        p.name
        for p in parameters
        if is_context(p.annotation) or str(p.annotation).partition("[")[0] == Context.__name__
    ]
    required = [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in annotated
    ]
    return next(iter([*annotated, *required]), None)


def apps_of(ctx: Context) -> bool:
    """Return whether this client shows pages; if not, return the content of the page as text."""
    settings = declared(ctx._declared, IDENTIFIER)
    kinds = None if settings is None else settings.get("mimeTypes")
    return isinstance(kinds, list) and MIME_TYPE in kinds
