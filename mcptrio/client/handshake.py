"""The handshake: find out the server's protocol version, its identity and its capabilities.

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
from mcptrio._wire.objects.converter import StructureError, structure, unstructure
from mcptrio.client.connection import Connection
from mcptrio.errors import (
    HEADER_MISMATCH,
    MISSING_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
    ConnectionLost,
    MCPError,
    RemoteProtocolError,
    RequestTimeout,
)
from mcptrio.telemetry.log import escape
from mcptrio.transports.http_status import meaning_of
from mcptrio.types import DiscoverResult, Implementation, InitializeResult, ServerCapabilities

logger = logging.getLogger("mcptrio.client")

MODERN: Final = frozenset({HEADER_MISMATCH, MISSING_CLIENT_CAPABILITY, UNSUPPORTED_PROTOCOL_VERSION})
_TRIES: Final = 3


@frozen(kw_only=True)
class HandshakeResult:
    """The server's answer to the handshake."""

    era: Era
    capabilities: ServerCapabilities
    server_info: Implementation | None
    instructions: str | None


class _LegacyServer(Exception):
    """The server does not support `server/discover`."""

    def __init__(self, why: Exception) -> None:
        self.why = why


def request_meta(connection: Connection, era: Era) -> dict[str, Any]:
    """Return the `_meta` that every request of a stateless date carries."""
    service = connection.service
    known = connection.meta
    if known is not None and known[0] is era and known[1] == service.log_level:
        return known[2]
    meta: dict[str, Any] = {
        stateless.VERSION: era.date,
        stateless.CLIENT_INFO: unstructure(service.config.info),
        stateless.CAPABILITIES: service.callbacks.capabilities(stateful=False),
    }
    if service.log_level is not None:
        meta[stateless.LOG_LEVEL] = service.log_level
    connection.meta = (era, service.log_level, meta)
    return meta


async def perform_handshake(connection: Connection, known: Era | None = None) -> HandshakeResult:
    """Open the session. `known` is the date that this server spoke on an earlier connection.

    Raises:
        RemoteProtocolError: no common protocol version, or an invalid response.
        MCPError, ConnectionLost, RequestTimeout
    """
    if known is not None and known.stateful:
        try:
            return await _initialize(connection)
        except (MCPError, RemoteProtocolError) as error:
            logger.info("the server's protocol version changed (%s); negotiating again", escape(error, 1000))
    eras = connection.service.eras
    modern = eras.newest_stateless
    if modern is None or connection.transport.name == "sse":  # HTTP+SSE is older than every stateless date
        return await _initialize(connection)
    if eras.newest_stateful is None:
        return await _discover(connection, modern)
    try:
        if connection.transport.name == "http":
            return await _probe(connection, modern)
        return await _probe_pipe(connection, modern)
    except _LegacyServer as older:
        logger.debug("the server does not know server/discover: %s", escape(older.why, 1000))
    return await _initialize(connection)


# -- the stateless dates


async def _probe(connection: Connection, era: Era) -> HandshakeResult:
    try:
        return await _discover(connection, era)
    except MCPError as error:
        if error.code in MODERN:
            raise
        raise _LegacyServer(error) from error
    except RemoteProtocolError as error:
        if meaning_of(error.http_status).sign_in:
            raise
        raise _LegacyServer(error) from error
    except RequestTimeout as error:
        raise _LegacyServer(error) from error


async def _probe_pipe(connection: Connection, era: Era) -> HandshakeResult:
    """Probe over a pipe, where an older server may not respond at all, and a slow one need not be old."""
    found: HandshakeResult | Exception | None = None
    answered = trio.Event()

    async def ask() -> None:
        nonlocal found
        try:
            found = await _probe(connection, era)
        except (_LegacyServer, MCPError, RemoteProtocolError, ConnectionLost) as error:
            found = error
        answered.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        with trio.move_on_after(connection.service.config.probe_timeout):
            await answered.wait()
        if found is None:
            try:
                found = await _initialize(connection)
            except (MCPError, RemoteProtocolError, ConnectionLost, RequestTimeout) as error:
                # It may have been slow to start, and support only stateless dates.
                if found is None:
                    found = error
        nursery.cancel_scope.cancel()
    if isinstance(found, HandshakeResult):
        return found
    assert found is not None
    raise found


async def _discover(connection: Connection, era: Era) -> HandshakeResult:
    for _ in range(_TRIES):
        try:
            result = await connection.ask(
                "server/discover",
                {"_meta": request_meta(connection, era)},
                timeout=connection.service.config.open_timeout,
            )
            break
        except MCPError as error:
            if error.code != UNSUPPORTED_PROTOCOL_VERSION:
                raise
            era = another(connection.service.eras, error)
    else:
        raise RemoteProtocolError("the server refuses every protocol version that it declares as supported")
    said = _read(result, DiscoverResult)
    common = [one for one in connection.service.eras.eras.values() if one.date in said.supported_versions]
    chosen = era if era in common else next((one for one in reversed(common) if not one.stateful), None)
    if chosen is None:
        raise RemoteProtocolError(f"no common version: the server supports {', '.join(said.supported_versions)}")
    meta = result.get("_meta")
    info = meta.get(stateless.SERVER_INFO) if isinstance(meta, dict) else None
    connection.opened(chosen, result.get("capabilities", {}), said.capabilities)
    return HandshakeResult(
        era=chosen,
        capabilities=said.capabilities,
        server_info=_read(info, Implementation) if isinstance(info, dict) else None,
        instructions=said.instructions,
    )


def another(eras: Served, error: MCPError) -> Era:
    """Return the newest stateless date that both sides support, after the server refused another one."""
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    offered = supported if isinstance(supported, list) else []
    for era in reversed(eras.eras.values()):
        if era.date in offered and not era.stateful:
            return era
    raise RemoteProtocolError(f"no common version: the server supports {', '.join(map(str, offered)) or 'none'}")


# -- the stateful dates


async def _initialize(connection: Connection) -> HandshakeResult:
    eras, callbacks, config = connection.service.eras, connection.service.callbacks, connection.service.config
    wanted = eras.newest_stateful
    if wanted is None:
        raise RemoteProtocolError("protocol= allows only versions without sessions, but the server has sessions")
    params = {
        "protocolVersion": wanted.date,
        "capabilities": callbacks.capabilities(stateful=True),
        "clientInfo": unstructure(config.info),
    }
    result = await connection.ask("initialize", params, timeout=config.open_timeout)
    said = _read(result, InitializeResult)
    era = eras.eras.get(said.protocol_version)
    if era is None or not era.stateful:
        raise RemoteProtocolError(f"no common version: the server chose {said.protocol_version!r:.80}")
    connection.opened(era, result.get("capabilities", {}), said.capabilities)
    with trio.move_on_after(config.open_timeout) as scope:
        await connection.confirm()
    if scope.cancelled_caught:
        raise RequestTimeout(f"notifications/initialized was not accepted within {config.open_timeout:g} s")
    return HandshakeResult(
        era=era, capabilities=said.capabilities, server_info=said.server_info, instructions=said.instructions
    )


def _read(value: Any, cls: type[Any]) -> Any:
    try:
        return structure(value, cls, at="result")
    except StructureError as error:
        raise RemoteProtocolError(f"the server's handshake response is invalid: {error}") from error
