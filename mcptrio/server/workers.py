"""One of several workers that serve one endpoint: which settings that needs, and what changes in them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from mcptrio._eras.choose import Served
from mcptrio.auth.request_state import KeyRing
from mcptrio.errors import DeclarationError

if TYPE_CHECKING:
    from mcptrio.server.app import App
    from mcptrio.server.program import ParentLink
    from mcptrio.stores import Store
    from mcptrio.transports.http_server.config import HttpConfig

_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? ", re.MULTILINE)


def check_workers(served: Served, store: Store | None) -> None:
    """Refuse what several workers cannot serve together. This function alone decides it.

    Raises:
        DeclarationError: the store belongs to one process, or sessions are served without a store that is shared.
    """
    if store is not None and store.durable and not store.shared:
        raise DeclarationError("--workers needs a store that processes can share: use --store redis://HOST, or none")
    if served.newest_stateful is not None and (store is None or not store.shared):
        newest = Served().newest_stateless
        alone = "" if newest is None else f": add --protocol {newest.date}, or serve sessions without --workers"
        raise DeclarationError(
            f"--workers needs --store redis://HOST to serve protocol versions with sessions "
            f"({served.newest_stateful.date} and before), because the workers share them{alone}"
        )


def join_workers(app: App, http: HttpConfig, store: Store | None, parent: ParentLink) -> HttpConfig:
    """Prepare a server to be one of several workers; return its HTTP settings.

    Limits that are totals are divided by the number of workers. That needs no messages between them; a client whose
    requests are spread unevenly gets a little less.

    Raises:
        DeclarationError: workers cannot serve it.
    """
    check_workers(app.eras, store)
    if app.state_keys is None and parent.keys and (store is None or not store.shared):
        app.state_keys = KeyRing.from_texts(parent.keys)
    share = parent.workers
    for tool in app.tools.registry:
        if tool.rates is not None:
            tool.rates.per_second = _share_of_rate(tool.rates.per_second, share)
            tool.rates.burst = max(1.0, tool.rates.burst / share)
    return attrs.evolve(
        http,
        rate=None if http.rate is None else _share_of_rate(http.rate, share),
        rate_burst=min(http.rate_burst, max(1.0, http.rate_burst / share)),
        max_sessions_per_principal=max(1, http.max_sessions_per_principal // share),
    )


def _share_of_rate(rate: float, share: int) -> float:
    """Divide a rate, but not below one request per second."""
    return min(rate, max(1.0, rate / share))


def label_samples(page: Callable[[], str], slot: int) -> Callable[[], str]:
    """Return a page of metrics whose samples name the worker."""

    def labelled(sample: re.Match[str]) -> str:
        name, labels = sample.groups()
        return f'{name}{{{labels + "," if labels else ""}worker="{slot}"}} '

    return lambda: _SAMPLE.sub(labelled, page())
