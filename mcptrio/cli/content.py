"""Printing content blocks and resources: text unchanged, other content as one line, binary content saved in files."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from rich.text import Text

from mcptrio.cli.exit_codes import NO_OUTPUT, Failure
from mcptrio.cli.terminal import Terminal, clean, escape_json, to_json, write_out
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
    """One piece of content: `text`, or `data` with a description."""

    text: str = ""
    data: bytes | None = None
    about: str = ""


def pieces_of(blocks: Iterable[Any]) -> list[Piece]:
    """Convert content blocks or resource contents to pieces.

    Raises:
        RemoteProtocolError: binary content is not valid base64.
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
            return Piece(about=f"content of unknown type {block.type!r}")
    return Piece(about=f"content of type {type(block).__name__}")


def _binary(encoded: str, mime_type: str, uri: str = "") -> Piece:
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RemoteProtocolError(f"the server sent {mime_type} content that is not valid base64") from error
    return Piece(data=data, about=f"{mime_type}, {len(data)} bytes" + (f", {uri}" if uri else ""))


def show(terminal: Terminal, pieces: Sequence[Piece], *, output: Path | None = None) -> None:
    """Print pieces; with `output`, save the binary ones there instead (the text, if none is binary)."""
    saved = save(pieces, output) if output is not None else {}
    for number, piece in enumerate(pieces):
        if number in saved:
            terminal.note(f"{piece.about or 'text'} saved in {saved[number]}")
        elif piece.data is not None:
            terminal.out.print(Text(f"[{clean(piece.about)}; save it with --output FILE]", style="dim"), soft_wrap=True)
        elif piece.about:
            terminal.out.print(Text(clean(piece.about), style="cyan"), soft_wrap=True)
        else:
            print_text(terminal, piece.text)


def print_text(terminal: Terminal, text: str) -> None:
    """Print text of a server: escaped on a terminal, unchanged elsewhere."""
    if terminal.out.is_terminal:
        terminal.out.print(Text(clean(text)), soft_wrap=True)
    else:
        write_out(text.encode(errors="backslashreplace") + (b"" if text.endswith("\n") else b"\n"))


def print_value(terminal: Terminal, value: Any) -> None:
    """Print a JSON value, with colours on a terminal."""
    text = to_json(value).decode()
    if not terminal.out.is_terminal:
        print_text(terminal, text)
        return
    from rich.highlighter import JSONHighlighter

    terminal.out.print(JSONHighlighter()(Text(escape_json(text))), soft_wrap=True)


def save(pieces: Sequence[Piece], output: Path) -> dict[int, Path]:
    """Write the binary pieces (the text, if none is binary) to files; names are numbered from the second on.

    Raises:
        Failure: a file cannot be written.
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
            raise Failure(NO_OUTPUT, f"cannot write {path}: {error.strerror}") from error
        saved[number] = path
    return saved
