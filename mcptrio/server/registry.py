"""A registry: named entries in order of declaration, without duplicates, with callbacks for changes."""

from __future__ import annotations

import string
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
from msgspec import field

from mcptrio._struct import Entity
from mcptrio._wire.jsonrpc import encode_value
from mcptrio.errors import INVALID_PARAMS, DeclarationError, MCPError


class Listed(Protocol):
    """An entry of a list that clients may ask for."""

    @property
    def wire(self) -> dict[str, Any]:
        """Its object in the list."""
        ...


T = TypeVar("T", bound=Listed)
R = TypeVar("R")
PageSize = int | Mapping[str, int] | None
LISTS: Final = ("tools", "prompts", "resources", "templates")

# 2025-11-25 server/tools: letters, digits, underscore, dash, dot (and slash, from 2026-07-28), at most 128 characters
_SIGNS: Final = string.ascii_letters + string.digits + "_-./"
_LONGEST: Final = 128
_LONGEST_CURSOR: Final = 256


def check_name(kind: str, name: str) -> str:
    if not 0 < len(name) <= _LONGEST or name.strip(_SIGNS):
        raise DeclarationError(
            f"{name!r:.140} is not a valid {kind} name: use 1 to 128 letters, digits and the signs _ - . /"
        )
    return name


def page_size_of(page_size: PageSize, kind: str) -> int | None:
    """Return the page size of one list from the setting for all lists, or for some by name."""
    if isinstance(page_size, Mapping):
        if unknown := sorted(str(name) for name in page_size if name not in LISTS):
            raise DeclarationError(f"page_size: there is no list {', '.join(unknown)}; there are {', '.join(LISTS)}")
        size = page_size.get(kind)
    else:
        size = page_size
    if size is not None and (type(size) is not int or size < 1):
        raise DeclarationError(f"page_size is a whole number of at least 1, not {size!r:.80}")
    return size


class Registry(Entity, Generic[T]):
    """Entries of one kind. Each has a serial number, which page cursors refer to."""

    kind: str
    entries: dict[str, T] = field(default_factory=dict)
    """The entries by name. Changed only by `add` and `remove`."""
    _serials: dict[str, int] = field(default_factory=dict)
    _serial: int = 0
    on_change: list[Callable[[], None]] = field(default_factory=list)
    _pages: dict[Any, msgspec.Raw] = field(default_factory=dict)
    _found: dict[str, Any] = field(default_factory=dict)

    def add(self, key: str, entry: T) -> None:
        """Add an entry; raise `DeclarationError` if its name is taken, or it has no JSON form."""
        self.check_free(key)
        try:
            encode_value(entry.wire)  # one entry must not spoil the list
        except (TypeError, ValueError) as error:
            raise DeclarationError(f"{self.kind} {key!r:.200} cannot be listed: {error}") from None
        self._serial += 1
        self.entries[key] = entry
        self._serials[key] = self._serial
        self._changed()

    def check_free(self, key: str) -> None:
        if key in self.entries:
            raise DeclarationError(
                f"there is a {self.kind} {key!r} already; give one of the two another name, or remove the old one first"
            )

    def remove(self, key: str) -> None:
        if key not in self.entries:
            raise DeclarationError(f"there is no {self.kind} {key!r} to remove")
        del self.entries[key], self._serials[key]
        self._changed()

    def _changed(self) -> None:
        self._pages.clear()
        self._found.clear()
        for callback in self.on_change:
            callback()

    def get(self, key: str) -> T | None:
        return self.entries.get(key)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self.entries.values()))

    def items(self) -> Iterator[tuple[str, T]]:
        return iter(tuple(self.entries.items()))

    # -- pages

    def page(self, cursor: str | None, size: int | None, wanted: Callable[[T], bool]) -> tuple[list[T], str | None]:
        """Return at most `size` entries after `cursor`, and the cursor of the next page.

        Raises:
            MCPError: the cursor is invalid.
        """
        after = self._read_cursor(cursor) if cursor else 0  # some clients send "" for the first page
        found: list[T] = []
        last = 0
        for serial, entry in zip(self._serials.values(), self.entries.values(), strict=True):
            if serial <= after or not wanted(entry):
                continue
            if size is not None and len(found) == size:
                return found, self._write_cursor(last)
            found.append(entry)
            last = serial
        return found, None

    def cached_page(self, key: Any, make: Callable[[], Any]) -> msgspec.Raw:
        """Return an encoded page, from the cache until the registry changes."""
        raw = self._pages.get(key)
        if raw is None:
            raw = msgspec.Raw(msgspec.json.encode(make()))
            if len(self._pages) < 1024:  # one per revision and page; cursors are checked, so clients cannot create more
                self._pages[key] = raw
        return raw

    def find_once(self, key: str, find: Callable[[Iterable[T]], R]) -> R:
        """Return a value derived from all entries, cached until the registry changes."""
        if key not in self._found:
            self._found[key] = find(self)
        found: R = self._found[key]
        return found

    def _write_cursor(self, serial: int) -> str:
        return urlsafe_b64encode(f"{self.kind}:{serial}".encode()).decode().rstrip("=")

    def _read_cursor(self, cursor: str) -> int:
        try:
            if len(cursor) > _LONGEST_CURSOR:
                raise ValueError
            text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
            kind, _, serial = text.partition(":")
            number = int(serial)
        except ValueError:
            kind, number = "", 0
        if kind != self.kind or not 0 < number <= self._serial or self._write_cursor(number) != cursor:
            # server/utilities/pagination: invalid cursors SHOULD result in -32602
            raise MCPError(INVALID_PARAMS, "unknown cursor: start again from the first page")
        return number
