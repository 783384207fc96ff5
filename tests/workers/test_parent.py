"""The parent with fake processes: whatever happens to them, in the end every slot has one worker."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mcptrio._workers import parent as module
from mcptrio._workers.control import encode
from mcptrio._workers.parent import ParentProcess
from mcptrio._workers.spawn import WorkerPhase, WorkerProcess


@attrs.define(eq=False, kw_only=True)
class Pretender(WorkerProcess):
    """A worker that does what the test says."""

    theirs: socket.socket
    code: int | None = None
    signals: list[int] = attrs.field(factory=list)
    deaf: bool = False

    def poll(self) -> int | None:
        return self.code

    def signal(self, number: signal.Signals) -> None:
        self.signals.append(number)
        if not self.deaf:
            self.code = -number

    def say(self, kind: str, **fields: Any) -> None:
        self.theirs.send(encode(kind, **fields))


class Clock:
    """The time of the parent."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Cluster:
    """A parent with fake processes, signals and time."""

    def __init__(self, workers: int) -> None:
        self.patch = pytest.MonkeyPatch()
        self.clock = Clock()
        self.patch.setattr(module, "time", self.clock)
        self.patch.setattr(module, "start_worker", self._start)
        self.patch.setattr(ParentProcess, "_wait", lambda _: 0.0)
        self.started = 0
        self.all: list[Pretender] = []
        self.parent = ParentProcess(workers=workers, sockets=(), url="", command=lambda *_: ())
        self.parent._due[0] = self.clock.now
        self.turn()

    def _start(self, assignment: Any, *_: Any, **__: Any) -> Pretender:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self.started += 1
        worker = Pretender(
            slot=assignment.slot, pid=self.started, connection=ours, theirs=theirs, last_beat=self.clock.now
        )
        self.all.append(worker)
        return worker

    def turn(self, seconds: float = 0.0) -> None:
        self.clock.now += seconds
        for worker in self.alive:
            if worker.phase is WorkerPhase.READY:
                worker.say("beat")
        self.parent._turn()

    @property
    def alive(self) -> list[Pretender]:
        return [worker for worker in self.parent._processes if isinstance(worker, Pretender)]

    def calm_down(self) -> None:
        """Let every worker do what is expected of it."""
        for _ in range(60):
            for worker in self.alive:
                if worker.phase is WorkerPhase.STARTING:
                    worker.say("ready", worker=f"{worker.slot}-{worker.pid}-x", name="s")
                elif worker.phase is WorkerPhase.DRAINING:
                    worker.code = 0
            self.turn(1.0)

    def close(self) -> None:
        self.patch.undo()
        self.parent._selector.close()
        for end in (*self.parent._signals, *(worker.theirs for worker in self.all)):
            end.close()
        for worker in self.all:
            worker.connection.close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(2)
    made.calm_down()
    yield made
    made.close()


def test_the_others_start_when_the_first_one_is_ready(cluster: Cluster) -> None:
    assert [(worker.slot, worker.pid) for worker in cluster.alive] == [(0, 1), (1, 2)]


def test_the_other_workers_are_notified_of_a_death(cluster: Cluster) -> None:
    one, other = cluster.alive
    one.code = -9
    cluster.turn()
    assert b'"type":"dead","worker":"0-1-x","restarts":1' in other.theirs.recv(4096)


def test_a_replacement_that_dies_after_the_old_worker_does_not_end_all_replacements(cluster: Cluster) -> None:
    cluster.parent._replace_all()
    old, _, new = cluster.alive
    old.code = -9
    cluster.turn()
    new.code = 3
    cluster.turn()
    cluster.calm_down()
    before = {worker.pid for worker in cluster.alive}
    cluster.parent._replace_all()
    cluster.calm_down()
    assert not before & {worker.pid for worker in cluster.alive}


def test_a_second_request_to_replace_begins_again(cluster: Cluster) -> None:
    cluster.parent._replace_all()
    cluster.parent._replace_all()
    started = cluster.started
    cluster.calm_down()
    assert cluster.started - started == 2, "after the one that is under way, all slots"


def test_a_worker_without_beats_is_aborted_and_then_killed(cluster: Cluster) -> None:
    one, other = cluster.alive
    one.deaf = True
    for _ in range(34):
        cluster.clock.now += 1
        other.say("beat")
        cluster.parent._turn()
    assert one.signals == [signal.SIGABRT, signal.SIGKILL]
    assert other.phase is WorkerPhase.READY


def test_a_parent_that_was_stopped_itself_ends_no_worker(cluster: Cluster) -> None:
    cluster.clock.now += 3600
    cluster.parent._turn()
    assert [worker.code for worker in cluster.alive] == [None, None]


def test_workers_that_do_not_drain_are_killed(cluster: Cluster) -> None:
    cluster.parent._stop(0)
    cluster.turn(25 + 1.6)
    cluster.turn()
    assert cluster.alive == []
    assert cluster.parent._code == 75


class Fates(RuleBasedStateMachine):
    """Deaths, refusals, signals and time in any order."""

    @initialize(workers=st.integers(1, 4))
    def begin(self, workers: int) -> None:
        self.cluster = Cluster(workers)

    def pick(self, number: int) -> Pretender | None:
        alive = self.cluster.alive
        return alive[number % len(alive)] if alive else None

    @rule(number=st.integers(0, 9), seconds=st.sampled_from([0.0, 0.1, 3.0]))
    def become_ready(self, number: int, seconds: float) -> None:
        if (worker := self.pick(number)) is not None:
            worker.say("ready", worker=f"{worker.slot}-{worker.pid}-x", name="s")
        self.cluster.turn(seconds)

    @rule(number=st.integers(0, 9), code=st.sampled_from([0, 1, -9]), refuses=st.booleans())
    def die(self, number: int, code: int, refuses: bool) -> None:
        if (worker := self.pick(number)) is not None:
            if refuses and worker.phase is WorkerPhase.STARTING:
                worker.say("refused", line="because")
            worker.code = code
        self.cluster.turn()

    @rule()
    def hang_up(self) -> None:
        self.cluster.parent._replace_all()
        self.cluster.turn()

    @rule(seconds=st.sampled_from([0.0, 0.5, 6.0, 31.0]))
    def wait(self, seconds: float) -> None:
        self.cluster.turn(seconds)

    @invariant()
    def no_slot_has_more_than_two_workers(self) -> None:
        if hasattr(self, "cluster"):
            slots = [worker.slot for worker in self.cluster.alive if worker.phase is not WorkerPhase.DRAINING]
            assert all(slots.count(slot) <= 2 for slot in slots)

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        parent = self.cluster.parent
        try:
            self.cluster.calm_down()
            if parent._stopping:
                assert self.cluster.alive == []
                assert parent._code in (1, 70)
            else:
                ready = sorted(worker.slot for worker in self.cluster.alive)
                assert ready == list(range(parent.workers))
                assert not parent._due
                assert not parent._to_replace
        finally:
            self.cluster.close()


Fates.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestFates = Fates.TestCase
