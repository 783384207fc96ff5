"""Asking the server: with what every request carries, again where it is safe, in several rounds if it asks back."""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, Final, TypeAlias, TypedDict, TypeVar

import trio
from attrs import define, field

from mcptrio._struct import Entity
from mcptrio._wire.converter import StructureError, structure, unstructure
from mcptrio.client.cache import ResultCache
from mcptrio.client.connection import ClientService, Connection
from mcptrio.client.features import rounds
from mcptrio.client.features.visits import Visits, required
from mcptrio.client.healing import Keeper
from mcptrio.client.opening import another, request_meta
from mcptrio.client.patience import Wait
from mcptrio.client.plain import open_plain_nursery
from mcptrio.errors import (
    UNSUPPORTED_PROTOCOL_VERSION,
    LinkClosed,
    McpError,
    Overloaded,
    RemoteProtocolError,
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


class _Wish(Entity, kw_only=True):
    """One request, as the caller wants it made."""

    method: str
    params: dict[str, Any]
    repeat: bool
    idle: float
    """Seconds without a sign of life after which it is given up."""
    total: float
    left: float
    """Seconds that the server still has, over all rounds, attempts and pauses."""
    max_rounds: int
    others: Mapping[str, rounds.OtherResult]
    on_progress: ProgressCallback | None = None
    asked: int = 0
    """How often the server was asked."""


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
        wish = self._wish(method, params, how, None)
        result = await self._fulfil(wish)
        era = self.keeper.era
        if key is not None and wish.asked == 1 and era is not None and era.features.cache_hints:
            self.cache.put(key, result, trio.current_time(), changes)
        return read(result, cls, method)

    def ask(
        self, method: str, params: dict[str, Any], how: How, *, repeat: bool | None = None
    ) -> Awaitable[dict[str, Any]]:
        """The result as it came. `repeat` says whether the request may be made twice; None: if it is known to be safe.

        Raises:
            McpError: the server refused it.
            InputRequired: the server asks back more often than allowed.
            RequestTimeout, LinkClosed, RemoteProtocolError, LocalProtocolError
        """
        return self._fulfil(self._wish(method, params, how, repeat))

    def _wish(self, method: str, params: dict[str, Any], how: How, repeat: bool | None) -> _Wish:
        config = self.service.config
        wish = _Wish(
            method=method,
            params=params,
            repeat=method in _SAFE if repeat is None else repeat,
            idle=config.timeout,
            total=config.total_timeout,
            left=config.total_timeout,
            max_rounds=config.max_rounds,
            others=self.result_types,
        )
        if how:
            _refine(wish, how)
        return wish

    async def _fulfil(self, wish: _Wish) -> dict[str, Any]:
        result = await self._ask(wish, wish.params)
        if result.get("resultType", rounds.COMPLETE) == rounds.COMPLETE:
            return result
        return await rounds.complete(
            wish.method,
            wish.params,
            result,
            partial(self._ask, wish),
            self.service.host,
            max_rounds=wish.max_rounds,
            others=wish.others,
        )

    async def _ask(self, wish: _Wish, params: dict[str, Any]) -> dict[str, Any]:
        """One round: once, or twice if a person must visit a page first."""
        wish.asked += 1
        try:
            return await self._try(wish, params)
        except McpError as error:
            wanted = required(error, self.keeper.era)
            if wanted is None:
                raise
        if not wish.max_rounds:
            raise wanted
        await self.visits.make(wanted)
        wish.asked += 1
        try:
            return await self._try(wish, params)
        except McpError as error:
            raise required(error, self.keeper.era) or error from None

    async def _try(self, wish: _Wish, params: dict[str, Any]) -> dict[str, Any]:
        connection = self.keeper.ready
        if connection is None or wish.on_progress is not None:
            return await self._insist(wish, params)
        try:
            return await self._once(connection, wish, params, None)
        except (LinkClosed, Overloaded) as error:
            if not self._may_repeat(wish, error, 1):
                raise
            failed = error
        return await self._insist(wish, params, failed)

    async def _insist(
        self, wish: _Wish, params: dict[str, Any], failed: LinkClosed | Overloaded | None = None
    ) -> dict[str, Any]:
        """Try until it works, as often as is allowed and in the time that is left, whatever it is spent on."""
        patience = self.service.patience
        with trio.CancelScope() as scope:
            wait = Wait(method=wish.method, total=wish.total, left=wish.left, on_late=scope.cancel)
            patience.begin(wait)
            wish.left = inf  # it is counted here
            try:
                for attempt in itertools.count(1 if failed is None else 2):
                    if failed is not None:
                        await self._pause(attempt - 1, failed)
                    connection = await self.keeper.connected()
                    try:
                        if wish.on_progress is None:
                            return await self._once(connection, wish, params, None)
                        return await self._with_progress(connection, wish, params, wish.on_progress)
                    except (LinkClosed, Overloaded) as error:
                        if not self._may_repeat(wish, error, attempt):
                            raise
                        failed = error
            finally:
                patience.end(wait)
                wish.left = wait.left
        raise wait.timeout()

    def _may_repeat(self, wish: _Wish, error: LinkClosed | Overloaded, attempt: int) -> bool:
        allowed = wish.repeat or isinstance(error, NotDelivered)
        if not allowed or attempt > self.service.config.reconnect.tries:
            return False
        if isinstance(error, LinkClosed):
            if self.keeper.closed:
                return False
            logger.info("%s is repeated: %s", wish.method, error)
        return True

    async def _pause(self, attempt: int, failed: LinkClosed | Overloaded) -> None:
        policy = self.service.config.reconnect
        if isinstance(failed, Overloaded):
            await trio.sleep(min(failed.retry_after, policy.most))
        await trio.sleep(policy.pause(attempt))

    async def _once(
        self, connection: Connection, wish: _Wish, params: dict[str, Any], tell: _Tell | None
    ) -> dict[str, Any]:
        method = wish.method
        for _ in range(2):
            era = connection.era
            whole = params
            if era is not None and not era.stateful:
                whole = {**params, "_meta": {**request_meta(connection, era), **params.get("_meta", {})}}
            wait = Wait(
                method=method,
                idle=wish.idle,
                total=wish.total,
                left=wish.left,
                on_progress=tell,
                # A call that reports progress is alive: its token is sent even if nobody wants to see it.
                wants_progress=tell is not None or method == "tools/call",
            )
            try:
                return await connection.ask(method, whole, wait=wait)
            except McpError as error:
                if error.code != UNSUPPORTED_PROTOCOL_VERSION or era is None or era.stateful:
                    raise
                connection.switch(another(self.service.eras, error))
            finally:
                wish.left = wait.left
        raise RemoteProtocolError(f"the server refuses {method} in every protocol version it says it supports")

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


def _refine(wish: _Wish, how: How) -> None:
    """Take up what the caller said of this request."""
    if not how.keys() <= _KNOWN:
        wrong = ", ".join(sorted(how.keys() - _KNOWN))
        hint = "; the arguments of a tool are one object: call_tool(name, {…})" if wish.method == "tools/call" else ""
        raise TypeError(f"{wish.method} takes no {wrong}; there are {', '.join(sorted(_KNOWN))}{hint}")
    whole = wish.params = dict(wish.params)
    if meta := how.get("meta"):
        whole["_meta"] = {**whole.get("_meta", {}), **meta}
    if (answers := how.get("answers")) is not None:
        whole["inputResponses"] = {key: unstructure(answer) for key, answer in answers.items()}
    if (state := how.get("state")) is not None:
        whole["requestState"] = state
    if (repeat := how.get("repeat")) is not None:
        wish.repeat = repeat
    if (timeout := how.get("timeout")) is not None:
        wish.idle = timeout
        wish.total = wish.left = max(wish.total, timeout)  # who allows so much silence allows so much time
    if (total := how.get("total_timeout")) is not None:
        wish.total = wish.left = total
    if (rounds_allowed := how.get("max_rounds")) is not None:
        wish.max_rounds = rounds_allowed
    if (others := how.get("result_types")) is not None:
        wish.others = {**wish.others, **others}
    wish.on_progress = how.get("on_progress")


def read(result: dict[str, Any], cls: type[T], method: str) -> T:
    """A result as a typed value.

    Raises:
        RemoteProtocolError: it does not have the shape of one.
    """
    try:
        return structure(result, cls, at="result")
    except StructureError as error:
        raise RemoteProtocolError(f"the result of {method} cannot be read: {error}") from error
