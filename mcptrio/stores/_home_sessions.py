"""The sessions that are at home in this process: their last records, and changes that the next commit writes."""

from __future__ import annotations

from collections.abc import Callable

from mcptrio.stores._backend import SessionRow
from mcptrio.stores._records import RecordChanges


class HomeSessions:
    """Sessions at home here. They are held to be written again into a storage that has lost them."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.changes: RecordChanges[SessionRow] = RecordChanges(changed)
        self._rows: dict[str, SessionRow] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, session: str) -> SessionRow | None:
        return self._rows.get(session)

    def hold(self, row: SessionRow) -> None:
        """Note a session that is stored as ours already."""
        self._rows[row.session] = row

    def put(self, row: SessionRow) -> None:
        """Have the record of a session written."""
        self._rows[row.session] = row
        self.changes.note(row.session, row)

    def release(self, row: SessionRow) -> None:
        """Have a session written as released. It is done when `changes` no longer has the session."""
        self._rows.pop(row.session, None)
        self.changes.note(row.session, row)

    def let_go(self, session: str) -> None:
        """Drop a session that another process has now, with the changes that were not written."""
        self._rows.pop(session, None)
        self.changes.undo(session)

    def forget(self, session: str) -> None:
        """Have a session removed."""
        self._rows.pop(session, None)
        self.changes.note(session, None)

    def put_all_again(self) -> None:
        for session, row in self._rows.items():
            self.changes.note(session, row)
