"""The lines between the parent and a worker, and the settings that are divided among workers."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from mcptrio import Server
from mcptrio._eras.choose import Served
from mcptrio._workers.control import Assignment, ControlLines, WorkerControl, encode
from mcptrio.errors import DeclarationError
from mcptrio.server.workers import check_workers, join_workers, label_samples
from mcptrio.stores import MemoryStore, Store
from mcptrio.stores.sqlite import SqliteStore
from mcptrio.transports.http_server.config import HttpConfig

STATELESS = [date for date, era in Served().eras.items() if not era.stateful]


@given(st.lists(st.integers(1, 40), max_size=20))
def test_messages_may_be_cut_anywhere(cuts: list[int]) -> None:
    data = encode("ready", worker="0-1-a", name="ünique") + b"garbage\n[]\n{}\n" + encode("beat")
    lines, found, at = ControlLines(), [], 0
    for cut in [*cuts, len(data)]:
        found += list(lines.feed(data[at : at + cut]))
        at += cut
    assert [message["type"] for message in found] == ["ready", "beat"]


def test_a_line_without_an_end_is_dropped() -> None:
    lines = ControlLines()
    assert list(lines.feed(b"x" * 100_000)) == []
    assert [message["type"] for message in lines.feed(b"\n" + encode("beat"))] == ["beat"]


class Spy:
    def __init__(self) -> None:
        self.said: list[Any] = []

    def drain(self, *, handover: bool, hurry: bool) -> None:
        self.said.append(("drain", handover, hurry))

    def reload(self) -> None:
        self.said.append("reload")

    def worker_died(self, worker: str) -> None:
        self.said.append(("dead", worker))


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_worker_does_what_its_parent_says(ends: tuple[socket.socket, socket.socket]) -> None:
    """R6: when the connection closes, the worker drains."""
    parent, own = ends
    control = WorkerControl(Assignment(slot=3, workers=4), own)
    spy = Spy()
    control.attach(spy)
    parent.sendall(
        encode("reload") + encode("dead", worker="1-2-x", restarts=7) + encode("drain", handover=True) + encode("what")
    )
    parent.sendall(encode("drain", hurry=True))
    parent.close()
    control._read()
    drains = [("drain", True, False), ("drain", False, True), ("drain", False, False)]
    assert spy.said == ["reload", ("dead", "1-2-x"), *drains]
    assert control.restarts == 7


def test_a_worker_names_itself(ends: tuple[socket.socket, socket.socket]) -> None:
    parent, own = ends
    control = WorkerControl(Assignment(slot=3, workers=4, stuck_after=3.0), own)
    control.ready("orders")
    control.beat()
    first, second = ControlLines().feed(parent.recv(4096))
    slot, pid, random = str(first["worker"]).split("-")
    assert (slot, pid, len(random)) == ("3", str(os.getpid()), 8)
    assert first["name"] == "orders"
    assert second == {"type": "beat"}
    assert control.beat_every == pytest.approx(0.5)


def test_a_new_interpreter_gets_its_assignment(ends: tuple[socket.socket, socket.socket]) -> None:
    parent, own = ends
    assignment = Assignment(slot=1, workers=2, restarts=5, stuck_after=9.0, keys=("k",))
    fields = {name: getattr(assignment, name) for name in ("slot", "workers", "restarts", "stuck_after", "keys")}
    parent.sendall(encode("start", assignment=fields) + encode("beat"))
    control = WorkerControl.adopt(own.detach())
    assert control.assignment == assignment
    assert msgspec.json.decode(control._socket.recv(100)) == {"type": "beat"}
    control._socket.close()


def test_a_parent_that_does_not_read_blocks_no_worker(ends: tuple[socket.socket, socket.socket]) -> None:
    control = WorkerControl(Assignment(slot=0, workers=1), ends[1])
    for _ in range(50_000):
        control.beat()


# -- what workers may serve


class Shared(MemoryStore):
    durable = True
    shared = True


@pytest.mark.parametrize("store", [None, MemoryStore(), Shared()])
def test_revisions_without_sessions_are_served_by_workers(store: Store | None) -> None:
    check_workers(Served.only(STATELESS), store)


def test_sessions_are_served_by_workers_that_share_a_store() -> None:
    check_workers(Served(), Shared())


@pytest.mark.parametrize("store", [None, MemoryStore()])
def test_sessions_without_a_shared_store_are_not_served_by_workers(store: Store | None) -> None:
    with pytest.raises(DeclarationError, match=f"add --protocol {STATELESS[-1]}"):
        check_workers(Served(), store)


def test_a_store_of_one_process_is_refused() -> None:
    with pytest.raises(DeclarationError, match="use --store redis://HOST"):
        check_workers(Served.only(STATELESS), SqliteStore("x.db"))


def control_of(workers: int, keys: tuple[str, ...] = ()) -> WorkerControl:
    with socket.socket() as unused:
        return WorkerControl(Assignment(slot=0, workers=workers, keys=keys), unused)


def test_totals_are_divided_by_the_number_of_workers() -> None:
    server = Server("s", protocols=STATELESS)

    @server.tool(rate=8)
    async def often() -> None: ...

    http = HttpConfig(rate=10, rate_burst=20, max_sessions_per_principal=6)
    found = join_workers(server._app, http, None, control_of(4))
    assert (found.rate, found.rate_burst, found.max_sessions_per_principal) == (2.5, 5, 1)
    (tool,) = server._app.tools.registry
    assert tool.rates is not None
    assert (tool.rates.per_second, tool.rates.burst) == (2, 2)


def test_no_share_is_less_than_one_or_more_than_the_total() -> None:
    server = Server("s", protocols=STATELESS)
    http = HttpConfig(rate=0.5, rate_burst=0.9, max_sessions_per_principal=2)
    found = join_workers(server._app, http, None, control_of(16))
    assert (found.rate, found.rate_burst, found.max_sessions_per_principal) == (0.5, 0.9, 1)


def test_workers_without_keys_share_those_of_the_parent() -> None:
    key = "k" * 43 + "="
    for own in (None, ["0" * 64]):
        server = Server("s", protocols=STATELESS, state_keys=own)
        before = server._app.state_keys
        join_workers(server._app, HttpConfig(), None, control_of(2, (key,)))
        assert (server._app.state_keys is before) == (own is not None)
        assert server._app.state_keys is not None


def test_samples_name_their_worker() -> None:
    page = '# HELP a x\na 1\nb{method="tools/call",le="+Inf"} 2\nc{x="} "} 3\n'
    assert label_samples(lambda: page, 3)() == (
        '# HELP a x\na{worker="3"} 1\nb{method="tools/call",le="+Inf",worker="3"} 2\nc{x="} ",worker="3"} 3\n'
    )


async def test_a_connection_that_was_just_accepted_is_served_while_others_take_over() -> None:
    """A worker that is replaced leaves the socket to the others, and loses no request that was under way."""
    from mcptrio.transports.http_server.listener.guarded_stream import GuardedStream
    from mcptrio.transports.http_server.listener.listener import Listener

    served: list[bytes] = []

    async def serve(guarded: GuardedStream) -> None:
        while data := await guarded.receive_some():
            served.append(data)
            guarded.release()

    listener = Listener(serve, HttpConfig(port=0))
    async with trio.open_nursery() as nursery:
        (bound,) = await nursery.start(listener.serve)
        old = await trio.open_tcp_stream("127.0.0.1", bound.port)
        fresh = await trio.open_tcp_stream("127.0.0.1", bound.port)
        request = b"GET /%b HTTP/1.1\r\nHost: x\r\n\r\n"
        await old.send_all(request % b"old")
        while not served or listener.connections < 2:
            await trio.lowlevel.checkpoint()
        nursery.start_soon(listener.hand_over, 5.0)
        await trio.testing.wait_all_tasks_blocked()
        await old.send_all(request % b"again")
        await fresh.send_all(request % b"fresh")
        while len(served) < 3:
            await trio.lowlevel.checkpoint()
        await listener.close(trio.current_time())
        await old.aclose()
        await fresh.aclose()
