"""The conformance fixture server, with its watched text in the file `WATCHED_TEXT`.

The fixture keeps the text in memory, so each worker has its own. A server that several workers serve keeps its data
where all of them find it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "conformance"))

import server as fixture

FILE = Path(os.environ["WATCHED_TEXT"])


class SharedSeen:
    """The `Seen` of the fixture, with the watched text of all workers."""

    def __init__(self) -> None:
        self.cancelled = 0

    @property
    def watched(self) -> str:
        return FILE.read_text()

    @watched.setter
    def watched(self, text: str) -> None:
        FILE.write_text(text)


fixture.seen = SharedSeen()  # type: ignore[assignment]
server = fixture.server
