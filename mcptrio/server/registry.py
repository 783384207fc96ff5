"""A registry: named entries in the order they were declared, refusing duplicates, telling when it changes."""

from __future__ import annotations

import string
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import field

from mcptrio._struct import Entity
from mcptrio.errors import INVALID_PARAMS, DeclarationError, McpError

T = TypeVar("T")
R = TypeVar("R")
PageSize = int | Mapping[str, int] | None

# 2025-11-25 server/tools: letters, digits, underscore, dash, dot (and slash, from 2026-07-28), at most 128 characters
_SIGNS: Final = string.ascii_letters + string.digits + "_-./"
_LONGEST: Final = 128


def check_name(kind: str, name: str) -> str:
    if not 0 < len(name) <= _LONGEST or name.strip(_SIGNS):
        raise DeclarationError(
            f"{name!r:.140} is not a valid {kind} name: use 1 to 128 letters, digits and the signs _ - . /"
        )
    return name


def page_size_of(page_size: PageSize, kind: str) -> int | None:
    """How many entries a page of this list has, as was said for all lists or for some."""
    size = page_size.get(kind) if isinstance(page_size, Mapping) else page_size
    if size is not None and size < 1:
        raise DeclarationError(f"page_size must be at least 1, not {size}")
    return size


class Registry(Entity, Generic[T]):
    """Entries of one kind. Each has a serial number, so that a page of a list can say where the next one begins."""

    kind: str
    _entries: dict[str, tuple[int, T]] = field(default_factory=dict)
    _serial: int = 0
    version: int = 0
    """Counts the changes; what was made from an older version is stale."""
    on_change: list[Callable[[], None]] = field(default_factory=list)
    _pages: dict[Any, msgspec.Raw] = field(default_factory=dict)
    _found: dict[str, Any] = field(default_factory=dict)

    def add(self, key: str, entry: T) -> None:
        """Raises `DeclarationError` if there is an entry of that name already."""
        self.check_free(key)
        self._serial += 1
        self._entries[key] = (self._serial, entry)
        self._changed()

    def check_free(self, key: str) -> None:
        if key in self._entries:
            raise DeclarationError(
                f"there is a {self.kind} {key!r} already; give one of the two another name, or remove the old one first"
            )

    def remove(self, key: str) -> None:
        if key not in self._entries:
            raise DeclarationError(f"there is no {self.kind} {key!r} to remove")
        del self._entries[key]
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        self._pages.clear()
        self._found.clear()
        for callback in self.on_change:
            callback()

    def get(self, key: str) -> T | None:
        found = self._entries.get(key)
        return None if found is None else found[1]

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[T]:
        return (entry for _, entry in tuple(self._entries.values()))

    def items(self) -> Iterator[tuple[str, T]]:
        return ((key, entry) for key, (_, entry) in tuple(self._entries.items()))

    # -- pages

    def page(self, cursor: str | None, size: int | None, wanted: Callable[[T], bool]) -> tuple[list[T], str | None]:
        """The entries after `cursor`, at most `size`, and the cursor of what follows.

        Raises:
            McpError: the cursor is none of ours.
        """
        after = 0 if cursor is None else self._read_cursor(cursor)
        found: list[T] = []
        last = 0
        for serial, entry in tuple(self._entries.values()):
            if serial <= after or not wanted(entry):
                continue
            if size is not None and len(found) == size:
                return found, self._write_cursor(last)
            found.append(entry)
            last = serial
        return found, None

    def cached_page(self, key: Any, make: Callable[[], Any]) -> msgspec.Raw:
        """A page as bytes, encoded once and kept until the registry changes."""
        raw = self._pages.get(key)
        if raw is None:
            raw = msgspec.Raw(msgspec.json.encode(make()))
            if len(self._pages) < 1024:  # one per revision and page; cursors are checked, so nobody can make more
                self._pages[key] = raw
        return raw

    def find_once(self, key: str, find: Callable[[Iterable[T]], R]) -> R:
        """What was found out about all entries, kept until the registry changes."""
        if key not in self._found:
            self._found[key] = find(self)
        found: R = self._found[key]
        return found

    def _write_cursor(self, serial: int) -> str:
        return urlsafe_b64encode(f"{self.kind}:{serial}".encode()).decode().rstrip("=")

    def _read_cursor(self, cursor: str) -> int:
        try:
            text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
            kind, _, serial = text.partition(":")
            number = int(serial)
        except ValueError:
            kind, number = "", 0
        if kind != self.kind or not 0 < number <= self._serial or self._write_cursor(number) != cursor:
            # server/utilities/pagination: invalid cursors SHOULD result in -32602
            raise McpError(INVALID_PARAMS, "unknown cursor: start again from the first page")
        return number
