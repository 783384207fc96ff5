"""The metrics of all workers behind one socket: the one that is scraped asks the others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from mcptrio.cluster.frames import Forward, Forwarded
from mcptrio.cluster.link_client import LinkBroken, PeerLink, Unreachable
from mcptrio.cluster.membership import Membership, home_at
from mcptrio.errors import Overloaded
from mcptrio.stores.base import HomeAt
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint

logger = logging.getLogger("mcptrio.cluster")

METRICS_WITHIN: Final = 1.0
"""Seconds in which the other workers answer with their metrics, or are left out."""
METRICS: Final = Forward(
    id=0,
    session="",
    method="GET",
    path="/metrics",
    query=b"",
    headers=(),
    body=b"",
    scheme="http",
    client=None,
    caller=None,
    scopes=None,
    may_claim=False,
)
"""Asks a worker for its own metrics. It names no session, so no request of a client has this form."""


async def gather_pages(membership: Membership, link_to: Callable[[HomeAt], PeerLink]) -> list[str]:
    """Return the pages of metrics of the other workers with the same parent, of those that answer in time."""
    own, pages = membership.info, dict[str, str]()
    others = {
        info.slot: home_at(worker, info)
        for worker, (_, info) in membership.workers.items()
        if own.parent and info.parent == own.parent and info.slot != own.slot
    }  # by slot, because a worker that is being replaced has the slot of the next one

    async def ask(slot: str, worker: HomeAt) -> None:
        try:
            answer = await link_to(worker).forward(METRICS)
        except (Unreachable, LinkBroken, Overloaded) as error:
            logger.info("the metrics of worker %s are missing: %s", worker.worker, error)
        else:
            if isinstance(answer, Forwarded) and answer.status == 200:
                pages[slot] = answer.body.decode()

    with trio.move_on_after(METRICS_WITHIN):
        async with trio.open_nursery() as nursery:
            for slot, worker in others.items():
                nursery.start_soon(ask, slot, worker)
    return [pages[slot] for slot in sorted(pages)]


def own_page(endpoint: Endpoint, number: int) -> Forwarded:
    """Return the answer to `METRICS`."""
    page = b"" if endpoint.metrics is None else endpoint.metrics().encode()
    if not page or len(page) > endpoint.config.max_body:  # a larger frame would end the link
        return Forwarded(number, 404, (), b"")
    return Forwarded(number, 200, (), page)
