"""Documents by which clients find a server before they connect: its server card and an AI catalog with one entry.

This follows the draft of SEP-2127 (docs/discovery.md and schema.ts of the server card extension, July 2026), so it is
off unless `HttpConfig.server_card` is set. The documents are public: every page may read them, without credentials.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from mcptrio._wire.objects.converter import unstructure
from mcptrio.types.lifecycle import Implementation

from .message import Headers, HttpRequest, Plain, refuse

CATALOG_PATH: Final = "/.well-known/ai-catalog.json"
CARD_SUFFIX: Final = "/server-card"
_SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
_CARD_TYPE: Final = "application/mcp-server-card+json"
_CATALOG_TYPE: Final = "application/ai-catalog+json"
_NAME: Final = re.compile(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+")
_SHORT: Final = 100
"""Characters of a title or description."""
_PUBLIC: Final[Headers] = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"GET"),
    (b"access-control-allow-headers", b"Content-Type, If-None-Match"),
    (b"access-control-expose-headers", b"ETag"),
)


class PublicDocument(Struct, frozen=True):
    """A document that everyone may read, with its validator."""

    body: bytes
    headers: Headers
    tag: bytes

    def answer(self, head: HttpRequest) -> Plain:
        """Return the response to a request for it."""
        if head.method == "OPTIONS":
            return Plain(200, _PUBLIC)
        if head.method not in ("GET", "HEAD"):
            return refuse(405, "this method is not served here", headers=((b"allow", b"GET, HEAD, OPTIONS"), *_PUBLIC))
        known = [tag.strip().removeprefix(b"W/") for tag in head.fields.get(b"if-none-match", b"").split(b",")]
        if self.tag in known or b"*" in known:
            return Plain(304, self.headers)
        return Plain(200, self.headers, self.body)


def discovery_documents(url: str, path: str, info: Implementation, dates: Iterable[str]) -> dict[str, PublicDocument]:
    """Return the documents of a server by path; `url` is the public URL of its endpoint, `path` the one it serves."""
    card = server_card(url, info, dates)
    namespace, _, name = card["name"].partition("/")
    publisher = ".".join(reversed(namespace.split(".")))
    entry = {"identifier": f"urn:air:{publisher}:mcp:{name}", "type": _CARD_TYPE, "url": url.rstrip("/") + CARD_SUFFIX}
    return {
        path.rstrip("/") + CARD_SUFFIX: _document(card, _CARD_TYPE),
        CATALOG_PATH: _document({"specVersion": "1.0", "entries": [entry]}, _CATALOG_TYPE),
    }


def server_card(url: str, info: Implementation, dates: Iterable[str]) -> dict[str, Any]:
    """Return the server card of a server.

    Its name has the form `namespace/name`. The server's own name is used if it has that form; otherwise the namespace
    is the host of the URL in reverse.
    """
    name = info.name
    if not _NAME.fullmatch(name):
        host = urlsplit(url).hostname or "localhost"
        namespace = ".".join(reversed(host.split("."))) if re.fullmatch(r"[a-zA-Z0-9.-]+", host) else "localhost"
        name = f"{namespace}/{re.sub(r'[^a-zA-Z0-9._-]+', '-', name).strip('-') or 'server'}"
    about: dict[str, Any] = {key: value for key, value in unstructure(info).items() if value is not None}
    about |= {"$schema": _SCHEMA, "name": name[:200]}
    about["description"] = _short(info.description or info.title or info.name)
    if info.title:
        about["title"] = _short(info.title)
    about["remotes"] = [{"type": "streamable-http", "url": url, "supportedProtocolVersions": list(dates)}]
    return about


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"


def _document(content: dict[str, Any], media_type: str) -> PublicDocument:
    body = msgspec.json.encode(content)
    tag = b'"%b"' % blake2b(body, digest_size=12).hexdigest().encode()
    headers = (
        (b"content-type", media_type.encode()),
        (b"cache-control", b"public, max-age=3600"),
        (b"etag", tag),
        *_PUBLIC,
    )
    return PublicDocument(body, headers, tag)
