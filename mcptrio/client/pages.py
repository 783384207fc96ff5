"""Paginated lists: bounded, with an error for a list that does not end."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from attrs import define, field

from mcptrio.errors import CapabilityMissing, RemoteProtocolError

T = TypeVar("T")


@define(eq=False, repr=False, kw_only=True)
class Pages(Generic[T]):
    """An iterator over the items of all pages; each page is fetched when it is needed.

    A class instead of an async generator, because it needs no closing when the loop is left early.
    """

    method: str
    fetch: Callable[[dict[str, Any]], Awaitable[tuple[tuple[T, ...], str | None]]]
    """Parameters of the request -> the items of the page and the cursor of the next one."""
    max_pages: int
    max_items: int
    _items: deque[T] = field(factory=deque, init=False)
    _cursor: str | None = field(default=None, init=False)
    _seen: set[str] = field(factory=set, init=False)
    _pages: int = field(default=0, init=False)
    _count: int = field(default=0, init=False)

    def __aiter__(self) -> Pages[T]:
        return self

    async def __anext__(self) -> T:
        while not self._items:
            if self._pages and self._cursor is None:
                raise StopAsyncIteration
            await self._next_page()
        return self._items.popleft()

    async def _next_page(self) -> None:
        if self._pages >= self.max_pages:
            raise RemoteProtocolError(f"{self.method} has more than {self.max_pages} pages")
        params = {} if self._cursor is None else {"cursor": self._cursor}
        try:
            items, cursor = await self.fetch(params)
        except CapabilityMissing:
            items, cursor = (), None  # a server without the method has an empty list
        self._pages += 1
        self._count += len(items)
        if self._count > self.max_items:
            raise RemoteProtocolError(f"{self.method} has more than {self.max_items} entries")
        if not cursor:
            cursor = None  # some servers end a list with an empty cursor
        else:
            if cursor in self._seen:
                raise RemoteProtocolError(f"{self.method} returned the same cursor twice, so its pages would never end")
            self._seen.add(cursor)
        self._items.extend(items)
        self._cursor = cursor

    async def all(self) -> tuple[T, ...]:
        return tuple([item async for item in self])
