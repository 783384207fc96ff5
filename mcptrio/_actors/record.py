"""The record of a session: what the next process, or this one after a pause, needs to continue it.

Running calls, open questions, background tasks and `ctx.state` are not part of it: they never move.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from mcptrio import types
from mcptrio._peer.era import Era
from mcptrio._peer.messages import Opened
from mcptrio._peer.states import State
from mcptrio._wire.objects.converter import structure, unstructure

if TYPE_CHECKING:
    from mcptrio._actors.session import Session

FORMAT: Final = 1
"""The format of records that this version writes. It reads no newer one."""
MAX_SAVED: Final = 64 * 1024
"""Bytes of the value that a session function may save."""


class SessionRecord(Struct, frozen=True, kw_only=True):
    """One session as it is stored, as JSON."""

    format: int
    revision: str
    """The protocol revision that was negotiated."""
    identity: str
    """The key of the principal that opened the session; empty without authentication."""
    ready: bool
    """Whether the client has sent `notifications/initialized`."""
    confirmed: bool
    """Whether the client has sent anything after `initialize`."""
    capabilities: dict[str, Any]
    """The capabilities of the client."""
    offers: dict[str, Any] | None = None
    """The capabilities of the server, if a session function has narrowed them."""
    client_info: dict[str, Any] | None = None
    log_level: str | None = None
    subscriptions: tuple[str, ...] = ()
    """The URIs that the client has subscribed to."""
    versions: dict[str, str] = {}
    """Topics of the bus that concern the session -> their versions when the record was written."""
    saved: Any = None
    """The value that the session function saved."""


def record_of(session: Session) -> bytes:
    """Return the record of a session that is open, or was passivated just now."""
    link, data, era = session.link, session.data, session.peer.era
    info, saved = data.get("client_info"), data.get("saved")
    record = SessionRecord(
        format=FORMAT,
        revision="" if era is None else era.date,
        identity=link.identity,
        ready=session.peer.state is State.READY,
        confirmed=link.confirmed,
        capabilities=session.peer.capabilities,
        offers=data.get("narrowed"),
        client_info=None if info is None else unstructure(info),
        log_level=session.log_level,
        subscriptions=tuple(data.get("subscriptions", ())),
        versions=data.get("versions", {}),
        saved=None if saved is None else msgspec.json.decode(saved),
    )
    return msgspec.json.encode(record)


def read_record(data: bytes) -> SessionRecord | None:
    """Return a stored record; None if this version cannot read it."""
    try:
        record = msgspec.json.decode(data, type=SessionRecord)
    except msgspec.DecodeError:
        return None
    return record if record.format <= FORMAT else None


def restore(session: Session, record: SessionRecord, era: Era) -> None:
    """Bring a new session into the state of a record, as far as no feature of the server is concerned."""
    session.peer.step(Opened(era, record.capabilities, ready=record.ready))
    # An answer to a question of an earlier home settles nothing: its id is never used again.
    session.peer.ledger.number_asks_from(session.epoch << 32)
    session.log_level = record.log_level
    data = session.data
    if record.client_info is not None:
        data["client_info"] = structure(record.client_info, types.Implementation)
    if record.saved is not None:
        data["saved"] = msgspec.json.encode(record.saved)
    data["taken_over"] = True
    data["versions"] = dict(record.versions)


def changed_topics(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the topics that were published between two looks at their versions.

    A version is `origin:number`. Those of another origin, as after a restart without a shared bus, tell nothing.
    """
    return [
        topic
        for topic, version in now.items()
        if topic in before
        and before[topic] != version
        and before[topic].rpartition(":")[0] == version.rpartition(":")[0]
    ]
