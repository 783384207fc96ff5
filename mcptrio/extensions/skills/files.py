"""Reading files below a folder: no name and no link leads out of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from mcptrio.errors import MCPTrioError

MAX_DEPTH: Final = 64
_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_DRIVE_OR_STREAM: Final = ":"


class UnsafePath(MCPTrioError):
    """A relative path that leads, or might lead, out of its folder."""


def safe_parts(relative: str) -> tuple[str, ...]:
    """Split a relative path at `/` and check its parts.

    Raises:
        UnsafePath: it is absolute, contains `..`, or has characters that some system treats specially.
    """
    parts = tuple(relative.split("/"))
    if not relative or len(parts) > MAX_DEPTH:
        raise UnsafePath(f"not a path inside the folder: {relative!r:.200}")
    for part in parts:
        # Percent signs are refused too: a later reader must not decode the path a second time.
        strange = any(sign in part for sign in ("\\", "\0", "%", _DRIVE_OR_STREAM)) or part != part.strip(" ")
        if part in ("", ".", "..") or strange or not part.isprintable() or part.endswith("."):
            raise UnsafePath(f"not a path inside the folder: {relative!r:.200}")
    return parts


def safe_join(root: Path, relative: str) -> Path:
    """Return the path below `root`, with every link resolved.

    Raises:
        UnsafePath: it is not below `root`.
    """
    base = root.resolve()
    path = base.joinpath(*safe_parts(relative)).resolve()
    if not path.is_relative_to(base):
        raise UnsafePath(f"not a path inside the folder: {relative!r:.200}")
    return path


def safe_read(root: Path, relative: str, *, limit: int) -> bytes:
    """Read a regular file below `root` without following links.

    Raises:
        UnsafePath: it leads out of `root`, over a link, or to something that is not a file.
        OSError: it cannot be read.
    """
    parts = safe_parts(relative)
    if os.open not in os.supports_dir_fd:  # Windows
        return _read(os.open(safe_join(root, relative), os.O_RDONLY | getattr(os, "O_BINARY", 0)), relative, limit)
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            inner = _open_at(part, os.O_RDONLY | os.O_DIRECTORY | _NO_FOLLOW, folder, relative)
            os.close(folder)
            folder = inner
        return _read(_open_at(parts[-1], os.O_RDONLY | _NO_FOLLOW, folder, relative), relative, limit)
    finally:
        os.close(folder)


def _open_at(part: str, flags: int, folder: int, relative: str) -> int:
    try:
        return os.open(part, flags, dir_fd=folder)
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as error:  # a link (ELOOP), or no directory
        raise UnsafePath(f"not a file inside the folder: {relative!r:.200}") from error


def _read(descriptor: int, relative: str, limit: int) -> bytes:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnsafePath(f"not a file: {relative!r:.200}")
    with open(descriptor, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(f"{relative!r:.200} is larger than {limit} bytes")
    return data
