"""Resources, a template, completion, a prompt, and notifications of changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mcptrio import Message, ResourceNotFound, Server, ToolError, user

server = Server("library", page_size=50)


@dataclass
class Book:
    title: str
    author: str
    lent_to: str | None = None


BOOKS = {"emma": Book("Emma", "Jane Austen"), "ulysses": Book("Ulysses", "James Joyce")}


@server.resource("library://catalogue", mime_type="application/json")
async def catalogue() -> list[str]:
    """The keys of all books."""
    return sorted(BOOKS)


@server.resource("library://books/{key}", mime_type="application/json")
async def book(key: str) -> Book:
    """One book."""
    if key not in BOOKS:
        raise ResourceNotFound
    return BOOKS[key]


@book.complete("key")
async def keys(prefix: str) -> list[str]:
    return [key for key in BOOKS if key.startswith(prefix)]


@server.tool
async def lend(key: str, to: str) -> str:
    """Lend a book."""
    if key not in BOOKS:
        raise ToolError(f"There is no book {key!r}.")
    BOOKS[key].lent_to = to
    server.notify_resource_updated(book.uri(key=key))  # notifies every client that subscribed to it
    return f"{BOOKS[key].title} is lent to {to}."


@server.prompt
def review(title: str, tone: Literal["kind", "harsh"] = "kind") -> list[Message]:
    """Write a review of a book."""
    return [user(f"Write a {tone} review of {title!r} in five sentences.")]


@review.complete("title")
async def titles(prefix: str) -> list[str]:
    return [book.title for book in BOOKS.values() if book.title.startswith(prefix)]
