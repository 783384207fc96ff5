"""`mcptrio read TARGET URI`: print a resource."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter

from mcptrio._wire.converter import unstructure
from mcptrio.cli.connecting import make_client
from mcptrio.cli.options import Options
from mcptrio.cli.screen import Screen, print_json, write_out
from mcptrio.cli.showing import Piece, pieces_of, show
from mcptrio.cli.talk import run

EXAMPLES: Final = """\
examples:
  mcptrio read server.py notes://index
  mcptrio read https://example.org/mcp file:///logo.png > logo.png
  mcptrio read notes://index --json -- python server.py"""


async def read(
    target: str,
    uri: str,
    /,
    *,
    output: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    options: Options = Options(),  # noqa: B008  # frozen
) -> int:
    """Read a resource and print it.

    Parameters
    ----------
    target
        A URL (http, https, ws, wss), a server file, a command line in one argument; or a command after --.
    uri
        The URI of the resource.
    output
        Save the contents here.
    """
    screen = Screen(json=options.json, verbose=options.verbose)

    async def work() -> int:
        async with make_client(target, options, screen) as client:
            result = await client.read_resource(uri, on_progress=screen.progress)
        screen.stop_progress()
        pieces = pieces_of(result.contents)
        if options.json:
            print_json(unstructure(result))
        elif output is None and len(pieces) == 1 and not screen.out.is_terminal:
            write_out(_bytes(pieces[0]))  # into a file or a pipe: the contents and nothing else
        else:
            show(screen, pieces, output=output)
        return 0

    return await run(screen, work)


def _bytes(piece: Piece) -> bytes:
    return piece.data if piece.data is not None else piece.text.encode(errors="surrogatepass")
