"""Input of clients, and output that they do not read, costs the server a bounded amount of memory."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from operator import sub
from pathlib import Path
from statistics import median

import psutil
import pytest
import trio

from mcptrio._eras.stateless import LOG_LEVEL
from tests.engines import ENGINES
from tests.stateless.kit import DATE as STATELESS
from tests.stateless.kit import meta
from tests.tiers import exhaustive
from tests.transports.app_for_tests import initialize, notification, request

from .canary import JSON_AND_EVENTS, STATEFUL
from .server_process import ServerProcess, running
from .wires import SocketAnswer, SocketWire

FULL = "MCPTRIO_FAULTS" in os.environ
MIB = 2**20
BODY = 4 * MIB
BODIES = 64

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from /proc")


def peak(server: ServerProcess) -> int:
    """The most memory that the process has had since the last `forget_peak`, in bytes."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+([0-9]+) kB", status)
    assert found
    return int(found[1]) * 1024


def forget_peak(server: ServerProcess) -> None:
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")


def call(tool: str, arguments: str, date: str = STATELESS) -> bytes:
    """A tool call whose arguments are given as JSON."""
    params = f'{{"name":"{tool}","_meta":{json.dumps(meta({}))},"arguments":{arguments}}}'
    return f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'.encode()


def filled(before: str, filling: str, after: str) -> bytes:
    """A call of exactly the largest allowed size."""
    empty = len(call("echo", before + after))
    times, rest = divmod(BODY - empty, len(filling))
    return call("echo", before + filling * times + " " * rest + after)


HOSTILE = {
    "one long text": filled('{"text":"', "x", '"}'),
    "escapes": filled('{"text":"', "\\u00e9", '"}'),
    "wide text": filled('{"text":"', "\\ud83d\\ude00", '"}'),
    "too many members": filled('{"text":"", "a":[0', ",0", "]}"),
    "long keys": filled('{"text":"", "a":{"":0', f',"{"k" * 50}":0', "}}"),
    "many objects": filled('{"text":"", "a":[{}', f',{{"{"k" * 90}":0}}', "]}"),
    "nothing": b" " * BODY,
    "no end": b'{"a":"' + b"x" * (BODY - 6),
    "brackets": b"[" * BODY,
}
SHORT = (("many objects", "hypercorn"), ("wide text", "direct"))
"""All of them on both engines: `make fault-test`."""


@exhaustive
@pytest.mark.parametrize(
    ("kind", "engine"),
    [(kind, engine) for kind in HOSTILE for engine in ENGINES] if FULL else SHORT,
    indirect=["engine"],
)
async def test_many_large_bodies_at_once_stay_within_half_a_gibibyte(kind: str, engine: str, tmp_path: Path) -> None:
    """64 bodies of 4 MiB come together, are complete at the same moment, and are answered with as much."""
    body = HOSTILE[kind]
    assert len(body) == BODY
    with running("canary.py", tmp_path / "log", "--log-level", "error") as server:
        await server.wait_ready()
        head = (
            f"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1:{server.port}\r\ncontent-type: application/json\r\n"
            "accept: application/json, text/event-stream\r\n"
            f"mcp-protocol-version: {STATELESS}\r\nmcp-method: tools/call\r\nmcp-name: echo\r\n"
            f"content-length: {BODY}\r\nconnection: close\r\n\r\n"
        ).encode()
        outcomes: Counter[str] = Counter()
        sent = 0
        all_sent = trio.Event()

        async def post() -> None:
            nonlocal sent
            async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
                try:
                    await stream.send_all(head)
                    await stream.send_all(memoryview(body)[:-1])
                    sent += 1
                    if sent == BODIES:
                        all_sent.set()
                    with trio.move_on_after(0.2):  # as many as the server lets come so far
                        await all_sent.wait()
                    await stream.send_all(body[-1:])
                    answer = await stream.receive_some(65536)
                    outcomes[bytes(answer.split(b" ", 2)[1]).decode()] += 1
                    while await stream.receive_some(65536):
                        pass
                except trio.BrokenResourceError:
                    outcomes["refused while sending"] += 1  # there was no room for it for too long

        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(BODIES):
                    nursery.start_soon(post)
        print(f"\n{kind}: {peak(server) / MIB:.0f} MiB at most; {dict(outcomes)}")
        assert outcomes.total() == BODIES
        # The others waited for room for `busy_timeout`; how many that are depends on the machine.
        assert outcomes["200"] + outcomes["400"] + outcomes["413"] > 0
        assert peak(server) < 512 * MIB
        await server.wait_ready()


SMALL = {"messages": 20, "kib": 1, "then": 60}
LARGE = {"messages": 100, "kib": 128, "then": 60}
"""More than any buffer on the way takes. All calls go on afterwards, so that nothing of them is forgotten."""


@exhaustive
@pytest.mark.parametrize(
    ("date", "engine"),
    [(date, engine) for date in (STATEFUL, STATELESS) for engine in ENGINES]
    if FULL
    else [(STATEFUL, "direct"), (STATELESS, "hypercorn")],
    indirect=["engine"],
)
async def test_one_reader_of_a_hundred_that_stops_costs_little(
    date: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unread output waits in the kernel and in one bounded outbox; the handler that writes more waits, too."""
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", "32768")  # large pieces are given back at once: no noise from holes
    with running("canary.py", tmp_path / "log", "--log-level", "error") as server:
        await server.wait_ready()
        process = psutil.Process(server.process.pid)
        async with trio.open_nursery() as nursery:
            async with trio.open_nursery() as starting:
                for _ in range(99):
                    starting.start_soon(nursery.start, follow, server, date, SMALL, False)
            taken: dict[bool, list[int]] = {False: [], True: []}
            for stalled in (False, True) * 3:
                async with trio.open_nursery() as last:
                    await last.start(follow, server, date, LARGE, stalled)
                    await trio.sleep(0.5)  # until nothing moves any more
                    taken[stalled].append(process.memory_info().rss)
                    last.cancel_scope.cancel()
            nursery.cancel_scope.cancel()
    for stalled, figures in taken.items():
        text = ", ".join(f"{each / MIB:.1f}" for each in figures)
        print(f"\n{date}: {text} MiB while {'one does not read' if stalled else 'all read'}", end="")
    assert median(map(sub, taken[True], taken[False])) <= 2 * MIB


async def follow(
    server: ServerProcess,
    date: str,
    arguments: dict[str, int],
    stalled: bool,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """A stream of which everything is read, or nothing."""
    wire = SocketWire(server.port)
    wire.receive_buffer = 4096 if stalled else None
    answer = await begin(wire, date, arguments)
    size = len(await answer.next() or b"")
    while not stalled and size < arguments["messages"] * arguments["kib"] * 1024:
        size += len(await answer.next() or b"")
    task_status.started()
    try:
        await trio.sleep_forever()
    finally:
        answer.cut()
        with trio.move_on_after(5, shield=True):
            if date == STATEFUL:
                await wire.send("DELETE", {"mcp-session-id": answer.headers["mcp-session-id"]}, b"")
            wire.close()


async def begin(wire: SocketWire, date: str, arguments: dict[str, int]) -> SocketAnswer:
    headers = dict(JSON_AND_EVENTS)
    params = {"name": "pour", "arguments": arguments}
    if date == STATEFUL:
        opening = await wire.send("POST", headers, initialize(date))
        while await opening.next() is not None:
            pass
        headers["mcp-session-id"] = opening.headers["mcp-session-id"]
        await wire.send("POST", headers, notification("notifications/initialized"))
    else:
        params["_meta"] = meta({}, **{LOG_LEVEL: "info"})
        headers |= {"mcp-protocol-version": date, "mcp-method": "tools/call", "mcp-name": "pour"}
    answer = await wire.send("POST", headers, request(1, "tools/call", **params))
    answer.headers = {**headers, **answer.headers}
    return answer
