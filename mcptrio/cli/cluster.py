"""`mcptrio cluster redis://…`: list the workers and sessions of a cluster."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from mcptrio.cli.auth import warn_of_password_file
from mcptrio.cli.command import run
from mcptrio.cli.exit_codes import REFUSED, UNREACHABLE, Failure, UsageError
from mcptrio.cli.run import store_password
from mcptrio.cli.terminal import Terminal, clean, print_json
from mcptrio.cluster.membership import WorkerInfo
from mcptrio.stores.base import StoreFailed
from mcptrio.stores.redis.address import RedisUrl
from mcptrio.stores.redis.connection import RedisConnection, StoreUnavailable
from mcptrio.stores.redis.listing import ListedSession, ListedWorker, Listing, find_names, list_cluster

EXAMPLES: Final = """\
examples:
  mcptrio cluster 'redis://localhost?name=orders'
  mcptrio cluster 'rediss://redis.internal?name=orders&ca=ca.pem' --json
  MCPTRIO_STORE_PASSWORD_FILE=/run/secrets/redis mcptrio cluster 'redis://ops@redis.internal?name=orders'

A worker whose lease has 0 seconds left is dead, or cannot reach Redis; the others take its sessions over.
A session without a home is idle: it is stored, and the worker that gets its next request continues it.
A pinned session has state that cannot move, and ends with its home. The epoch counts the homes that a session has had.
Only the first letters of a session's id are shown, as in the log, because the id gives access to the session."""
MAX_LIMIT: Final = 100_000


async def cluster(
    store: str,
    /,
    *,
    limit: Annotated[int, Parameter(metavar="N")] = 100,
    json: bool = False,
    verbose: Annotated[bool, Parameter(alias="-v")] = False,
) -> int:
    """List the workers and sessions of a cluster. It only reads.

    Parameters
    ----------
    store
        The URL of the store, as for `mcptrio run --store`: redis://, rediss://, redis+unix:// or redis+sentinel://.
    limit
        The largest number of sessions to list (default: 100).
    json
        Print one JSON object.
    verbose
        Show the log of the connection.
    """
    terminal = Terminal(json=json, verbose=verbose)

    async def work() -> int:
        if not 0 <= limit <= MAX_LIMIT:
            raise UsageError(f"--limit is a number from 0 to {MAX_LIMIT}, not {limit}")
        warn_of_password_file()
        url = RedisUrl.parse(store, store_password())
        found = await _read(url, limit)
        if json:
            print_json(_as_json(url.name, found))
        else:
            _show(terminal, found)
        return 0

    return await run(terminal, work)


async def _read(url: RedisUrl, limit: int) -> Listing:
    connection = RedisConnection(url.address)
    try:
        async with connection.open():
            found = await list_cluster(connection, url.name, limit)
            names = await find_names(connection) if found is None else []
    except StoreFailed as error:
        raise Failure(UNREACHABLE, str(error)) from None
    except StoreUnavailable as error:
        raise Failure(UNREACHABLE, error.reason) from None
    if found is None:
        others = f"there are: {', '.join(names)}; choose one with ?name=" if names else "there is none"
        raise Failure(REFUSED, f"no cluster has the name {url.name!r} in {url.address}; {others}")
    return found


def _info(worker: ListedWorker) -> WorkerInfo:
    try:
        return msgspec.json.decode(worker.description, type=WorkerInfo)
    except msgspec.DecodeError:  # of another version of mcptrio
        return WorkerInfo(address="?", server="?", version="?", slot=worker.id.partition("-")[0])


def _as_json(name: str, found: Listing) -> dict[str, Any]:
    workers = [
        {
            "slot": info.slot,
            "id": worker.id,
            "address": info.address,
            "server": info.server,
            "version": info.version,
            "leaseSeconds": max(0.0, worker.lease),
        }
        for worker, info in ((worker, _info(worker)) for worker in found.workers)
    ]
    sessions = [
        {
            "id": _short(session),
            "home": session.home,
            "epoch": session.epoch,
            "pinned": session.pinned,
            "idle": session.home is None,
            "expiresSeconds": session.expires,
        }
        for session in found.sessions
    ]
    return {"name": name, "workers": workers, "sessions": sessions, "moreSessions": found.more}


def _short(session: ListedSession) -> str:
    return session.id[:8]


# -- for people


def _show(terminal: Terminal, found: Listing) -> None:
    workers = _table(f"Workers ({len(found.workers)})", "slot", "id", "address", "version", "lease left")
    for worker in found.workers:
        info = _info(worker)
        _add(workers, info.slot, worker.id, info.address, info.version, f"{max(0.0, worker.lease):.1f} s")
    if found.workers:
        terminal.out.print(workers)
    else:
        terminal.out.print("No worker is running.")
    listed = f"{len(found.sessions)}{', and more: see --limit' if found.more else ''}"
    sessions = _table(f"Sessions ({listed})", "session", "home", "epoch", "pinned", "idle", "expires in")
    for session in found.sessions:
        pinned, idle = ("yes" if flag else "" for flag in (session.pinned, session.home is None))
        _add(
            sessions, _short(session), session.home or "", str(session.epoch), pinned, idle, f"{session.expires:.0f} s"
        )
    terminal.out.print()
    if found.sessions or found.more:
        terminal.out.print(sessions)
    else:
        terminal.out.print("No sessions.")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.padding = (0, 2, 0, 0)
    for column in columns:
        table.add_column(column, header_style="dim", overflow="fold")
    return table


def _add(table: Table, *cells: str) -> None:
    table.add_row(*(Text(clean(cell)) for cell in cells))
