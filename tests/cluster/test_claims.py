"""Four workers and one session, in any order of events: at most one home writes, and no event is lost or doubled.

The rules run the scripts of the directory on a real server. Time passes by ending leases in the server.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from mcptrio.stores.base import StreamKey
from mcptrio.stores.redis import scripts
from mcptrio.stores.redis.keys import Keys
from tests.redis_server import RedisServer, running_server

SECRET = b"s" * 32
WORKERS = st.sampled_from("abcd")
LIFE = 60_000
NOW = 2**53
"""Every lease that has run out counts as expired."""
KEY = StreamKey("sid", "0")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with running_server() as running:
        yield running


class Claims(RuleBasedStateMachine):
    """Workers hold what they believe: the epoch of the session, and the number of its last event."""

    server: RedisServer

    def __init__(self) -> None:
        super().__init__()
        self.keys = Keys(uuid.uuid4().hex)
        self.beliefs: dict[str, tuple[int, int]] = {}  # epoch and last event, of each worker that thinks it is the home
        self.events: list[bytes] = []
        self.home: tuple[str, int] | None = None  # the last worker that became the home
        self.epoch = 0

    def run(self, script: scripts.Script, keys: tuple[str, ...], *arguments: Any) -> Any:
        return self.server.command("EVAL", script.text, len(keys), *keys, *arguments)

    @initialize()
    def begin(self) -> None:
        self.server.command("SET", self.keys.secret, SECRET)
        self.server.command("SET", self.keys.generation, b"one")
        for worker in "abcd":
            self.renew(worker, join=True)
        assert self.put("a", 0, create=True) == 1
        self.beliefs["a"], self.home = (0, 0), ("a", 0)

    def renew(self, worker: str, *, join: bool = False) -> bytes:
        found: list[bytes] = self.run(
            scripts.RENEW,
            (self.keys.secret, self.keys.generation, self.keys.workers),
            *(worker, LIFE, "{}", SECRET, b"one", int(join)),
        )
        return found[0]

    def put(self, worker: str, epoch: int, *, create: bool = False) -> int:
        keys = (*self.keys.of_session("sid"), self.keys.generation)
        prefix = self.keys.streams("sid")
        found: int = self.run(scripts.PUT, keys, worker, epoch, b"record", "", 1, 0, LIFE, prefix, int(create), b"one")
        return found

    # -- workers

    @rule(worker=WORKERS)
    def a_worker_renews_its_lease_or_joins_again(self, worker: str) -> None:
        if self.renew(worker) == b"dead":
            self.beliefs.pop(worker, None)
            assert self.renew(worker, join=True) == b"live"

    @rule(worker=WORKERS)
    def a_lease_runs_out(self, worker: str) -> None:
        if self.server.command("HEXISTS", self.keys.workers, worker):
            self.server.command("HSET", self.keys.workers, worker, "1 {}")

    @rule()
    def expired_workers_are_swept(self) -> None:
        self.run(scripts.SWEEP, (self.keys.workers,), self.keys.cluster, NOW)

    @rule(worker=WORKERS)
    def a_worker_is_declared_dead(self, worker: str) -> None:
        self.run(scripts.DECLARE_DEAD, (self.keys.workers,), self.keys.cluster, worker)

    @rule(worker=WORKERS)
    def a_worker_restarts(self, worker: str) -> None:
        """It forgets everything; in truth it also gets a new id, which makes claims easier."""
        self.beliefs.pop(worker, None)

    # -- the session

    @rule(worker=WORKERS, denied=st.booleans())
    def a_worker_claims(self, worker: str, denied: bool) -> None:
        if worker in self.beliefs:
            return  # one that has the session does not claim it
        gone = ("", "")
        if denied and self.home is not None and self.home[0] not in self.beliefs:
            gone = (self.home[0], str(self.home[1]))
        live = self.live()
        keys = (*self.keys.of_session("sid"), self.keys.workers)
        found = self.run(scripts.CLAIM, keys, worker, 1, 1, LIFE, self.keys.streams("sid"), *gone, NOW, b"one", 0)
        if found[0] == b"mine":
            assert worker.encode() in self.server.command("HKEYS", self.keys.workers)
            again = self.home is not None and self.home[0] == worker
            assert found[1] == self.epoch + (0 if again and found[4].decode() == worker else 1)
            self.epoch = found[1]
            self.home = (worker, self.epoch)
            self.beliefs[worker] = (self.epoch, self.newest())
        elif found[0] == b"at":
            assert found[1].decode() in live
            assert self.home is not None
            assert found[1].decode() == self.home[0]
        else:
            assert found == [b"dead"]

    def live(self) -> set[str]:
        found = self.server.command("HGETALL", self.keys.workers)
        found = found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))
        return {worker.decode() for worker, value in found.items() if not value.startswith(b"1 ")}

    def newest(self) -> int:
        found = self.server.command("XREVRANGE", self.keys.of_stream(KEY)[2], "+", "-", "COUNT", 1)
        return int(found[0][0].partition(b"-")[0]) if found else 0

    @rule(worker=WORKERS, count=st.integers(1, 3), ends=st.booleans(), twice=st.booleans())
    def a_worker_appends(self, worker: str, count: int, ends: bool, twice: bool) -> None:
        if worker not in self.beliefs:
            return
        epoch, last = self.beliefs[worker]
        events = [b"%s %d" % (worker.encode(), last + number + 1) for number in range(count)]
        for _ in range(1 + twice):  # the reply to the first one was lost
            found = self.run(
                scripts.APPEND,
                (*self.keys.of_stream(KEY), self.keys.calls("sid"), self.keys.generation),
                *(epoch, KEY.stream, 0, 0, last, 0, int(ends), LIFE, LIFE, "channel", 0, "", 1000, b"one"),
                *events,
            )
        if found == -1:
            assert self.home != (worker, epoch)
            del self.beliefs[worker]
        else:
            assert found == last + count
            assert (epoch, last) == (self.epoch, len(self.events))
            self.events += events
            self.beliefs[worker] = (epoch, found)

    @rule(worker=WORKERS)
    def a_worker_puts_a_record(self, worker: str) -> None:
        if worker in self.beliefs and not self.put(worker, self.beliefs[worker][0]):
            assert self.home is None or self.home[0] != worker or self.home[1] != self.beliefs[worker][0]
            del self.beliefs[worker]

    @rule(worker=WORKERS)
    def a_worker_releases(self, worker: str) -> None:
        if worker in self.beliefs:
            epoch, _ = self.beliefs.pop(worker)
            found = self.run(scripts.RELEASE, self.keys.of_session("sid"), worker, epoch, b"record", LIFE, 1)
            if found:
                assert self.home == (worker, epoch)
                self.home = None

    # -- what always holds

    @invariant()
    def the_events_have_no_gap_and_no_repetition(self) -> None:
        entries = self.server.command("XRANGE", self.keys.of_stream(KEY)[2], "-", "+")
        found = [(id, fields[1]) for id, fields in entries if fields[0] == b"d"]
        assert found == [(b"%d-0" % (at + 1), data) for at, data in enumerate(self.events)]


def test_at_most_one_worker_writes_to_a_session(server: RedisServer) -> None:
    machine = type("ClaimsOfServer", (Claims,), {"server": server})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=15, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
