"""Asking the server: with what every request carries, again where it is safe, in several rounds if it asks back."""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypedDict, TypeVar

import trio
from attrs import define, field

from mcptrio._wire.converter import StructureError, structure, unstructure
from mcptrio.client.cache import ResultCache
from mcptrio.client.connection import ClientService, Connection
from mcptrio.client.features import rounds
from mcptrio.client.features.visits import Visits, required
from mcptrio.client.healing import Keeper
from mcptrio.client.opening import another, request_meta
from mcptrio.client.plain import open_plain_nursery
from mcptrio.errors import (
    UNSUPPORTED_PROTOCOL_VERSION,
    LinkClosed,
    McpError,
    Overloaded,
    RemoteProtocolError,
    RequestTimeout,
)
from mcptrio.transports.carrier import NotDelivered
from mcptrio.types import ProgressParams

logger = logging.getLogger("mcptrio.client")

T = TypeVar("T")
ProgressCallback: TypeAlias = Callable[[ProgressParams], Awaitable[None] | None]
_Tell: TypeAlias = Callable[[Mapping[str, Any]], None]

_SAFE: Final = frozenset(
    {
        "ping",
        "server/discover",
        "tools/list",
        "prompts/list",
        "prompts/get",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "completion/complete",
        "logging/setLevel",
        "tasks/get",
        "tasks/update",
        "tasks/cancel",
    }
)
"""What may be asked twice without harm."""


class How(TypedDict, total=False):
    """What every request can be given."""

    timeout: float | None
    """Seconds without a sign of life after which it is given up."""
    total_timeout: float | None
    """Seconds after which it is given up in any case."""
    on_progress: ProgressCallback | None
    max_rounds: int | None
    """How often the server may ask back; with 0 `InputRequired` is raised, for driving rounds by hand."""
    answers: Mapping[str, Any] | None
    """Answers to the questions of an `InputRequired`, by key."""
    state: str | None
    """The state of that `InputRequired`."""
    meta: Mapping[str, Any] | None
    """Added to `_meta`."""
    repeat: bool | None
    """Whether it may be made twice when nobody knows if it arrived; None: if the protocol or the server says so."""
    result_types: Mapping[str, rounds.OtherResult] | None
    """What to do with results of extensions, by their `resultType`; before those of the client."""


_KNOWN: Final = How.__optional_keys__


@define(eq=False, repr=False, kw_only=True)
class _Wish:
    """One request, as the caller wants it made."""

    method: str
    repeat: bool
    timeout: float | None = None
    total_timeout: float
    left: float
    """Seconds that the server still has, over all rounds, attempts and pauses."""
    on_progress: ProgressCallback | None = None


@define(eq=False, repr=False, kw_only=True)
class Asker:
    """Lent: the keeper of the connection."""

    service: ClientService
    keeper: Keeper
    cache: ResultCache
    visits: Visits
    result_types: dict[str, rounds.OtherResult] = field(factory=dict)
    """What to do with results of extensions, by their `resultType`."""

    async def get(self, method: str, params: dict[str, Any], cls: type[T], how: How, *, cached: bool = True) -> T:
        """A typed result: a fresh one that was kept, or a new one."""
        by_hand = how.get("answers") is not None or how.get("state") is not None
        key = None if by_hand else self.cache.key(method, params)
        if key is not None and cached and (kept := self.cache.get(key, trio.current_time())) is not None:
            await trio.lowlevel.checkpoint()
            return read(kept, cls, method)
        changes = self.cache.changes
        result, several = await self._ask(method, params, how, repeat=None)
        era = self.keeper.era
        if key is not None and not several and era is not None and era.features.cache_hints:
            self.cache.put(key, result, trio.current_time(), changes)
        return read(result, cls, method)

    async def ask(self, method: str, params: dict[str, Any], how: How, *, repeat: bool | None = None) -> dict[str, Any]:
        """The result as it came. `repeat` says whether the request may be made twice; None: if it is known to be safe.

        Raises:
            McpError: the server refused it.
            InputRequired: the server asks back more often than allowed.
            RequestTimeout, LinkClosed, RemoteProtocolError, LocalProtocolError
        """
        return (await self._ask(method, params, how, repeat=repeat))[0]

    async def _ask(
        self, method: str, params: dict[str, Any], how: How, *, repeat: bool | None
    ) -> tuple[dict[str, Any], bool]:
        """The result, and whether it took several rounds."""
        if how and not how.keys() <= _KNOWN:
            wrong = ", ".join(sorted(how.keys() - _KNOWN))
            raise TypeError(f"{method} takes no {wrong}; there are {', '.join(sorted(_KNOWN))}")
        whole = dict(params)
        if meta := how.get("meta"):
            whole["_meta"] = {**whole.get("_meta", {}), **meta}
        if (answers := how.get("answers")) is not None:
            whole["inputResponses"] = {key: unstructure(answer) for key, answer in answers.items()}
        if (state := how.get("state")) is not None:
            whole["requestState"] = state
        if (said := how.get("repeat")) is not None:
            repeat = said
        timeout, total = how.get("timeout"), how.get("total_timeout")
        total = max(self.service.config.total_timeout if total is None else total, timeout or 0)
        wish = _Wish(
            method=method,
            repeat=method in _SAFE if repeat is None else repeat,
            timeout=timeout,
            total_timeout=total,
            left=total,
            on_progress=how.get("on_progress"),
        )
        allowed = how.get("max_rounds")
        if allowed is None:
            allowed = self.service.config.max_rounds
        times = 0

        async def ask(asked: dict[str, Any]) -> dict[str, Any]:
            nonlocal times
            times += 1
            try:
                return await self._in_time(wish, asked)
            except McpError as error:
                wanted = required(error, self.keeper.era)
                if wanted is None:
                    raise
            if not allowed:
                raise wanted
            times += 1
            await self.visits.make(wanted)
            try:
                return await self._in_time(wish, asked)
            except McpError as error:
                raise required(error, self.keeper.era) or error from None

        others: Mapping[str, rounds.OtherResult] = self.result_types
        if (own := how.get("result_types")) is not None:
            others = {**others, **own}
        result = await rounds.complete(method, whole, ask, self.service.host, max_rounds=allowed, others=others)
        return result, times > 1

    async def _in_time(self, wish: _Wish, params: dict[str, Any]) -> dict[str, Any]:
        patience = self.service.patience
        with trio.move_on_after(wish.left) as scope:
            patience.begin(scope)
            try:
                return await self._attempt(wish, params)
            finally:
                wish.left = max(0.0, patience.end(scope))
        raise RequestTimeout(f"{wish.method} was not answered within {wish.total_timeout:g} s")

    async def _attempt(self, wish: _Wish, params: dict[str, Any]) -> dict[str, Any]:
        policy = self.service.config.reconnect
        for attempt in itertools.count(1):
            connection = await self.keeper.connected()
            try:
                if wish.on_progress is None:
                    return await self._once(connection, wish, params, None)
                return await self._with_progress(connection, wish, params, wish.on_progress)
            except LinkClosed as error:
                may_repeat = wish.repeat or isinstance(error, NotDelivered)
                if not may_repeat or attempt > policy.tries or self.keeper.closed:
                    raise
                logger.info("%s is repeated: %s", wish.method, error)
            except Overloaded as error:
                if not wish.repeat or attempt > policy.tries:
                    raise
                await trio.sleep(min(error.retry_after, policy.most))
            await trio.sleep(policy.pause(attempt))
        raise AssertionError("unreachable")

    async def _once(
        self, connection: Connection, wish: _Wish, params: dict[str, Any], tell: _Tell | None
    ) -> dict[str, Any]:
        for _ in range(2):
            era = connection.era
            whole = params
            if era is not None and not era.stateful:
                whole = {**params, "_meta": {**request_meta(connection, era), **params.get("_meta", {})}}
            try:
                return await connection.ask(wish.method, whole, timeout=wish.timeout, on_progress=tell)
            except McpError as error:
                if error.code != UNSUPPORTED_PROTOCOL_VERSION or era is None or era.stateful:
                    raise
                connection.switch(another(self.service.eras, error))
        raise RemoteProtocolError(f"the server refuses {wish.method} in every protocol version it says it supports")

    async def _with_progress(
        self, connection: Connection, wish: _Wish, params: dict[str, Any], on_progress: ProgressCallback
    ) -> dict[str, Any]:
        """Tell the callback of progress, in order; one that waits does not hold up the session."""
        send, receive = trio.open_memory_channel[ProgressParams](64)
        result: dict[str, Any] = {}

        def tell(progress: Mapping[str, Any]) -> None:
            with suppress(StructureError, trio.WouldBlock):
                send.send_nowait(structure(progress, ProgressParams))

        async def pump() -> None:
            async for progress in receive:
                try:
                    told = on_progress(progress)
                    if inspect.isawaitable(told):
                        await told
                except Exception:
                    logger.exception("a progress callback failed")

        async with open_plain_nursery() as nursery:
            nursery.start_soon(pump)
            with send:
                result = await self._once(connection, wish, params, tell)
        return result


def read(result: dict[str, Any], cls: type[T], method: str) -> T:
    """A result as a typed value.

    Raises:
        RemoteProtocolError: it does not have the shape of one.
    """
    try:
        return structure(result, cls, at="result")
    except StructureError as error:
        raise RemoteProtocolError(f"the result of {method} cannot be read: {error}") from error
