"""The membership of this worker in its cluster: its lease, and which other workers are alive.

One task renews the lease, removes the workers whose lease has expired, and reads who is alive. Each renewal is also the
watch over everything that waits for another worker (R8, R11). A death notice only makes it faster.
"""

from __future__ import annotations

import logging
import os
import random
import re
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

import msgspec
import trio
from msgspec import Struct

from mcptrio import telemetry
from mcptrio.cluster.config import ClusterConfig
from mcptrio.cluster.lease import RENEWALS, LeaseAction, LeaseEvent, LeaseState, WorkerLease
from mcptrio.errors import Overloaded
from mcptrio.stores.base import HomeAt, StoreFailed

if TYPE_CHECKING:
    from mcptrio.stores.redis import RedisStore

logger = logging.getLogger("mcptrio.cluster")

LEAVE_WITHIN: Final = 1.0
COME_BACK_WITHIN: Final = 2.0
"""Seconds in which workers that live have connected again after an outage of the store, and renewed their leases."""


class WorkerInfo(Struct, frozen=True):
    """The description of a worker in the directory."""

    address: str
    """The socket for requests of other workers."""
    server: str
    version: str
    slot: str
    parent: str = ""
    """The parent process that has started it, which is the same for all workers behind one socket; empty without one.
    """


def home_at(worker: str, info: WorkerInfo) -> HomeAt:
    """Return where a worker is reached, as the directory of the store would say it."""
    return HomeAt(worker, msgspec.json.encode(info).decode())


class Membership:
    """The lease of this worker, and the other workers.

    Owns: the task that renews the lease.   Borrows: the store, and `on_alive`, which is called with the ids of all live
    workers after each renewal, and without a worker as soon as it was declared dead.
    """

    def __init__(
        self,
        store: RedisStore,
        config: ClusterConfig,
        info: WorkerInfo,
        on_alive: Callable[[set[str]], None],
        worker: str | None = None,
        hub: telemetry.Hub | None = None,
    ) -> None:
        self.info = info
        self.workers: dict[str, tuple[int, WorkerInfo]] = {}
        """Expiry of the lease by the clock of the store, and description, of each live worker."""
        self._store = store
        self._config = config
        self._on_alive = on_alive
        self._hub = hub or telemetry.Hub()
        self.on_id: Callable[[str], None] = lambda worker: None
        """Called with the id of this worker when it joins, and when it got another one because it was declared dead."""
        self._first_id = worker or f"{config.slot}-{os.getpid()}-{secrets.token_hex(4)}"
        self._deaths = 0
        self._lease = WorkerLease(config.lease)
        self._renewed = trio.Event()

    @property
    def worker(self) -> str:
        """The id of this worker."""
        return self._store.sessions.worker

    @property
    def serves(self) -> bool:
        """Whether session requests are served."""
        goes_on = self._config.on_store_loss == "serve" and self._lease.state is not LeaseState.JOINING
        return goes_on or self._has_lease

    @property
    def _has_lease(self) -> bool:
        return self._lease.serves(trio.current_time())

    @property
    def lease_left(self) -> float:
        """Seconds until the lease ends unless it is renewed."""
        return max(0.0, self._lease.until - trio.current_time()) if self.serves else 0.0

    @property
    def may_claim(self) -> bool:
        return self._has_lease and self._lease.may_claim

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Join the cluster, and leave it at the end.

        Raises:
            StoreFailed: another server uses the same name in the store.
        """
        sessions = self._store.sessions
        sessions.member, sessions.grace = True, max(self._config.lease, COME_BACK_WITHIN)
        self._new_id()
        async with trio.open_nursery() as nursery:
            try:
                await self._renew()
                self._check_names()
                await self._store.listen_to_workers(self._on_news)
                nursery.start_soon(self._run)
                nursery.start_soon(self._watch_expiry)
                yield
            finally:
                nursery.cancel_scope.cancel()
                with trio.move_on_after(LEAVE_WITHIN, shield=True), suppress(Overloaded):
                    await sessions.declare_dead(self.worker)
                sessions.joined = False

    def drain(self) -> None:
        """Claim nothing more (R12)."""
        self._lease, _ = self._lease.step(LeaseEvent.DRAIN)

    async def choose_other(self) -> HomeAt:
        """Choose a worker that may claim a session, because this one drains.

        Raises:
            Overloaded: there is no other worker, or the store cannot be asked.
        """
        if not (others := self._others()):
            # Where all workers are replaced, the new ones may all have joined since the last renewal.
            self._note_workers((await self._store.sessions.sweep())[1])
            others = self._others()
        if not others:
            raise Overloaded("the server is shutting down", retry_after=1)
        worker = random.choice(list(others))
        return home_at(worker, others[worker])

    def _others(self) -> dict[str, WorkerInfo]:
        return {worker: info for worker, (_, info) in self.workers.items() if info.address and worker != self.worker}

    def lease_of(self, worker: str) -> int:
        """Return when the lease of a worker ends, by the clock of the store; 0 if it is unknown."""
        return self.workers.get(worker, (0, None))[0]

    async def find(self, worker: str) -> HomeAt | None:
        """Return where a worker is reached; None if it is dead. One that has just joined is asked for in the store.

        Raises:
            Overloaded: the store cannot be asked.
        """
        known = self.workers.get(worker)
        return await self._store.sessions.find_worker(worker) if known is None else home_at(worker, known[1])

    async def declare_dead(self, worker: str) -> None:
        """Remove another worker of which is known that it died."""
        try:
            for id in {worker, *(id for id in self.workers if id.partition(".")[0] == worker)}:
                await self._store.sessions.declare_dead(id)
        except Overloaded:
            logger.warning("worker %s could not be declared dead; its lease will end", worker)

    def _new_id(self) -> None:
        """Take an id that was never used: the first one, then the same with the number of deaths."""
        self._store.sessions.worker = f"{self._first_id}.{self._deaths}" if self._deaths else self._first_id
        self._deaths += 1
        self.on_id(self.worker)

    def _check_names(self) -> None:
        for _, info in self.workers.values():
            if info.server != self.info.server:
                raise StoreFailed(
                    f"another server, {info.server!r}, uses the same name in this store: give this one a name of its "
                    f"own, for example redis://host?name={_example_name(self.info.server)}"
                )

    # -- the lease

    async def _run(self) -> None:
        while True:
            await trio.sleep(self._config.lease / RENEWALS)
            await self._renew()

    async def _renew(self) -> None:
        sessions = self._store.sessions
        sent = trio.current_time()
        try:
            with trio.fail_after(self._config.lease):
                state = await sessions.renew(
                    msgspec.json.encode(self.info).decode(), self._config.lease, self._store.secret
                )
                if state == "live":
                    self._lease = self._lease.at(trio.current_time())
                    if self._lease.renewed(sent)[1] is LeaseAction.CHECK_EPOCHS:
                        await sessions.find_lost()
                    _, found = await sessions.sweep()
        except (Overloaded, trio.TooSlowError):
            return  # the lease runs out by itself
        match state:
            case "live":
                lease, _ = self._lease.renewed(sent)  # only now: it may have begun to drain meanwhile (R12)
                if lease.state is not self._lease.state:
                    logger.info("worker %s is %s", self.worker, lease.state.value)
                self._lease = lease
                self._store.holds_back = not self.serves
                self._note_workers(found)
                self._renewed.set()
            case "dead" | "stranger":
                logger.error("worker %s was declared dead: its sessions are lost", self.worker)
                self._hub.emit(telemetry.LeaseLost(worker=self.worker, reason="declared_dead"))
                self._lease, _ = self._lease.step(LeaseEvent.DECLARED_DEAD)
                self._store.holds_back = True
                sessions.start_over()
                self._new_id()
                if state == "dead":
                    await self._renew()
            case "emptied":
                self._store.note_emptied()  # it joins again under this id, and its sessions are stored again

    async def _watch_expiry(self) -> None:
        """Hold events back as soon as the lease has expired, unless sessions are served without one."""
        noted = False
        while True:
            if self._has_lease:
                noted = False
                await trio.sleep_until(self._lease.until)
            else:
                if not (self._store.holds_back or noted):
                    then = "go on" if self.serves else "get 503"
                    logger.error("the lease of worker %s has expired: session requests %s", self.worker, then)
                    self._hub.emit(telemetry.LeaseLost(worker=self.worker, reason="expired"))
                    self._store.holds_back, noted = not self.serves, True
                self._renewed = trio.Event()
                await self._renewed.wait()

    # -- the other workers

    def _note_workers(self, found: dict[str, tuple[int, str]]) -> None:
        known, self.workers = self.workers, {}
        for worker, (expires, text) in found.items():
            with suppress(msgspec.DecodeError):  # of another version: it lives, but cannot be reached
                self.workers[worker] = expires, msgspec.json.decode(text, type=WorkerInfo)
        for worker in self.workers.keys() - known.keys():
            self._hub.emit(telemetry.WorkerJoined(worker=worker, slot=self.workers[worker][1].slot))
        for worker in known.keys() - found.keys() - {self.worker}:
            self._hub.emit(telemetry.WorkerDied(worker=worker))
        self._on_alive(set(found))

    def _on_news(self, message: bytes) -> None:
        kind, _, worker = message.decode("ascii", "replace").partition(" ")
        if kind == "dead" and worker != self.worker and self.workers.pop(worker, None) is not None:
            logger.info("worker %s is gone", worker)
            self._hub.emit(telemetry.WorkerDied(worker=worker))
            self._on_alive(set(self.workers))


def _example_name(server: str) -> str:
    """Return a name for the URL of a store, from the name of a server."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", server).strip("-").lower()[:64] or "other"
