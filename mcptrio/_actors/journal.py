"""The journal of a call: what was answered and what was done, so that the call can be run again from the top.

Where questions travel in results, a call may outlive the process that began it: the journal travels with the sealed
state, and a process that does not hold the call replays it. Elsewhere only `once` uses it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import field

from mcptrio._struct import Entity
from mcptrio._wire.request_state import digest
from mcptrio.errors import MCPTrioException

MISSING: Final = object()
Check = Callable[[Any], object]


class Journal(Entity):
    """What one call knows of its earlier lives, and has learnt in this one."""

    chain: str = field(default_factory=lambda: secrets.token_hex(12))
    """Names the call across its lives."""
    answers: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """Key -> the digest of the question, and its answer."""
    done: dict[str, Any] = field(default_factory=dict)
    """Key -> what `once` gave back."""
    ticket: str = ""
    """The state that this journal came in, if it still has to be found out whether another process has used it."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Answers that came with the request, not looked at yet."""
    expected: Mapping[str, str] | None = None
    """Key -> the digest of the question that they answer; None if they came without having been asked for."""
    _times: dict[str, int] = field(default_factory=dict)

    def key_for(self, question: str) -> str:
        """A key for a question that was given none: what is asked, and how often it was asked before.

        Not the order of asking: tasks of one call are scheduled in random order.
        """
        times = self._times[question] = self._times.get(question, 0) + 1
        return f"{question[:16]}-{times}"

    def look_up(self, key: str, question: str, check: Check | None) -> Any:
        """The answer that is known already, or MISSING. A question with another wording than was answered is new."""
        recorded = self.answers.get(key)
        if recorded is not None:
            return recorded[1] if recorded[0] == question else MISSING
        if key in self.given and (self.expected is None or self.expected.get(key) == question):
            answer = self.given[key]
            try:
                if check is not None:
                    check(answer)
            except (MCPTrioException, ValueError):
                return MISSING
            self.answers[key] = (question, answer)
            return answer
        return MISSING

    def record(self, key: str, question: str, answer: Any) -> None:
        self.answers[key] = (question, answer)

    def to_wire(self, questions: Mapping[str, Any]) -> dict[str, Any]:
        """What travels with the state while `questions` wait for their answers."""
        asked = {key: digest([q["method"], q["params"]]) for key, q in questions.items()}
        return {"c": self.chain, "a": self.answers, "o": self.done, "q": asked}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any], given: object, ticket: str = "") -> Journal:
        return cls(
            chain=wire["c"],
            answers={key: (question, answer) for key, (question, answer) in wire["a"].items()},
            done=dict(wire["o"]),
            given=given if isinstance(given, dict) else {},
            expected=wire["q"],
            ticket=ticket,
        )
