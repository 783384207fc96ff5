"""The apps extension of a server: tools get `_meta.ui`, pages become resources."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import trio
from attrs import define, field
from msgspec.structs import replace

from mcptrio._actors.extension import Extension, declared
from mcptrio.errors import DeclarationError
from mcptrio.extensions.apps.page import Ui
from mcptrio.server.context import Context
from mcptrio.server.features.tools import ToolEntry
from mcptrio.types import TextResourceContents

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

    def declared(self, server: Any, entry: ToolEntry, option: str, value: Any) -> None:
        page = _page(entry, value)
        known = self._pages.get(page.uri)
        if page.html is None or known is page:
            return
        if known is not None:
            raise DeclarationError(f"there are two pages {page.uri!r}; let both tools share one `Ui`")
        self.add_page(server, page)

    def add_page(self, server: Any, page: Ui) -> None:
        """Make a resource of a page."""
        meta = {"ui": page.resource_meta()} if page.resource_meta() else None

        async def read(ctx: Context) -> TextResourceContents:
            text = await _html(page, ctx)
            return TextResourceContents(uri=page.uri, mime_type=MIME_TYPE, text=text, meta=meta)

        about: dict[str, Any] = {"name": page.name or page.uri.removeprefix("ui://"), "mime_type": MIME_TYPE}
        if page.description is not None:
            about["description"] = page.description
        if meta is not None:
            about["meta"] = meta
        server.add_resource(page.uri, read, **about)
        self._pages[page.uri] = page


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
    make = partial(html, ctx) if inspect.signature(html).parameters else html
    made = make() if inspect.iscoroutinefunction(html) else await trio.to_thread.run_sync(make)
    return str(await made if inspect.isawaitable(made) else made)


def apps_of(ctx: Context) -> bool:
    """Whether this client shows pages: if not, say in text what the page would have shown."""
    settings = declared(ctx._declared, IDENTIFIER)
    kinds = None if settings is None else settings.get("mimeTypes")
    return isinstance(kinds, list) and MIME_TYPE in kinds
