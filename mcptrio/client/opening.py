"""Getting to know a server: which protocol date it speaks, who it is, what it offers.

The newest form, `server/discover`, is tried first. A server that answers it, or refuses it with an error that only the
stateless dates have, is stateless; any other is opened with `initialize` (2026-07-28 basic/versioning).
"""

from __future__ import annotations

import logging
from typing import Any, Final

import trio
from attrs import frozen

from mcptrio._eras import stateless
from mcptrio._eras.choose import Served
from mcptrio._peer.era import Era
from mcptrio._wire.converter import StructureError, structure, unstructure
from mcptrio.client.connection import Connection
from mcptrio.errors import (
    HEADER_MISMATCH,
    MISSING_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
    LinkClosed,
    McpError,
    RemoteProtocolError,
    RequestTimeout,
)
from mcptrio.types import DiscoverResult, Implementation, InitializeResult, ServerCapabilities

logger = logging.getLogger("mcptrio.client")

MODERN: Final = frozenset({HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION})
_TRIES: Final = 3


@frozen(kw_only=True)
class Introduction:
    """What a server said of itself."""

    era: Era
    capabilities: ServerCapabilities
    server_info: Implementation | None
    instructions: str | None


class _Older(Exception):
    """The server does not know the newest form of introduction."""

    def __init__(self, why: Exception) -> None:
        self.why = why


def request_meta(connection: Connection, era: Era) -> dict[str, Any]:
    """What every request of a stateless date says of its sender."""
    service = connection.service
    known = connection.meta
    if known is not None and known[0] is era and known[1] == service.log_level:
        return known[2]
    meta: dict[str, Any] = {
        stateless.VERSION: era.date,
        stateless.CLIENT_INFO: unstructure(service.config.info),
        stateless.CAPABILITIES: service.host.capabilities(stateful=False),
    }
    if service.log_level is not None:
        meta[stateless.LOG_LEVEL] = service.log_level
    connection.meta = (era, service.log_level, meta)
    return meta


async def introduce(connection: Connection, known: Era | None = None) -> Introduction:
    """Open the session. `known` is the date that this server was found to speak before.

    Raises:
        RemoteProtocolError: the server speaks nothing that this client does, or nothing that can be understood.
        McpError, LinkClosed, RequestTimeout
    """
    if known is not None and known.stateful:
        try:
            return await _initialize(connection)
        except (McpError, RemoteProtocolError) as error:
            logger.info("the server is not what it was (%s); it is asked anew what it speaks", error)
    eras = connection.service.eras
    modern = eras.newest_stateless
    if modern is None or connection.carrier.name == "sse":  # HTTP+SSE is older than every stateless date
        return await _initialize(connection)
    if eras.newest_stateful is None:
        return await _discover(connection, modern)
    try:
        if connection.carrier.name == "http":
            return await _probe(connection, modern)
        return await _probe_pipe(connection, modern)
    except _Older as older:
        logger.debug("the server does not know server/discover: %s", older.why)
    return await _initialize(connection)


# -- the stateless dates


async def _probe(connection: Connection, era: Era) -> Introduction:
    try:
        return await _discover(connection, era)
    except McpError as error:
        if error.code in MODERN:
            raise
        raise _Older(error) from error
    except RemoteProtocolError as error:
        if error.http_status in (401, 403):
            raise
        raise _Older(error) from error
    except RequestTimeout as error:
        raise _Older(error) from error


async def _probe_pipe(connection: Connection, era: Era) -> Introduction:
    """The same on a pipe, where an older server may stay silent; and a slow one is not an old one."""
    found: Introduction | Exception | None = None
    answered = trio.Event()

    async def ask() -> None:
        nonlocal found
        try:
            found = await _probe(connection, era)
        except (_Older, McpError, RemoteProtocolError, LinkClosed) as error:
            found = error
        answered.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        with trio.move_on_after(connection.service.config.probe_timeout):
            await answered.wait()
        if found is None:
            try:
                found = await _initialize(connection)
            except (McpError, RemoteProtocolError, LinkClosed, RequestTimeout) as error:
                # It may have been slow to start, and know only the newest form.
                if found is None:
                    found = error
        nursery.cancel_scope.cancel()
    if isinstance(found, Introduction):
        return found
    assert found is not None
    raise found


async def _discover(connection: Connection, era: Era) -> Introduction:
    for _ in range(_TRIES):
        try:
            result = await connection.ask(
                "server/discover",
                {"_meta": request_meta(connection, era)},
                timeout=connection.service.config.open_timeout,
            )
            break
        except McpError as error:
            if error.code != UNSUPPORTED_PROTOCOL_VERSION:
                raise
            era = another(connection.service.eras, error)
    else:
        raise RemoteProtocolError("the server refuses every protocol version that it says it supports")
    said = _read(result, DiscoverResult)
    common = [one for one in connection.service.eras.eras.values() if one.date in said.supported_versions]
    chosen = era if era in common else next((one for one in reversed(common) if not one.stateful), None)
    if chosen is None:
        raise RemoteProtocolError(f"the server speaks {', '.join(said.supported_versions)}, this client does not")
    meta = result.get("_meta")
    info = meta.get(stateless.SERVER_INFO) if isinstance(meta, dict) else None
    connection.opened(chosen, result.get("capabilities", {}), said.capabilities)
    return Introduction(
        era=chosen,
        capabilities=said.capabilities,
        server_info=_read(info, Implementation) if isinstance(info, dict) else None,
        instructions=said.instructions,
    )


def another(eras: Served, error: McpError) -> Era:
    """The newest stateless date that both sides speak, when the server refused the one it was asked in."""
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    offered = supported if isinstance(supported, list) else []
    for era in reversed(eras.eras.values()):
        if era.date in offered and not era.stateful:
            return era
    raise RemoteProtocolError(f"the server speaks {', '.join(map(str, offered)) or 'nothing'}, this client does not")


# -- the stateful dates


async def _initialize(connection: Connection) -> Introduction:
    eras, host, config = connection.service.eras, connection.service.host, connection.service.config
    wanted = eras.newest_stateful
    if wanted is None:
        raise RemoteProtocolError("the server wants a session, and this client was told to speak a date without one")
    params = {
        "protocolVersion": wanted.date,
        "capabilities": host.capabilities(stateful=True),
        "clientInfo": unstructure(config.info),
    }
    result = await connection.ask("initialize", params, timeout=config.open_timeout)
    said = _read(result, InitializeResult)
    era = eras.eras.get(said.protocol_version)
    if era is None or not era.stateful:
        raise RemoteProtocolError(f"the server speaks {said.protocol_version!r:.80}, this client does not")
    connection.opened(era, result.get("capabilities", {}), said.capabilities)
    await connection.confirm()
    return Introduction(
        era=era, capabilities=said.capabilities, server_info=said.server_info, instructions=said.instructions
    )


def _read(value: Any, cls: type[Any]) -> Any:
    try:
        return structure(value, cls, at="result")
    except StructureError as error:
        raise RemoteProtocolError(f"the server's introduction cannot be read: {error}") from error
