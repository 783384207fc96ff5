"""What every Python contender's server shares: its arguments, and functions to fill a long list of tools with."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0, help="serve HTTP here; without it stdio")
    parser.add_argument("--form", choices=("json", "sse"), default="json", help="how calls are answered over HTTP")
    parser.add_argument("--tools", type=int, default=0, help="how many tools to list beside those that are called")
    parser.add_argument("--lane", default="hypercorn", help="mcptrio only")
    parser.add_argument("--store", default="memory", help="mcptrio only")
    return parser.parse_args()


def fillers(count: int) -> Iterator[Callable[..., Any]]:
    """Functions of a usual size: three parameters, two of them optional, and a sentence about what they do."""
    for number in range(count):

        async def tool(query: str, limit: int = 10, exact: bool = False) -> str:
            """Search one of the collections and return what was found there, the best match first."""
            return query

        tool.__name__ = tool.__qualname__ = f"search_{number:04}"
        yield tool
