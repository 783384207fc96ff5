"""Notes that survive a restart: resources, a template, completion, subscriptions, and SQLite in threads.

    mcptrio run examples/notes.py                    keeps them in notes.db, or where NOTES_DB says

Plain functions run in a thread of their own, so the blocking `sqlite3` of the standard library is fine here.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass

from mcptrio import ResourceLink, ResourceNotFound, Server, ToolError

server = Server("notes", version="1.0.0", page_size=50)
TABLE = "CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, text TEXT, written TEXT DEFAULT CURRENT_TIMESTAMP)"


@dataclass
class Note:
    name: str
    text: str
    written: str


def ask(sql: str, *values: str) -> list[tuple[str, ...]]:
    """Run one statement on a connection of its own: threads cannot share one."""
    with closing(sqlite3.connect(os.environ.get("NOTES_DB", "notes.db"), timeout=10)) as db, db:
        db.execute(TABLE)
        return db.execute(sql, values).fetchall()


@server.tool(idempotent=True)
def write_note(name: str, text: str) -> ResourceLink:
    """Write a note, or replace it.

    Args:
        name: A short name, without slashes.
        text: Any text.
    """
    if not name or "/" in name:
        raise ToolError("The name of a note is not empty and has no slashes.")
    ask("INSERT OR REPLACE INTO notes (name, text) VALUES (?, ?)", name, text)
    server.notify_resource_updated(note.uri(name=name))  # from this thread, to every client that subscribed
    server.notify_resource_updated("notes://index")
    return ResourceLink(note.uri(name=name), name=name)


@server.tool(read_only=True)
def search_notes(word: str) -> list[Note]:
    """Find the notes that hold a word."""
    return [Note(*row) for row in ask("SELECT * FROM notes WHERE instr(text, ?) ORDER BY name", word)]


@server.resource("notes://index", mime_type="application/json")
def index() -> list[str]:
    """The names of all notes."""
    return [name for (name,) in ask("SELECT name FROM notes ORDER BY name")]


@server.resource("notes://note/{name}", mime_type="application/json")
def note(name: str) -> Note:
    """One note."""
    for row in ask("SELECT * FROM notes WHERE name = ?", name):
        return Note(*row)
    raise ResourceNotFound


@note.complete("name")
def names_of_notes(prefix: str) -> list[str]:
    return [name for name in index() if name.startswith(prefix)]


if __name__ == "__main__":
    server.run()
