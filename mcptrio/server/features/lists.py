"""Pages of the lists of tools, prompts, resources and templates, as a caller may see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mcptrio._peer.era import Era
from mcptrio.server.context import Context
from mcptrio.server.features.result_fields import ResultFields
from mcptrio.server.features.scopes import page_key, shown_to
from mcptrio.server.registry import Registry


def list_page(
    ctx: Context,
    registry: Registry[Any],
    cursor: str | None,
    size: int | None,
    fields: ResultFields,
    show: Callable[[Era, Mapping[str, Any]], dict[str, Any]],
    *,
    kind: str,
    key: str | None = None,
) -> Any:
    """Return one page of a list; it is made once for all callers that see the same entries.

    `show` fits the wire form of an entry to a revision. `kind` names the list, and `key` its member in the result if
    that has another name.
    """
    era, scopes = ctx._call.start.era, page_key(ctx, registry)

    def page() -> dict[str, Any]:
        entries, following = registry.page(cursor, size, shown_to(ctx))
        wire: dict[str, Any] = {key or kind: [show(era, entry.wire) for entry in entries]}
        if following is not None:
            wire["nextCursor"] = following
        return fields.finish_list(kind, wire, era, varies=scopes is not None)

    return page() if scopes is False else registry.cached_page((era.date, cursor or None, scopes), page)
