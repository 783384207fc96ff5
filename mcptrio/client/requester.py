"""Sending one request: `_meta`, timeouts, retries of safe requests, round trips and progress."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, Final, TypeAlias, TypedDict, TypeVar

import trio
from attrs import define, field

from mcptrio._struct import Entity
from mcptrio._wire.objects.converter import StructureError, structure, unstructure
from mcptrio.client.cache import ResultCache
from mcptrio.client.connection import ClientService, Connection
from mcptrio.client.exceptions import open_unwrapped_nursery
from mcptrio.client.features import round_trips
from mcptrio.client.features.headers import checked_headers
from mcptrio.client.features.url_elicitation import UrlElicitations, required
from mcptrio.client.handshake import another, request_meta
from mcptrio.client.reconnect import Connector
from mcptrio.client.timeouts import TimedReply
from mcptrio.errors import (
    UNSUPPORTED_PROTOCOL_VERSION,
    ConnectionLost,
    MCPError,
    Overloaded,
    RemoteProtocolError,
)
from mcptrio.telemetry.log import escape
from mcptrio.transports.client import NotDelivered
from mcptrio.transports.retry import Retries
from mcptrio.types import ProgressParams

logger = logging.getLogger("mcptrio.client")

T = TypeVar("T")
_LONG: Final = 1000  # items of a result that take milliseconds to convert
ProgressCallback: TypeAlias = Callable[[ProgressParams], Awaitable[None] | None]
_Report: TypeAlias = Callable[[Mapping[str, Any]], None]

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
"""Methods that are safe to repeat."""


LATE_ANSWER: Final = 1.0
"""Seconds to wait for the answer of a cancelled request that may be the handle of continuing work."""


class How(TypedDict, total=False):
    """Options of every request."""

    timeout: float | None
    """Seconds without a sign of life after which the request fails."""
    total_timeout: float | None
    """Seconds after which the request fails in any case."""
    on_progress: ProgressCallback | None
    max_rounds: int | None
    """How often the server may ask for input; with 0 `InputRequired` is raised, to drive the rounds by hand."""
    answers: Mapping[str, Any] | None
    """Answers to the input requests of an `InputRequired`, by key."""
    state: str | None
    """The state of that `InputRequired`."""
    meta: Mapping[str, Any] | None
    """Added to `_meta`."""
    headers: Mapping[str, str] | None
    """Sent with the HTTP request, in addition to those of the connection, which they replace; transports without
    headers ignore them. The result is not cached."""
    repeat: bool | None
    """Whether to repeat it if it may have arrived; None: if the protocol or the server declares it safe."""
    result_types: Mapping[str, round_trips.OtherResult] | None
    """Handlers for results of extensions, by `resultType`; they take precedence over those of the client."""


_KNOWN: Final = How.__optional_keys__


class _RequestPlan(Entity, kw_only=True):
    """One request with its options."""

    method: str
    params: dict[str, Any]
    repeat: bool
    idle: float
    """Seconds without a sign of life after which the request fails."""
    total: float
    left: float
    """Seconds left for the server, over all rounds, attempts and pauses."""
    max_rounds: int
    others: Mapping[str, round_trips.OtherResult]
    on_progress: ProgressCallback | None = None
    headers: Mapping[str, str] | None = None
    asked: int = 0
    """Number of attempts so far."""


@define(eq=False, repr=False, kw_only=True)
class Requester:
    """The sender of a client's requests. Borrows: the connector."""

    service: ClientService
    connector: Connector
    cache: ResultCache
    url_elicitations: UrlElicitations
    result_types: dict[str, round_trips.OtherResult] = field(factory=dict)
    """Handlers for results of extensions, by `resultType`."""

    async def get(self, method: str, params: dict[str, Any], cls: type[T], how: How, *, cached: bool = True) -> T:
        """Return a typed result, from the cache if it is fresh."""
        # Headers may carry credentials, and a result belongs to the caller that they name.
        by_hand = any(how.get(option) is not None for option in ("answers", "state", "headers"))
        key = None if by_hand else self.cache.key(method, params)
        if key is not None and cached and (kept := self.cache.get(key, trio.current_time())) is not None:
            await trio.lowlevel.checkpoint()
            return await read(kept, cls, method)
        changes = self.cache.changes
        plan = self._plan(method, params, how, None)
        result = await self._fulfil(plan)
        era = self.connector.era
        if key is not None and plan.asked == 1 and era is not None and era.features.cache_hints:
            self.cache.put(key, result, trio.current_time(), changes)
        return await read(result, cls, method)

    def ask(
        self, method: str, params: dict[str, Any], how: How, *, repeat: bool | None = None
    ) -> Awaitable[dict[str, Any]]:
        """Return the raw result. `repeat`: whether the request may be sent twice; None: if it is known to be safe.

        Raises:
            MCPError: the server refused it.
            InputRequired: the server asks for input more often than allowed.
            RequestTimeout, ConnectionLost, RemoteProtocolError, LocalProtocolError
        """
        return self._fulfil(self._plan(method, params, how, repeat))

    def _plan(self, method: str, params: dict[str, Any], how: How, repeat: bool | None) -> _RequestPlan:
        config = self.service.config
        plan = _RequestPlan(
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
            _refine(plan, how)
        return plan

    async def _fulfil(self, plan: _RequestPlan) -> dict[str, Any]:
        if plan.others and plan.method not in _SAFE:
            result = await self._ask_and_hear_out(plan)
        else:
            result = await self._ask(plan, plan.params)
        if result.get("resultType", round_trips.COMPLETE) == round_trips.COMPLETE:
            return result
        return await round_trips.complete(
            plan.method,
            plan.params,
            result,
            partial(self._ask, plan),
            self.service.callbacks,
            max_rounds=plan.max_rounds,
            others=plan.others,
        )

    async def _ask_and_hear_out(self, plan: _RequestPlan) -> dict[str, Any]:
        """Send a request, and wait `LATE_ANSWER` for its answer after a cancellation.

        The answer may be the handle of work that continues at the server; its extension gets it and can end the work.
        """
        result: dict[str, Any] | None = None
        try:
            async with open_unwrapped_nursery() as nursery:
                with trio.CancelScope(shield=True) as scope:
                    nursery.start_soon(_limit_when_cancelled, scope)
                    try:
                        result = await self._ask(plan, plan.params)
                    finally:
                        nursery.cancel_scope.cancel()
        except BaseException:
            if result is not None and (complete := plan.others.get(str(result.get("resultType")))) is not None:
                await complete(plan.method, result)
            raise
        assert result is not None  # for the type checker: after a cancellation the nursery raises it
        return result

    async def _ask(self, plan: _RequestPlan, params: dict[str, Any]) -> dict[str, Any]:
        """Send one round, and send it again if the user had to visit a page first."""
        plan.asked += 1
        try:
            return await self._try(plan, params)
        except MCPError as error:
            wanted = required(error, self.connector.era)
            if wanted is None:
                raise
        if not plan.max_rounds:
            raise wanted
        await self.url_elicitations.make(wanted)
        plan.asked += 1
        try:
            return await self._try(plan, params)
        except MCPError as error:
            raise required(error, self.connector.era) or error from None

    async def _try(self, plan: _RequestPlan, params: dict[str, Any]) -> dict[str, Any]:
        connection = self.connector.ready
        if connection is None or plan.on_progress is not None:
            return await self._insist(plan, params)
        try:
            return await self._once(connection, plan, params, None)
        except (ConnectionLost, Overloaded) as error:
            if not self._may_repeat(plan, error):
                raise
            failed = error
        return await self._insist(plan, params, failed)

    async def _insist(
        self, plan: _RequestPlan, params: dict[str, Any], failed: ConnectionLost | Overloaded | None = None
    ) -> dict[str, Any]:
        """Retry as often as the retry policy allows and within the time that is left."""
        timeouts = self.service.timeouts
        retries = Retries(self.service.config.reconnect)
        with trio.CancelScope() as scope:
            wait = TimedReply(method=plan.method, total=plan.total, left=plan.left, on_late=scope.cancel)
            timeouts.begin(wait)
            plan.left = inf  # it is counted here
            try:
                while True:
                    if failed is not None:
                        retries.failed(failed)
                        await retries.pause(failed)
                    connection = await self.connector.connected()
                    try:
                        if plan.on_progress is None:
                            return await self._once(connection, plan, params, None)
                        return await self._with_progress(connection, plan, params, plan.on_progress)
                    except (ConnectionLost, Overloaded) as error:
                        if not self._may_repeat(plan, error):
                            raise
                        failed = error
            finally:
                timeouts.end(wait)
                plan.left = wait.left
        raise wait.timeout()

    def _may_repeat(self, plan: _RequestPlan, error: ConnectionLost | Overloaded) -> bool:
        if self.connector.closed or not (plan.repeat or isinstance(error, NotDelivered)):
            return False
        logger.info("%s may be repeated: %s", plan.method, escape(error, 1000))
        return True

    async def _once(
        self, connection: Connection, plan: _RequestPlan, params: dict[str, Any], report: _Report | None
    ) -> dict[str, Any]:
        method = plan.method
        for _ in range(2):
            era = connection.era
            whole = params
            if era is not None and not era.stateful:
                whole = {**params, "_meta": {**request_meta(connection, era), **params.get("_meta", {})}}
            wait = TimedReply(
                method=method,
                idle=plan.idle,
                total=plan.total,
                left=plan.left,
                on_progress=report,
                # Progress is a sign of life, so a progress token is sent even without a callback.
                wants_progress=report is not None or method == "tools/call",
                headers=plan.headers,
            )
            try:
                return await connection.ask(method, whole, wait=wait)
            except MCPError as error:
                if error.code != UNSUPPORTED_PROTOCOL_VERSION or era is None or era.stateful:
                    raise
                connection.switch(another(self.service.eras, error))
            finally:
                plan.left = wait.left
        raise RemoteProtocolError(f"the server refuses {method} in every protocol version that it declares")

    async def _with_progress(
        self, connection: Connection, plan: _RequestPlan, params: dict[str, Any], on_progress: ProgressCallback
    ) -> dict[str, Any]:
        """Pass progress to the callback, in order; a callback that blocks does not delay the session."""
        send, receive = trio.open_memory_channel[ProgressParams](64)
        result: dict[str, Any] = {}

        def report(progress: Mapping[str, Any]) -> None:
            with suppress(StructureError, trio.WouldBlock):
                send.send_nowait(structure(progress, ProgressParams))

        async def pump() -> None:
            async for progress in receive:
                try:
                    reported = on_progress(progress)
                    if inspect.isawaitable(reported):
                        await reported
                except Exception:
                    logger.exception("a progress callback failed")

        async with open_unwrapped_nursery() as nursery:
            nursery.start_soon(pump)
            with send:
                result = await self._once(connection, plan, params, report)
        return result


async def _limit_when_cancelled(scope: trio.CancelScope) -> None:
    try:
        await trio.sleep_forever()
    finally:
        scope.deadline = trio.current_time() + LATE_ANSWER


def _refine(plan: _RequestPlan, how: How) -> None:
    """Apply the caller's options to a request."""
    if not how.keys() <= _KNOWN:
        wrong = ", ".join(sorted(how.keys() - _KNOWN))
        hint = "; the arguments of a tool are one object: call_tool(name, {…})" if plan.method == "tools/call" else ""
        raise TypeError(f"{plan.method} takes no {wrong}; there are {', '.join(sorted(_KNOWN))}{hint}")
    whole = plan.params = dict(plan.params)
    if meta := how.get("meta"):
        whole["_meta"] = {**whole.get("_meta", {}), **meta}
    if (answers := how.get("answers")) is not None:
        whole["inputResponses"] = {key: unstructure(answer) for key, answer in answers.items()}
    if (state := how.get("state")) is not None:
        whole["requestState"] = state
    if (repeat := how.get("repeat")) is not None:
        plan.repeat = repeat
    if (timeout := how.get("timeout")) is not None:
        plan.idle = timeout
        plan.total = plan.left = max(plan.total, timeout)  # a longer silence must fit into the total time
    if (total := how.get("total_timeout")) is not None:
        plan.total = plan.left = total
    if (rounds_allowed := how.get("max_rounds")) is not None:
        plan.max_rounds = rounds_allowed
    if (others := how.get("result_types")) is not None:
        plan.others = {**plan.others, **others}
    if (headers := how.get("headers")) is not None:
        plan.headers = checked_headers(headers)
    plan.on_progress = how.get("on_progress")


async def read(result: dict[str, Any], cls: type[T], method: str) -> T:
    """Convert a result to a typed value; a long list in a thread, so that the event loop goes on meanwhile.

    Raises:
        RemoteProtocolError: it does not have the expected shape.
    """
    try:
        if any(type(value) is list and len(value) > _LONG for value in result.values()):
            return await trio.to_thread.run_sync(partial(structure, result, cls, at="result"))
        return structure(result, cls, at="result")
    except StructureError as error:
        raise RemoteProtocolError(f"the result of {method} cannot be read: {error}") from error
