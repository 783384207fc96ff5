"""Results that are larger than a tool's `max_result_bytes`: a preview, and a link to the whole.

The whole result is a mark of the store with an expiry, so that every process with the same store can serve it, and so
that the share of its owner bounds it. The mark's name is made of the random id and of the caller: the session, or where
requests have no session the principal. A request of another caller therefore finds nothing, as after the expiry.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any, Final

import msgspec

from mcptrio._eras.shape import lower_content, trim
from mcptrio._wire.jsonrpc import encode_value
from mcptrio.server.context import Context
from mcptrio.server.features.result_fields import NO_CACHE
from mcptrio.server.features.scopes import session_of

SCHEME: Final = "result://"
KEPT_FOR: Final = 600.0
"""Seconds."""
_ID_BYTES: Final = 16
_ID_LENGTH: Final = 22  # characters, in base64


async def shortened(wire: dict[str, Any], limit: int, ctx: Context) -> dict[str, Any]:
    """Return a result of at most `limit` bytes as it is, and a larger one as its preview and a link to the whole."""
    size = len(encode_value(wire))
    if size <= limit or wire.get("isError") or size > ctx._session.service.router.max_reply:
        return wire  # more than `max_reply` is refused: it could not be read later either
    kind = "application/json" if "structuredContent" in wire else "text/plain"
    contents = [_contents(block, kind) for block in wire["content"]] or [_json(wire.get("structuredContent"))]
    id = secrets.token_urlsafe(_ID_BYTES)
    session = ctx._session
    store = session.runtime.store
    store.marks.done("result", _mark(id, ctx), msgspec.json.encode(contents), KEPT_FOR, owner=session.owner)
    if store.shared:
        await store.flush()  # the next request may reach another process
    link: dict[str, Any] = {
        "type": "resource_link",
        "uri": SCHEME + id,
        "name": "whole result",
        "description": f"The whole result ({size} bytes); it can be read for {KEPT_FOR / 60:g} minutes.",
    }
    if len(contents) == 1:
        link["mimeType"] = contents[0].get("mimeType", "text/plain")
    preview = _preview(wire["content"] or [{"type": "text", "text": contents[0]["text"]}], limit)
    rest = {key: value for key, value in wire.items() if key not in ("content", "structuredContent")}
    return {"content": [*preview, *lower_content(ctx._call.start.era, [link])], **rest}


async def kept_result(uri: str, ctx: Context) -> dict[str, Any] | None:
    """Return the result of `resources/read`, or None if there is no such result for this caller."""
    id = uri.removeprefix(SCHEME)
    found = await ctx._session.runtime.store.marks.get("result", _mark(id, ctx)) if len(id) == _ID_LENGTH else None
    if found is None:
        return None
    era = ctx._call.start.era
    wire: dict[str, Any] = {
        "contents": [trim(era, "contents", {"uri": uri, **contents}) for contents in msgspec.json.decode(found)]
    }
    if era.features.cache_hints:
        NO_CACHE.add_to(wire)
    return wire


def _mark(id: str, ctx: Context) -> str:
    session, principal = session_of(ctx), ctx.principal
    caller = ("principal", None if principal is None else principal.key) if session is None else ("session", session)
    return hashlib.sha256(msgspec.json.encode([id, caller])).hexdigest()


def _contents(block: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return a content block as contents of a resource; `kind` is the MIME type of text."""
    match block:
        case {"type": "text", "text": text}:
            return {"text": text, "mimeType": kind}
        case {"type": "image" | "audio", "data": data, "mimeType": mime_type}:
            return {"blob": data, "mimeType": mime_type}
        case {"type": "resource", "resource": dict(resource)}:
            return resource
        case _:
            return _json(block)


def _json(value: Any) -> dict[str, Any]:
    return {"text": encode_value(value).decode(), "mimeType": "application/json"}


def _preview(blocks: list[dict[str, Any]], limit: int) -> list[dict[str, Any]]:
    """Return the first blocks of a result, the last one cut, of `limit` bytes together."""
    kept: list[dict[str, Any]] = []
    for block in blocks:
        data = block["text"].encode("utf-8", "replace") if block["type"] == "text" else encode_value(block)
        if len(data) <= limit:
            kept.append(block)
            limit -= len(data)
            continue
        if block["type"] == "text" and limit:
            kept.append({**block, "text": data[:limit].decode("utf-8", "ignore")})
        break
    return kept
