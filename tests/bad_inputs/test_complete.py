"""The catalogue as it was drawn up: no row may get lost. Numbers are not contiguous; more rows are welcome."""

from __future__ import annotations

from collections.abc import Iterator

from .runner import ROWS
from .speaker import DATES

DRAWN_UP = {
    "D": "01-02 04-07 09-12 14-17",
    "H": "01-02 04-07 09-12 14-17 19-22 24-27 29-31 34-37",
    "J": "01-02 04-07 09-12 14-17 19-22",
    "K": "01-02 04-07 09-10",
    "O": "01-02 04-07 09-12 14-17 19-21",
    "R": "01-02 04-07 09-12 14-17 19-22 24-27 29-32 34-37 39-42 44-47",
    "S": "01-02 04-07 09-12 14 20-40",
    "U": "01-02",
    "W": "01-02 04-07 09-11",
    "X": "01-02 04-07",
}
"""By letter: JSON, JSON-RPC, HTTP, WebSocket, sessions, stdio, OAuth, URIs and schemas, slow peers. HTTP/2 is off, so
H32, a path in it, has no row: what a broken connection may do is tested with faults put into the connection itself."""


def drawn_up() -> Iterator[str]:
    for letter, numbers in DRAWN_UP.items():
        for part in numbers.split():
            first, _, last = part.partition("-")
            for number in range(int(first), int(last or first) + 1):
                yield f"{letter}{number:02}"


def test_no_row_is_missing() -> None:
    assert set(drawn_up()) - {row.id for row in ROWS} == set()


def test_every_row_says_for_which_revisions_it_holds() -> None:
    for row in ROWS:
        assert {case.date for case in row.cases} <= {*DATES, "any"}
        assert row.input
        assert row.basis
