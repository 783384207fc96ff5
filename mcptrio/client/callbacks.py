"""The host's callbacks, and the capabilities that they imply.

They answer both requests of the server (stateful dates) and input requests inside a result (stateless dates).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any, TypeAlias

import trio
from attrs import define, field

from mcptrio._settings import check_value
from mcptrio._wire.objects.converter import StructureError, structure, unstructure
from mcptrio.client.features import elicitation, roots, sampling
from mcptrio.client.features.elicitation import ElicitAnswer
from mcptrio.client.features.roots import RootLike
from mcptrio.client.features.sampling import SampleAnswer
from mcptrio.errors import METHOD_NOT_FOUND, MCPError, RemoteProtocolError, RequestTimeout
from mcptrio.telemetry.log import escape
from mcptrio.types import CreateMessageParams, ElicitParams, LoggingMessageParams, Root

logger = logging.getLogger("mcptrio.client")

ElicitCallback: TypeAlias = Callable[[ElicitParams], ElicitAnswer | Awaitable[ElicitAnswer]]
SampleCallback: TypeAlias = Callable[[CreateMessageParams], SampleAnswer | Awaitable[SampleAnswer]]
RootsCallback: TypeAlias = Callable[[], Iterable[RootLike] | Awaitable[Iterable[RootLike]]]
LogCallback: TypeAlias = Callable[[LoggingMessageParams], Awaitable[None] | None]
NotificationCallback: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[None] | None]

_WAITING = 1024


@define(eq=False, repr=False, kw_only=True)
class HostCallbacks:
    """The host's callbacks, and the queue of notifications for them."""

    elicit: ElicitCallback | None = None
    elicit_modes: tuple[str, ...] = ("form", "url")
    sample: SampleCallback | None = None
    sample_tools: bool = False
    roots: Iterable[RootLike] | RootsCallback | None = None
    log: LogCallback | None = None
    on_notification: NotificationCallback | None = None
    extensions: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    timeout: float = 3600.0
    """Timeout in seconds for answering the input requests inside a result."""
    _sender: trio.MemorySendChannel[tuple[str, dict[str, Any]]] = field(init=False)
    _receiver: trio.MemoryReceiveChannel[tuple[str, dict[str, Any]]] = field(init=False)
    dropped: int = 0
    """Notifications that were dropped because the callbacks were too slow."""

    def __attrs_post_init__(self) -> None:
        if self.roots is not None and not callable(self.roots):
            self.roots = tuple(self.roots)
            check_value("roots", self.roots, tuple[Root | str | PurePath, ...])
        self._sender, self._receiver = trio.open_memory_channel[tuple[str, dict[str, Any]]](_WAITING)

    # -- capabilities

    def capabilities(self, *, stateful: bool) -> dict[str, Any]:
        """Return the client's capabilities in their wire form."""
        declared: dict[str, Any] = {}
        if self.roots is not None:
            declared["roots"] = {"listChanged": True} if stateful else {}
        if self.sample is not None:
            declared["sampling"] = {"tools": {}} if self.sample_tools else {}
        if self.elicit is not None:
            declared["elicitation"] = {mode: {} for mode in self.elicit_modes}
        if self.extensions and not stateful:
            declared["extensions"] = dict(self.extensions)
        return declared

    # -- requests of the server

    async def answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a request of the server; return the result in its wire form.

        Raises:
            MCPError: there is no callback for it, or the callback raised one.
        """
        try:
            match method:
                case "elicitation/create" if self.elicit is not None:
                    asked = structure(params, ElicitParams)
                    if (asked.mode or "form") not in self.elicit_modes:
                        raise RemoteProtocolError(f"elicitation in {asked.mode} mode was not offered")
                    result: Any = await elicitation.to_result(asked, await _call(self.elicit, asked))
                case "sampling/createMessage" if self.sample is not None:
                    result = sampling.to_result(await _call(self.sample, structure(params, CreateMessageParams)))
                case "roots/list" if self.roots is not None:
                    found = await _call(self.roots) if callable(self.roots) else self.roots
                    result = roots.to_result(found)
                case _:
                    raise MCPError(METHOD_NOT_FOUND, f"{method} is not offered by this client")
        except StructureError as error:
            raise RemoteProtocolError(f"{method}: {error}", code=-32602) from error
        wire: dict[str, Any] = unstructure(result)
        return wire

    async def answer_all(self, questions: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Answer all input requests concurrently, as at the stateful dates; the first failure ends the others.

        Raises:
            RequestTimeout: the answers took too long.
        """
        answers: dict[str, Any] = {}
        failed: list[Exception] = []

        async def answer(key: str, question: Mapping[str, Any], scope: trio.CancelScope) -> None:
            try:
                answers[key] = await self.answer(question["method"], question.get("params", {}))
            except Exception as error:  # noqa: BLE001 - raised below, alone instead of in a group
                failed.append(error)
                scope.cancel()

        with trio.move_on_after(self.timeout) as timeouts:
            async with trio.open_nursery() as nursery:
                for key, question in questions.items():
                    nursery.start_soon(answer, key, question, nursery.cancel_scope)
        if failed:
            raise failed[0]
        if timeouts.cancelled_caught:
            raise RequestTimeout(f"the server's questions were not answered within {self.timeout:g} s")
        return {key: answers[key] for key in questions}

    # -- notifications

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Queue a notification for the callbacks, which get them in order. Never blocks."""
        if self.on_notification is None and (self.log is None or method != "notifications/message"):
            return
        try:
            self._sender.send_nowait((method, params))
        except trio.WouldBlock:
            self.dropped += 1

    async def run(self) -> None:
        """Call the callbacks, one after the other; a failing one is logged."""
        async for method, params in self._receiver:
            try:
                if method == "notifications/message" and self.log is not None:
                    await _call(self.log, structure(params, LoggingMessageParams))
                if self.on_notification is not None:
                    await _call(self.on_notification, method, params)
            except StructureError as error:
                logger.warning("%s cannot be read: %s", method, escape(error, 1000))
            except Exception:
                logger.exception("the callback for %s failed", method)


async def _call(callback: Callable[..., Any], *args: Any) -> Any:
    result = callback(*args)
    return await result if inspect.isawaitable(result) else result
