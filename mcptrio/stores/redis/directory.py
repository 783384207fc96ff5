"""The session directory in Redis: which worker is the home of a session, and which workers are alive.

Each worker has one lease, each session a home worker and a fencing epoch. A worker that never joined has no lease, so
that others may claim its sessions at any time; its epochs are fenced all the same. `put` and `forget` never wait: the
group commit writes them. A table in memory holds the sessions that are at home here, to write them again if the server
was emptied.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, cast

import trio

from mcptrio._struct import Entity
from mcptrio._wire.resp import Argument, ServerError
from mcptrio.errors import Overloaded
from mcptrio.stores._backend import SessionRow
from mcptrio.stores._home_sessions import HomeSessions
from mcptrio.stores.base import Claimed, HomeAt
from mcptrio.stores.redis import scripts
from mcptrio.stores.redis.connection import RedisConnection, StoreUnavailable
from mcptrio.stores.redis.keys import Keys

FORMAT: Final = 1
"""The format of the records that this version writes, and the newest that it reads."""
MAX_LOST: Final = 100_000
MARGIN: Final = 0.5
"""Part of a lease by which the lease of this worker must be newer than one that has expired."""
RESTORE: Final = 5
"""Times as long as workers need to renew their leases, in which they store everything again."""
NEVER: Final = 2**53
LOST: Final = -1
"""The epoch of a session that was taken over: every write with it is refused."""

Renewal = Literal["live", "dead", "emptied", "stranger"]


class HeldSession(Entity):
    """A session that is at home here."""

    epoch: int
    stored: bool = False
    """Whether the server knows it."""


class RedisDirectory:
    """The sessions and workers of one endpoint.

    Borrows: the connection, the table of sessions at home here, `on_lost`, which is called with a session that has
    another home now, and `on_gone`, called with one whose streams are to leave memory. The backend writes the changes.
    """

    def __init__(
        self,
        home: HomeSessions,
        connection: RedisConnection,
        keys: Keys,
        lifetime: float,
        *,
        flush: Callable[[], Awaitable[None]],
        unwritten: Callable[[str], bool],
    ) -> None:
        self.worker = secrets.token_urlsafe(9)
        self.joined = False
        self.member = False
        """Whether this process belongs to a cluster, though it may not have joined again yet."""
        self.grace = 0.0
        """Seconds after an outage in which other workers are given the time to come back."""
        self._expires = 0  # of the lease of this worker, in ms by the clock of the server
        self._margin = 0
        self._grace_until = self._restoring_until = 0.0
        self.fenced = 0
        """Writes that the server has refused, because the session has another home."""
        self.generation = b""
        """The generation of the server; set by the backend."""
        self.on_lost: Callable[[str], None] = lambda session: None
        self.on_gone: Callable[[str], None] = lambda session: None
        self._home = home
        self._flush = flush
        self._unwritten = unwritten
        self._connection = connection
        self._keys = keys
        self._lifetime = int(lifetime * 1000)
        self._held: dict[str, HeldSession] = {}
        self._lost: dict[str, None] = {}  # bounded; the oldest first

    # -- the protocol

    async def claim(self, session: str, /, denied: HomeAt | None = None) -> Claimed | HomeAt | None:
        """See `SessionDirectory`; `denied` is a home that has answered that the session is not there."""
        return await self._ask(session, int(self.joined), denied)

    async def look(self, session: str, /) -> HomeAt | None:
        """Return the live home of a session; None if it has none, or does not exist."""
        found = await self._ask(session, 2, None)
        return found if isinstance(found, HomeAt) else None

    async def _ask(self, session: str, mode: int, denied: HomeAt | None) -> Claimed | HomeAt | None:
        if session in self._home.changes or session in self._held:
            await self._flush()
            if session in self._home.changes:
                raise StoreUnavailable("a session cannot be written at present")
        worker, epoch = ("", "") if denied is None else (denied.worker, str(denied.epoch))
        reply: list[Any] = await self._connection.ask(
            *scripts.CLAIM.command(
                (*self._keys.of_session(session), self._keys.workers, self._keys.generation),
                self.worker,
                mode,
                FORMAT,
                self._lifetime,
                self._keys.streams(session),
                worker,
                epoch,
                self._dead_before,
                self.generation,
                int(self.restoring),
            )
        )
        match reply:
            case [b"emptied"]:
                raise Overloaded("the store was emptied; its sessions are being restored", retry_after=1)
            case [b"none"] if self.restoring:
                raise Overloaded("the store was emptied; its sessions are being restored", retry_after=1)
            case [b"none"] | [b"free"]:
                return None
            case [b"at", home, address, number]:
                return HomeAt(home.decode(), address.decode(), int(number))
            case [b"mine", number, record, owner, home, calls, left]:
                return self._claimed(session, number, record, owner.decode(), home.decode(), calls, left / 1000)
            case [b"newer"]:
                raise Overloaded("the session belongs to a newer version of the server", retry_after=1)
        raise Overloaded("this worker has no lease at present", retry_after=1, limit="lease")

    def _claimed(
        self,
        session: str,
        epoch: int,
        record: bytes,
        owner: str,
        home: str,
        calls: list[bytes] | Mapping[bytes, bytes],
        left: float,
    ) -> Claimed:
        self._lost.pop(session, None)
        self.on_gone(session)
        self._held[session] = HeldSession(epoch, stored=True)
        self._home.hold(SessionRow(session, epoch, record, owner))
        found = calls.items() if isinstance(calls, Mapping) else zip(calls[::2], calls[1::2], strict=True)
        return Claimed(
            epoch=epoch,
            record=record,
            owner=owner,
            previous="" if home == self.worker else home,
            calls={name.decode(): call for name, call in found},
            left=left if left >= 0 else None,
        )

    def put(self, session: str, epoch: int, record: bytes, /, *, owner: str = "", pinned: bool = False) -> None:
        held = self._held.get(session)
        if held is None:
            if session in self._lost or epoch:
                return
            held = self._held[session] = HeldSession(epoch)
        if held.epoch == epoch:
            self._home.put(SessionRow(session, epoch, record, owner, pinned))

    async def release(self, session: str, epoch: int, record: bytes, /, *, ttl: float) -> bool:
        await self._flush()
        held = self._held.get(session)
        if held is None or held.epoch != epoch:
            return True  # it was lost meanwhile
        if session in self._home.changes or self._unwritten(session) or not self._connection.connected:
            return False
        lifetime = max(1, int(ttl * 1000))
        command = scripts.RELEASE.command(self._keys.of_session(session), self.worker, epoch, record, lifetime, FORMAT)
        try:
            (given_up,) = await self._run(command)
        except StoreUnavailable:
            return False  # it may have been released: then the next attempt finds that it has no home, or another one
        if not given_up:
            self.fenced += 1
            self.lose(session)
        elif self._held.get(session) is held:
            del self._held[session]
            self._home.let_go(session)
            self.on_gone(session)
        return True

    def forget(self, session: str, epoch: int, /) -> None:
        held = self._held.get(session)
        if session in self._lost or (held is not None and held.epoch != epoch):
            return
        self._held.setdefault(session, HeldSession(epoch))
        self._home.forget(session)

    # -- for the store

    def epoch_of(self, session: str) -> int:
        """Return the epoch that writes of a session carry; 0 if it is not in the directory."""
        held = self._held.get(session)
        return held.epoch if held is not None else LOST if session in self._lost else 0

    def is_known(self, session: str) -> bool:
        """Return whether the server must know a session, so that a write without it is fenced."""
        return session in self._held or session in self._lost

    def lose(self, session: str) -> None:
        """Give up a session that has another home: nothing more is written, and nothing deleted."""
        if self._held.pop(session, None) is None and session in self._lost:
            return
        self._lost[session] = None
        if len(self._lost) > MAX_LOST:
            del self._lost[next(iter(self._lost))]
        self._home.let_go(session)
        self.on_lost(session)

    def command(self, session: str, row: SessionRow | None) -> tuple[Argument, ...]:
        """Return the command that writes a change of a session."""
        keys, epoch = self._keys, self.epoch_of(session)
        of_session = keys.of_session(session)
        if row is None:
            return scripts.FORGET.command(of_session, epoch, keys.streams(session), keys.news(session))
        held = self._held.get(session)
        return scripts.PUT.command(
            (*of_session, keys.generation),
            self.worker,
            epoch,
            row.record,
            row.owner,
            FORMAT,
            int(row.pinned),
            self._lifetime,
            keys.streams(session),
            int(held is not None and not held.stored),
            self.generation,
        )

    def written(self, session: str, row: SessionRow | None, reply: int) -> None:
        """Handle the reply to `command`."""
        if not reply:
            self.fenced += 1
            self.lose(session)
        elif row is None:
            self._held.pop(session, None)
        elif (held := self._held.get(session)) is not None:
            held.stored = True

    @property
    def _dead_before(self) -> int:
        """The newest expiry of a lease that counts as expired.

        While the server is not available no worker can renew its lease. A lease has expired only if this worker has
        renewed its own long after that one, when both could; and for a while after an outage none has. A command that
        the server executes late carries what its sender knew, so it takes no session of a worker that lives.
        """
        if trio.current_time() < self._grace_until:
            return 0
        return self._expires - self._margin if self.joined else NEVER

    @property
    def restoring(self) -> bool:
        """Whether the server was emptied a moment ago: other workers have not stored their sessions again yet."""
        return trio.current_time() < self._restoring_until

    def _begin_grace(self) -> None:
        """Give other workers the time to renew their leases: the server was not available, or this worker was not."""
        self._grace_until = trio.current_time() + self.grace

    def restart(self) -> None:
        """Join again, and create every session that is at home here again: the server was emptied."""
        self.joined = False
        self._begin_grace()
        self._restoring_until = trio.current_time() + RESTORE * self.grace
        for held in self._held.values():
            held.stored = False

    # -- workers

    async def renew(self, description: str, lease: float, secret: bytes) -> Renewal:
        """Prolong the lease of this worker, or join with one.

        Raises:
            StoreUnavailable: the server cannot be asked.
        """
        ((reply, *expires),) = await self._run(
            scripts.RENEW.command(
                (self._keys.secret, self._keys.generation, self._keys.workers),
                self.worker,
                int(lease * 1000),
                description,
                secret,
                self.generation,
                int(not self.joined),
            )
        )
        state = cast(Renewal, reply.decode())
        if state == "live":
            self._margin = int(lease * 1000 * MARGIN)
            if self.joined and expires[0] - self._expires > self._margin:
                self._begin_grace()  # renewals failed: those of other workers may have failed as well
            self.joined, self._expires = True, expires[0]
        return state

    async def sweep(self) -> tuple[list[str], dict[str, tuple[int, str]]]:
        """Remove the workers whose lease has expired; return them, and expiry and description of those that live."""
        sweep = scripts.SWEEP.command((self._keys.workers,), self._keys.cluster, self._dead_before)
        dead, found = await self._run(sweep, ("HGETALL", self._keys.workers))
        workers = {worker.decode(): _entry(value) for worker, value in found.items()}
        return [worker.decode() for worker in dead], workers

    async def find_worker(self, worker: str) -> HomeAt | None:
        """Return where a worker is reached; None if it is dead."""
        found: bytes | None = await self._connection.ask("HGET", self._keys.workers, worker)
        if found is None:
            if self.restoring:
                raise Overloaded("the store was emptied; its workers are coming back", retry_after=1)
            return None
        return HomeAt(worker, _entry(found)[1])

    async def declare_dead(self, worker: str) -> None:
        """Remove one worker before its lease expires."""
        await self._run(scripts.DECLARE_DEAD.command((self._keys.workers,), self._keys.cluster, worker))

    async def find_lost(self) -> None:
        """Compare the epochs of all sessions at home here with those in the server, after the lease had expired."""
        mine = [(session, held) for session, held in self._held.items() if held.stored]
        replies = await self._run(*(("HMGET", self._keys.session(name), "home", "epoch") for name, _ in mine))
        for (session, held), (home, epoch) in zip(mine, replies, strict=True):
            if self._held.get(session) is held and (home, epoch) != (self.worker.encode(), b"%d" % held.epoch):
                self.lose(session)

    def start_over(self) -> None:
        """Lose every session and continue under a new id: this worker was declared dead."""
        for session in list(self._held):
            self.lose(session)
        self.joined = False

    async def _run(self, *commands: tuple[Argument, ...]) -> list[Any]:
        """Run commands that no request waits for. Their caller has the deadline; they work although requests fail."""
        replies = await self._connection.execute(commands) if commands else []
        for reply in replies:
            if isinstance(reply, ServerError):
                raise StoreUnavailable(str(reply))
        return replies


def _entry(value: bytes) -> tuple[int, str]:
    expires, _, description = value.partition(b" ")
    return int(expires), description.decode()
