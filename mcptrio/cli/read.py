"""`mcptrio read TARGET URI`: print a resource."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from mcptrio._wire.objects.converter import unstructure
from mcptrio.cli.command import run
from mcptrio.cli.connection import open_client
from mcptrio.cli.content import Piece, pieces_of, show
from mcptrio.cli.options import ConnectionOptions, TargetText
from mcptrio.cli.terminal import print_json, write_out
from mcptrio.errors import MCPError

EXAMPLES: Final = """\
examples:
  mcptrio read server.py notes://index
  mcptrio read https://example.org/mcp file:///logo.png > logo.png
  mcptrio read notes://index --json -- python server.py"""


async def read(
    target: TargetText,
    uri: str,
    /,
    *,
    output: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    options: ConnectionOptions = ConnectionOptions(),  # noqa: B008  # frozen
) -> int:
    """Read a resource and print it.

    Parameters
    ----------
    uri
        The URI of the resource.
    output
        Save the contents here.
    """
    terminal = options.terminal()

    async def work() -> int:
        async with open_client(target, options, terminal) as client:
            try:
                result = await client.read_resource(uri, on_progress=terminal.progress)
            except MCPError as error:
                if uri in error.message:
                    raise
                raise MCPError(error.code, f"{uri}: {error.message}", error.data) from error
        terminal.stop_progress()
        pieces = pieces_of(result.contents)
        if options.json:
            print_json(unstructure(result))
        elif output is None and len(pieces) == 1 and not terminal.out.is_terminal:
            write_out(_bytes(pieces[0]))
        else:
            show(terminal, pieces, output=output)
        return 0

    return await run(terminal, work)


def _bytes(piece: Piece) -> bytes:
    """Return binary contents unchanged, and text as whole lines; `--output` saves the exact text."""
    if piece.data is not None:
        return piece.data
    text = piece.text if piece.text.endswith("\n") else f"{piece.text}\n"
    return text.encode(errors="surrogatepass")
