"""Roots: the directories that the host lets a server work in."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePath
from typing import TypeAlias

from mcptrio.types import ListRootsResult, Root

RootLike: TypeAlias = Root | str | PurePath
"""A root, its URI, or the path of a directory."""


def to_result(roots: Iterable[RootLike]) -> ListRootsResult:
    return ListRootsResult(roots=[to_root(root) for root in roots])


def to_root(root: RootLike) -> Root:
    if isinstance(root, Root):
        return root
    if isinstance(root, PurePath):
        return Root(uri=Path(root).absolute().as_uri(), name=root.name or None)
    return Root(uri=root)
