"""Telemetry of a cluster: events, the metrics of all workers on one page, and /readyz."""

from __future__ import annotations

from typing import Any

import pytest

from mcptrio import telemetry
from mcptrio.cluster import pages
from mcptrio.server.metrics import measure_cluster
from mcptrio.server.workers import label_samples
from mcptrio.telemetry.metrics import Metrics
from tests.transports.app_for_tests import Client, app_of, head, plain, request, result_of

from .two_workers import Worker, two_workers, until, working


def heard(worker: Worker, kind: type[telemetry.Event]) -> list[Any]:
    return [event for event in app_of(worker.endpoint).events if type(event) is kind]


def measured(worker: Worker, slot: int) -> Metrics:
    """Give a worker the metrics that a real one has."""
    metrics = Metrics()
    app_of(worker.endpoint).telemetry.add(metrics)
    measure_cluster(metrics, worker.cluster, worker.store)
    worker.endpoint.metrics = label_samples(metrics.text, slot)
    return metrics


async def page_of(worker: Worker) -> dict[str, float]:
    reply = await plain(worker.endpoint, head("GET", "/metrics"))
    assert reply.status == 200
    lines = reply.body.decode().splitlines()
    heads = [line for line in lines if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads)), "a family comes twice"
    samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in samples.items()}


async def test_a_forwarded_request_and_the_end_of_its_home_worker_are_reported(url: str) -> None:
    async with two_workers(url) as (one, other):
        client = await Client.open(one.endpoint)
        assert result_of(await other.client(client).post(request(1, "echo", say=1))) == {"echo": 1}
        assert heard(one, telemetry.RequestForwarded) == []
        assert heard(other, telemetry.RequestForwarded) == [
            telemetry.RequestForwarded(session=client.session_id, worker=one.id, outcome="answered")
        ]
        joined = {(event.worker, event.slot) for event in heard(one, telemetry.WorkerJoined)}
        assert joined == {(one.id, "1"), (other.id, "2")}
        first = one.id
        await other.cluster.membership.declare_dead(first)
        await until(lambda: heard(other, telemetry.WorkerDied))
        await one.cluster.membership._renew()
        assert heard(one, telemetry.LeaseLost) == [telemetry.LeaseLost(worker=first, reason="declared_dead")]
        await other.cluster.membership._renew()
        assert heard(other, telemetry.WorkerDied) == [telemetry.WorkerDied(worker=first)], "it is reported once"
        assert heard(other, telemetry.WorkerJoined)[-1].worker == one.id != first
        assert result_of(await other.client(client).post(request(2, "ping"))) == {}
        taken = [telemetry.SessionTakenOver(session=client.session_id, reason="died")]
        assert heard(other, telemetry.SessionTakenOver) == taken


async def test_the_end_of_a_lease_is_reported_by_readyz(url: str) -> None:
    async with working(url, "1", lease=3600.0) as one:
        membership = one.cluster.membership
        assert (await plain(one.endpoint, head("GET", "/readyz"))).body == b"ok\n"
        assert 0 < membership.lease_left <= 3600
        membership._lease = membership._lease.at(float("inf"))
        assert membership.lease_left == 0
        reply = await plain(one.endpoint, head("GET", "/readyz"))
        assert (reply.status, reply.body) == (200, b"ok, but the lease of this worker has expired\n")


async def test_an_expired_lease_is_reported_once(url: str) -> None:
    async with working(url, "1", lease=0.3) as one:
        one.cluster.membership._config = one.cluster.membership._config.__class__(lease=3600.0)  # it renews no more
        await until(lambda: heard(one, telemetry.LeaseLost))
        assert heard(one, telemetry.LeaseLost) == [telemetry.LeaseLost(worker=one.id, reason="expired")]


async def test_one_page_has_the_metrics_of_all_workers_of_a_parent(url: str) -> None:
    async with (
        working(url, "0", parent="here 7") as one,
        working(url, "1", parent="here 7") as other,
        working(url, "1", parent="there 7") as stranger,
    ):
        for slot, worker in enumerate((one, other, stranger)):
            measured(worker, slot)
            await worker.cluster.membership._renew()
        client = await Client.open(one.endpoint)
        assert result_of(await other.client(client).post(request(1, "echo", say=1))) == {"echo": 1}
        for worker in (one, other):
            page = await page_of(worker)
            assert page['mcptrio_requests_forwarded_total{outcome="answered",worker="1"}'] == 1
            assert page['mcptrio_sessions_created_total{transport="http",worker="0"}'] == 1
            assert {page[f'mcptrio_workers{{worker="{slot}"}}'] for slot in (0, 1)} == {3}
            assert 0 < page['mcptrio_lease_remaining_seconds{worker="1"}'] <= 60
            assert page['mcptrio_store_roundtrip_seconds_count{worker="0"}'] > 0
            assert not any('worker="2"' in name for name in page)
        assert any('worker="2"' in name for name in await page_of(stranger))
        assert not any('worker="0"' in name for name in await page_of(stranger))


async def test_a_worker_that_does_not_answer_is_missing_on_the_page(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "METRICS_WITHIN", 0.5)
    async with working(url, "0", parent="p") as one, working(url, "1", parent="p") as other:
        measured(one, 0)
        measured(other, 1)
        await one.cluster.membership._renew()
        assert any('worker="1"' in name for name in await page_of(one))

        async def never(*_: Any) -> Any:
            await until(lambda: False)

        monkeypatch.setattr(other.cluster, "answer", never)
        monkeypatch.setattr(one.cluster, "_links", {})
        assert 'mcptrio_ready{worker="1"}' not in await page_of(one)
        assert 'mcptrio_workers{worker="0"}' in await page_of(one)


async def test_a_refused_write_and_a_mirror_are_counted(url: str) -> None:
    async with two_workers(url) as (one, other):
        measured(one, 1)
        measured(other, 2)
        client = await Client.open(one.endpoint)
        reader = await other.client(client).stream(request(1, "follow"))
        await one.stage.cues.send("tell")
        await reader.frame()
        assert (await page_of(other))['mcptrio_stream_mirrors{worker="2"}'] == 1
        assert (await page_of(one))['mcptrio_writes_fenced_total{worker="1"}'] == 0
        membership = one.cluster.membership
        membership._lease = membership._lease.at(float("inf"))
        await other.cluster.membership.declare_dead(one.id)
        await reader.frame()  # the error, at the new home
        await one.stage.cues.send("tell")
        await until(lambda: one.store.sessions.fenced)
        assert (await page_of(one))['mcptrio_writes_fenced_total{worker="1"}'] == 1
        await one.stage.cues.send("end")
