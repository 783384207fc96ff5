"""Faults of a value: every fault at once, each with its path.

arguments.items[2].qty: expected integer, got "x"
arguments.addr: unexpected field "nope"
arguments.a: required
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from mcptrio.errors import MCPTrioError

# A place is a chain from the leaf to the root, so that a valid value costs one small tuple per step and no text.
Place: TypeAlias = "str | tuple[Place, str | int]"

MAX_FAULTS: Final = 100  # cap the reported faults so that bad input cannot inflate the response
MAX_GUESSES: Final = 10_000
SHOWN: Final = 80
_LISTED: Final = 20


class ArgumentFaults(MCPTrioError, ValueError):
    """A value does not fit its type; `faults` holds one line for each fault."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


class Faults:
    """The faults found so far. Reading stops soon after the list is full."""

    __slots__ = ("_guesses", "count", "texts")

    def __init__(self, guesses: list[int] | None = None) -> None:
        self.count = 0
        self.texts: list[str] = []
        self._guesses = [0] if guesses is None else guesses

    def add(self, place: Place, text: str) -> Any:
        """Note one fault. Returns None, so that a reader can end with `return faults.add(…)`."""
        self.count += 1
        if self.count <= MAX_FAULTS:
            self.texts.append(f"{path(place)}: {text}")
        return None

    def aside(self) -> Faults:
        """Return an empty list for trying one member of a union.

        Nested attempts multiply, so all lists of one value share a budget.
        """
        self._guesses[0] += 1
        return Faults(self._guesses)

    @property
    def full(self) -> bool:
        """Whether no further fault would be reported, so that reading can stop."""
        return self.count > MAX_FAULTS

    @property
    def out_of_guesses(self) -> bool:
        """Whether so many members of unions were tried for one value that no more are."""
        return self._guesses[0] >= MAX_GUESSES

    def take(self, other: Faults) -> None:
        self.texts += other.texts[: max(0, MAX_FAULTS - self.count)]
        self.count += other.count

    def error(self) -> ArgumentFaults:
        more = self.count > len(self.texts)
        return ArgumentFaults((*self.texts, "and more") if more else tuple(self.texts))


def path(place: Place) -> str:
    parts: list[str] = []
    while not isinstance(place, str):
        place, key = place
        parts.append(f"[{key}]" if isinstance(key, int) else f".{key}" if key.isidentifier() else f"[{show(key)}]")
    return place + "".join(reversed(parts))


def show(value: Any) -> str:
    """Return a short JSON-like rendering: scalars up to 80 characters, containers only by kind."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value) if value.bit_length() <= 256 else f"an integer of {value.bit_length()} bits"
        case float():
            return repr(value) if math.isfinite(value) else "a number that is not finite"
        case str():
            cut = value if len(value) <= SHOWN else value[: SHOWN - 1] + "…"
            return '"' + cut.translate(_ESCAPES) + '"'
        case Mapping():
            return "an object"
        case list() | tuple():
            return "an array"
        case _:
            return f"a Python {type(value).__name__}"


_ESCAPES: Final = {ord('"'): '\\"', ord("\\"): "\\\\", **{code: f"\\u{code:04x}" for code in (*range(32), 127)}}


def listed(words: list[str]) -> str:
    """Format a list of words: `a`, `a or b`, `a, b or c`; a long list is truncated."""
    if len(words) > _LISTED:
        words = [*words[:_LISTED], f"{len(words) - _LISTED} others"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
