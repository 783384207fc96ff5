"""Files that handlers name in what they return: read in a thread, since a disk may take its time."""

from __future__ import annotations

from typing import Any

import trio

from mcptrio import types


def names_files(value: Any) -> bool:
    """Whether there is an `Image(path=…)` or `Audio(path=…)` in what a handler returned."""
    if isinstance(value, list | tuple):
        return any(_names_file(item) for item in value)
    return _names_file(value)


async def read_files(value: Any, limiter: trio.CapacityLimiter | None = None) -> Any:
    """The same with the contents in place of the files."""
    return await trio.to_thread.run_sync(_read, value, limiter=limiter, abandon_on_cancel=True)


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
