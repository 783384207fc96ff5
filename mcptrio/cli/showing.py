"""Content for people: text as it is, everything else in a line that says what it is; and binary content in files."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from rich.text import Text

from mcptrio.cli.exits import NO_OUTPUT, Failure
from mcptrio.cli.screen import Screen, clean, to_json, write_out
from mcptrio.errors import RemoteProtocolError
from mcptrio.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    UnknownContent,
)


@frozen(kw_only=True)
class Piece:
    """One piece of content: `text`, or `data` with a line about it."""

    text: str = ""
    data: bytes | None = None
    about: str = ""


def pieces_of(blocks: Iterable[Any]) -> list[Piece]:
    """Content blocks or resource contents, ready to be shown.

    Raises:
        RemoteProtocolError: what should be base64 is not.
    """
    return [_piece(block) for block in blocks]


def _piece(block: Any) -> Piece:
    match block:
        case TextContent():
            return Piece(text=block.text)
        case ImageContent() | AudioContent():
            return _binary(block.data, block.mime_type)
        case TextResourceContents():
            return Piece(text=block.text)
        case BlobResourceContents():
            return _binary(block.blob, block.mime_type or "binary", block.uri)
        case EmbeddedResource():
            return _piece(block.resource)
        case ResourceLink():
            name = block.title or block.name
            return Piece(about=block.uri + (f" ({name})" if name and name != block.uri else ""))
        case UnknownContent():
            return Piece(about=f"content of the unknown type {block.type!r}")
    return Piece(about=f"content of the type {type(block).__name__}")


def _binary(encoded: str, mime_type: str, uri: str = "") -> Piece:
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RemoteProtocolError(f"the server sent {mime_type} that is no base64") from error
    return Piece(data=data, about=f"{mime_type}, {len(data)} bytes" + (f", {uri}" if uri else ""))


def show(screen: Screen, pieces: Sequence[Piece], *, output: Path | None = None) -> None:
    """Print pieces; with `output`, what is binary (or, if nothing is, the text) goes there instead."""
    saved = save(pieces, output) if output is not None else {}
    for number, piece in enumerate(pieces):
        if number in saved:
            screen.note(f"{piece.about or 'text'} saved in {saved[number]}")
        elif piece.data is not None:
            screen.out.print(Text(f"[{clean(piece.about)}; --output FILE saves it]", style="dim"), soft_wrap=True)
        elif piece.about:
            screen.out.print(Text(clean(piece.about), style="cyan"), soft_wrap=True)
        else:
            print_text(screen, piece.text)


def print_text(screen: Screen, text: str) -> None:
    """Text of a server's: harmless on a terminal, as it is everywhere else."""
    if screen.out.is_terminal:
        screen.out.print(Text(clean(text)), soft_wrap=True)
    else:
        write_out(text.encode(errors="backslashreplace") + (b"" if text.endswith("\n") else b"\n"))


def print_value(screen: Screen, value: Any) -> None:
    """A JSON value, coloured on a terminal."""
    text = to_json(value).decode()
    if not screen.out.is_terminal:
        print_text(screen, text)
        return
    from rich.highlighter import JSONHighlighter

    screen.out.print(JSONHighlighter()(Text(clean(text))), soft_wrap=True)


def save(pieces: Sequence[Piece], output: Path) -> dict[int, Path]:
    """Write what is binary, or, if nothing is, the text; the second piece gets a number in its name, and so on.

    Raises:
        Failure: it cannot be written.
    """
    wanted = {n: piece.data for n, piece in enumerate(pieces) if piece.data is not None}
    if not wanted:
        wanted = {n: piece.text.encode() for n, piece in enumerate(pieces) if not piece.about}
    saved = {}
    for count, (number, data) in enumerate(wanted.items(), 1):
        path = output if count == 1 else output.with_stem(f"{output.stem}-{count}")
        try:
            path.write_bytes(data)
        except OSError as error:
            raise Failure(NO_OUTPUT, f"{path} cannot be written: {error.strerror}") from error
        saved[number] = path
    return saved
