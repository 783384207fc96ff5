"""Convenience classes for the return values of handlers: images, audio, prompt messages."""

from __future__ import annotations

import os
from binascii import b2a_base64
from collections.abc import Mapping
from typing import Final, TypeAlias

from attrs import field

from ._fields import check_prompt_role, frozen
from .base import JsonObject, Record, Role
from .content import Annotations, AudioContent, ContentBlock, ImageContent, TextContent
from .prompts import PromptMessage

# Offset and bytes that identify a file type; RIFF and ISO containers name their content after a header.
_MAGIC: Final = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (4, b"ftypavif", "image/avif"),
    (0, b"BM", "image/bmp"),
    (0, b"II*\x00", "image/tiff"),
    (0, b"MM\x00*", "image/tiff"),
    (0, b"<svg", "image/svg+xml"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (4, b"ftypM4A", "audio/mp4"),
)
_EXTENSIONS: Final[Mapping[str, str]] = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".avif": "image/avif",
    ".bmp": "image/bmp",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".svg": "image/svg+xml",
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".ogg": "audio/ogg",
    ".oga": "audio/ogg",
    ".flac": "audio/flac",
    ".m4a": "audio/mp4",
}


def _guess_mime_type(data: bytes, path: str, kind: str) -> str:
    for offset, magic, mime_type in _MAGIC:
        if mime_type.startswith(kind) and data.startswith(magic, offset):
            return mime_type
    mime_type = _EXTENSIONS.get(os.path.splitext(path)[1].lower(), "")
    if mime_type.startswith(kind):
        return mime_type
    raise ValueError(f"cannot tell which {kind} type {path or 'the data'} has: pass mime_type=")


@frozen
class _Media(Record):
    """Bytes or the path of a file; reading and encoding are deferred to `to_content()`."""

    data: bytes | None = None
    path: str | os.PathLike[str] | None = field(default=None, kw_only=True)
    mime_type: str | None = field(default=None, kw_only=True)
    annotations: Annotations | None = field(default=None, kw_only=True)
    meta: JsonObject | None = field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if (self.data is None) == (self.path is None):
            raise ValueError(f"{type(self).__name__} takes either data or path=")

    def _read(self, kind: str) -> tuple[str, str]:
        """Return the bytes in base64 and their MIME type. Reads the file, so it may block."""
        path = "" if self.path is None else os.fspath(self.path)
        if self.data is None:
            with open(path, "rb") as file:
                data = file.read()
        else:
            data = self.data
        mime_type = self.mime_type or _guess_mime_type(data, path, kind)
        return b2a_base64(data, newline=False).decode("ascii"), mime_type


@frozen
class Image(_Media):
    """An image to return from a handler: `Image(png_bytes)` or `Image(path="plot.png")`."""

    def to_content(self) -> ImageContent:
        """Make the content block. Reads the file, so with a path it may block."""
        data, mime_type = self._read("image")
        return ImageContent(data=data, mime_type=mime_type, annotations=self.annotations, meta=self.meta)


@frozen
class Audio(_Media):
    """Audio to return from a handler: `Audio(wav_bytes)` or `Audio(path="answer.wav")`."""

    def to_content(self) -> AudioContent:
        """Make the content block. Reads the file, so with a path it may block."""
        data, mime_type = self._read("audio")
        return AudioContent(data=data, mime_type=mime_type, annotations=self.annotations, meta=self.meta)


ContentLike: TypeAlias = str | ContentBlock | Image | Audio


def to_content(value: ContentLike) -> ContentBlock:
    """Convert a string, `Image` or `Audio` to a content block; return a content block as is."""
    if isinstance(value, str):
        return TextContent(text=value)
    if isinstance(value, Image | Audio):
        return value.to_content()
    return value


@frozen
class Message(Record):
    """One message of a prompt: `Message("user", "Summarise this.")`."""

    role: Role = field(validator=check_prompt_role)
    content: ContentLike

    def to_prompt_message(self) -> PromptMessage:
        """Convert to the message of the protocol. Reads the file of an `Image(path=…)`, so it may block."""
        return PromptMessage(role=self.role, content=to_content(self.content))


def user(content: ContentLike) -> Message:
    """Make a message with the role "user"."""
    return Message("user", content)


def assistant(content: ContentLike) -> Message:
    """Make a message with the role "assistant"."""
    return Message("assistant", content)
