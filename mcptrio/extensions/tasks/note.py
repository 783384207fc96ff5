"""The note of a task, for another worker to run it again when its worker has died."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from mcptrio._actors.journal import Journal
from mcptrio._wire.jsonrpc import Request
from mcptrio.auth.request_state import Recorded
from mcptrio.auth.server.principal import Principal, PrincipalRecord
from mcptrio.server.context import Context

MAX_NOTE: Final = 64 * 1024
"""A task with a larger request or larger answers does not run again."""
EARLIER: Final = "task"
"""The key of the `EarlierRun` in the data of the exchange that continues it."""
LEFT_OUT: Final = ("requestState", "inputResponses")
"""Parameters of a round that are no part of the request itself."""


class TaskNote(Struct, array_like=True):
    """The request of a task, its caller, and the journal of its call."""

    method: str
    params: dict[str, Any]
    created: float
    owner: str
    """The owner of what it uses in shared tables."""
    caller: PrincipalRecord | None
    journal: Recorded
    answered: Sequence[str]
    """The keys of questions that were answered: a client does not answer a key twice."""

    @classmethod
    def make(cls, origin: Context, created: float, owner: str, answered: Sequence[str]) -> bytes:
        """Encode the note of a task; empty if it is too large, or something in it has no JSON form."""
        start, principal = origin._call.start, origin._session.principal
        caller = None if principal is None else PrincipalRecord.of(principal)
        params = {key: value for key, value in start.params.items() if key not in LEFT_OUT}
        journal = origin._call.journal.seal({})
        try:
            note = msgspec.json.encode(cls(start.method, params, created, owner, caller, journal, answered))
        except (TypeError, ValueError):
            return b""
        return note if len(note) <= MAX_NOTE else b""

    @classmethod
    def read(cls, note: bytes) -> TaskNote:
        return msgspec.json.decode(note, type=cls)

    @property
    def principal(self) -> Principal | None:
        return None if self.caller is None else self.caller.principal

    @property
    def request(self) -> Request:
        return Request(0, self.method, self.params)


class EarlierRun(Struct):
    """A task that is run again."""

    task: str
    note: TaskNote
    begun: bool = False
    """Whether the task runs again."""

    @property
    def journal(self) -> Journal:
        return Journal.open(self.note.journal, None)
