"""Files in the results of handlers: read in a thread, because a disk may be slow."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from mcptrio import types

if TYPE_CHECKING:
    from mcptrio.server.asks import ContextAsks


def names_files(value: Any) -> bool:
    """Return whether a handler's result contains an `Image(path=…)` or `Audio(path=…)`."""
    if isinstance(value, list | tuple):
        return any(_names_file(item) for item in value)
    return _names_file(value)


async def read_files(value: Any, ctx: ContextAsks) -> Any:
    """Return the value with the contents in place of the file names."""
    return await ctx._session.runtime.threads.run(ctx._call, partial(_read, value))


def _names_file(value: Any) -> bool:
    if type(value) in (str, dict, int, float, bool):
        return False
    if isinstance(value, types.Message):
        value = value.content
    return isinstance(value, types.Image | types.Audio) and value.path is not None


def _read(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_read_one(item) for item in value]
    return _read_one(value)


def _read_one(value: Any) -> Any:
    if not _names_file(value):
        return value
    return value.to_prompt_message() if isinstance(value, types.Message) else types.to_content(value)
