"""Code shared by the Python contenders' servers: their arguments, and functions that fill a long list of tools."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0, help="serve HTTP on this port; default: serve stdio")
    parser.add_argument("--form", choices=("json", "sse"), default="json", help="how calls are answered over HTTP")
    parser.add_argument("--tools", type=int, default=0, help="number of tools to list besides those that are called")
    parser.add_argument("--engine", default="hypercorn", help="mcptrio only")
    parser.add_argument("--store", default="memory", help="mcptrio only")
    return parser.parse_args()


def fillers(count: int) -> Iterator[Callable[..., Any]]:
    """Make functions of a typical size: three parameters, two of them optional, and a one-sentence docstring."""
    for number in range(count):

        async def tool(query: str, limit: int = 10, exact: bool = False) -> str:
            """Search one of the collections and return what was found there, the best match first."""
            return query

        tool.__name__ = tool.__qualname__ = f"search_{number:04}"
        yield tool
