"""The keys and channels of one endpoint. All of them share a hash tag, so that scripts may touch any of them."""

from __future__ import annotations

from mcptrio.stores.base import StreamKey


class Keys:
    """The keys of the endpoint `name`."""

    def __init__(self, name: str) -> None:
        self.prefix = f"mcptrio:{{{name}}}:"
        self.secret = f"{self.prefix}secret"
        self.generation = f"{self.prefix}generation"
        """A random value that is created together with the data: another one means that the server was emptied."""
        self.workers = f"{self.prefix}workers"
        self.cluster = f"{self.prefix}cluster"
        """The channel of news about workers."""
        self.unused = tuple(f"{self.prefix}check:{number}" for number in range(4))
        """Keys for trying commands."""
        self.homes = f"{self.prefix}homes"
        """The workers that have tasks."""

    def session(self, session: str) -> str:
        return f"{self.prefix}s:{session}"

    def names(self, session: str) -> str:
        """Return the key of the names of a session's streams."""
        return f"{self.prefix}k:{session}"

    def calls(self, session: str) -> str:
        """Return the key of the call records of a session's streams."""
        return f"{self.prefix}c:{session}"

    def of_session(self, session: str) -> tuple[str, str, str]:
        """Return the keys of a session, of the names of its streams, and of its calls."""
        return self.session(session), self.names(session), self.calls(session)

    def streams(self, session: str) -> str:
        """Return the prefix of a session's streams. It ends the session's name, so that no two streams have one key."""
        return f"{self.prefix}e:{_escape(session)}:"

    def news(self, session: str) -> str:
        """Return the prefix of the channels of a session's streams."""
        return f"{self.prefix}n:{_escape(session)}:"

    def of_stream(self, key: StreamKey) -> tuple[str, str, str]:
        """Return the keys of a session, of the names of its streams, and of one stream."""
        return self.session(key.session), self.names(key.session), self.streams(key.session) + key.stream

    def task(self, task: str) -> str:
        return f"{self.prefix}t:{task}"

    def tasks_of(self, worker: str) -> str:
        """Return the key of the tasks that run in a worker."""
        return f"{self.prefix}h:{worker}"

    def mark(self, mark: str) -> str:
        """Return the key of a mark, from its kind and name with a space between them."""
        return f"{self.prefix}m:{mark.replace(' ', ':', 1)}"

    def version(self, topic: str) -> str:
        return f"{self.prefix}v:{topic}"

    def channel(self, topic: str) -> str:
        return f"{self.prefix}b:{topic}"

    def topic(self, channel: bytes) -> str:
        return channel.decode().removeprefix(f"{self.prefix}b:")


def _escape(session: str) -> str:
    return session.replace("%", "%25").replace(":", "%3A")
