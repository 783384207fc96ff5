"""The contents of resources."""

from __future__ import annotations

from typing import TypeAlias

from .base import JsonObject, Record, frozen


@frozen(kw_only=True)
class TextResourceContents(Record):
    """The contents of a resource that is text."""

    uri: str
    text: str
    mime_type: str | None = None
    meta: JsonObject | None = None


@frozen(kw_only=True)
class BlobResourceContents(Record):
    """The contents of a resource that is bytes, in base64."""

    uri: str
    blob: str
    mime_type: str | None = None
    meta: JsonObject | None = None


ResourceContents: TypeAlias = TextResourceContents | BlobResourceContents
