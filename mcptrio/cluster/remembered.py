"""The homes of sessions whose requests this worker has forwarded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mcptrio.cluster.link_client import PeerLink
from mcptrio.stores.base import HomeAt

MAX_REMEMBERED: Final = 10_000


class RememberedHomes:
    """A bounded memory of homes, so that the directory is not asked for each request.   Borrows: the links.

    An entry may be old. A worker serves a forwarded request only if the session is at home there, and answers that it
    is not otherwise; so an old entry costs one round trip, never a wrong answer. An entry counts only as long as the
    link to its worker is connected: a worker that is dead or leaves gets no request because of it. Owners have no
    shares of it: an entry that is dropped costs its session one question to the directory.
    """

    def __init__(self, links: Mapping[str, PeerLink], size: int = MAX_REMEMBERED) -> None:
        self._links = links
        self._size = size
        self._homes: dict[str, HomeAt] = {}  # the one that was used longest ago first

    def __len__(self) -> int:
        return len(self._homes)

    def find(self, session: str) -> HomeAt | None:
        home = self._homes.pop(session, None)
        if home is not None and (link := self._links.get(home.worker)) is not None and link.connected:
            self._homes[session] = home
            return home
        return None

    def note(self, session: str, home: HomeAt) -> None:
        self._homes[session] = home
        if len(self._homes) > self._size:
            del self._homes[next(iter(self._homes))]

    def drop(self, session: str) -> None:
        self._homes.pop(session, None)
