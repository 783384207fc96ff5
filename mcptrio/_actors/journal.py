"""The journal of a call: its answered questions and `once` results, so that the call can run again from the top.

Where questions travel in results, a call may outlive the process that started it: the journal travels in the sealed
state, and a process that does not hold the call replays it. Elsewhere only `once` uses the journal.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from mcptrio._struct import Entity
from mcptrio.auth.request_state import Recorded, digest
from mcptrio.errors import LocalProtocolError, RequestTimeout

if TYPE_CHECKING:
    from mcptrio._peer.messages import Asked

MISSING: Final = object()
Read = Callable[[Any], Any]
"""Converts an answer to the value that the handler gets. Raises if the answer is unusable; it may run user code."""


class Question(Struct, frozen=True):
    """One ask of a call."""

    key: str
    """Its key in `inputRequests`."""
    id: str
    """The digest of its key, how often the key was used before, method and parameters: the same in every process."""


class Journal(Entity):
    """The recorded answers and `once` results of one call, across the processes that run it."""

    chain: str = field(default_factory=lambda: secrets.token_hex(12))
    """Identifies the call across its runs."""
    answers: dict[str, list[Any]] = field(default_factory=dict)
    """Question id -> a list with the answer; an empty list if the question timed out."""
    done: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Key -> the name of the function that `once` ran, and its result as JSON text; empty if it has not finished."""
    ticket: str = ""
    """Names the state that this journal came in, if the store must be asked whether another process has used it."""
    given: dict[str, Any] = field(default_factory=dict)
    """Answers that came with the request and were not used yet."""
    expected: Mapping[str, str] | None = None
    """Key -> id of the question that was sent under it; None if the answers came without having been asked for."""
    _times: dict[str, int] = field(default_factory=dict)
    _waiting: set[str] = field(default_factory=set)
    """Explicit keys of the asks in progress."""

    @contextmanager
    def asking(self, key: str | None, method: str, params: Mapping[str, Any]) -> Iterator[Question]:
        """Name an ask while it is in progress. Keys are counted, because a loop may use one key again and again.

        The order of asking is not part of a default key, because Trio schedules the tasks of a call in random order.
        For the same reason an explicit key can name only one ask at a time.

        Raises:
            LocalProtocolError: another task of the call waits for an answer under this key.
        """
        if key in self._waiting:
            raise LocalProtocolError(
                f"another task of this call waits for an answer under the key {key!r}; asks that wait at the same time "
                "need different keys"
            )
        asked = digest([method, params])
        base = asked[:16] if key is None else key
        times = self._times[base] = self._times.get(base, 0) + 1
        shown = base if key is not None and times == 1 else f"{base}-{times}"
        if key is not None:
            self._waiting.add(key)
        try:
            yield Question(shown, digest([base, times, asked]))
        finally:
            if key is not None:
                self._waiting.discard(key)

    def look_up(self, question: Question) -> Any:
        """Return the recorded answer, or one that came with the request, or MISSING.

        Raises:
            RequestTimeout: the record says that the question timed out.
        """
        recorded = self.answers.get(question.id)
        if recorded is not None:
            if not recorded:
                raise RequestTimeout("the question was not answered in time")
            return recorded[0]
        if self.expected is None or self.expected.get(question.key) == question.id:
            return self.given.pop(question.key, MISSING)
        return MISSING

    def record(self, question: Question, *answer: Any) -> None:
        """Record the answer to a question, or with no answer that it timed out."""
        self.answers[question.id] = list(answer)

    def seal(self, questions: Mapping[str, Asked]) -> Recorded:
        """Return the part of the state that a replay needs, while `questions` wait for their answers."""
        return Recorded(self.chain, self.answers, self.done, {key: asked.id for key, asked in questions.items()})

    @classmethod
    def open(cls, recorded: Recorded, given: object, ticket: str = "") -> Journal:
        """Return the journal of a call that is replayed, with the answers that came with its request."""
        return cls(
            chain=recorded.chain,
            answers=recorded.answers,
            done=recorded.done,
            given=dict(given) if isinstance(given, dict) else {},
            expected=recorded.asked,
            ticket=ticket,
        )
