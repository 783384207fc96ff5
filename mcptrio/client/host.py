"""What the host offers a server: its callbacks, and the capabilities that they stand for.

The same callbacks serve a server's request (stateful) and a question inside a result (stateless).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

import trio
from attrs import define, field

from mcptrio._wire.converter import StructureError, structure, unstructure
from mcptrio.client.features import elicitation, roots, sampling
from mcptrio.client.features.elicitation import ElicitAnswer
from mcptrio.client.features.roots import RootLike
from mcptrio.client.features.sampling import SampleAnswer
from mcptrio.errors import METHOD_NOT_FOUND, McpError, RemoteProtocolError, RequestTimeout
from mcptrio.types import CreateMessageParams, ElicitParams, LoggingMessageParams

logger = logging.getLogger("mcptrio.client")

ElicitCallback: TypeAlias = Callable[[ElicitParams], ElicitAnswer | Awaitable[ElicitAnswer]]
SampleCallback: TypeAlias = Callable[[CreateMessageParams], SampleAnswer | Awaitable[SampleAnswer]]
RootsCallback: TypeAlias = Callable[[], Iterable[RootLike] | Awaitable[Iterable[RootLike]]]
LogCallback: TypeAlias = Callable[[LoggingMessageParams], Awaitable[None] | None]
NotificationCallback: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[None] | None]

_WAITING = 1024


@define(eq=False, repr=False, kw_only=True)
class Host:
    """The host's side of a client. Its state is the callbacks and what waits to be told to them."""

    elicit: ElicitCallback | None = None
    elicit_modes: tuple[str, ...] = ("form", "url")
    sample: SampleCallback | None = None
    sample_tools: bool = False
    roots: Iterable[RootLike] | RootsCallback | None = None
    log: LogCallback | None = None
    on_notification: NotificationCallback | None = None
    extensions: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    experimental: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    timeout: float = 3600.0
    """How long the answers to questions inside a result may take."""
    _tell: trio.MemorySendChannel[tuple[str, dict[str, Any]]] = field(init=False)
    _told: trio.MemoryReceiveChannel[tuple[str, dict[str, Any]]] = field(init=False)
    dropped: int = 0
    """Notifications that nobody was told about, because the callbacks were too slow."""

    def __attrs_post_init__(self) -> None:
        if self.roots is not None and not callable(self.roots):
            self.roots = tuple(self.roots)
        self._tell, self._told = trio.open_memory_channel[tuple[str, dict[str, Any]]](_WAITING)

    # -- what is declared

    def capabilities(self, *, stateful: bool) -> dict[str, Any]:
        """The client's capabilities, as they stand on the wire."""
        declared: dict[str, Any] = {}
        if self.roots is not None:
            declared["roots"] = {"listChanged": True} if stateful else {}
        if self.sample is not None:
            declared["sampling"] = {"tools": {}} if self.sample_tools else {}
        if self.elicit is not None:
            declared["elicitation"] = {mode: {} for mode in self.elicit_modes}
        if self.experimental:
            declared["experimental"] = dict(self.experimental)
        if self.extensions and not stateful:
            declared["extensions"] = dict(self.extensions)
        return declared

    # -- what is asked

    async def answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a question of the server's, as it stands on the wire.

        Raises:
            McpError: there is no callback for it, or the callback raised one.
        """
        try:
            match method:
                case "elicitation/create" if self.elicit is not None:
                    asked = structure(params, ElicitParams)
                    if (asked.mode or "form") not in self.elicit_modes:
                        raise RemoteProtocolError(f"elicitation in {asked.mode} mode was not offered")
                    result: Any = elicitation.to_result(asked, await _call(self.elicit, asked))
                case "sampling/createMessage" if self.sample is not None:
                    result = sampling.to_result(await _call(self.sample, structure(params, CreateMessageParams)))
                case "roots/list" if self.roots is not None:
                    found = await _call(self.roots) if callable(self.roots) else self.roots
                    result = roots.to_result(found)
                case _:
                    raise McpError(METHOD_NOT_FOUND, f"{method} is not offered by this client")
        except StructureError as error:
            raise RemoteProtocolError(f"{method}: {error}", code=-32602) from error
        wire: dict[str, Any] = unstructure(result)
        return wire

    async def answer_all(self, questions: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """All questions are asked at the same time, as a stateful server would; the first failure ends the others.

        Raises:
            RequestTimeout: nobody answered in time.
        """
        answers: dict[str, Any] = {}
        failed: list[Exception] = []

        async def answer(key: str, question: Mapping[str, Any], scope: trio.CancelScope) -> None:
            try:
                answers[key] = await self.answer(question["method"], question.get("params", {}))
            except Exception as error:  # noqa: BLE001 - raised below, alone instead of in a group
                failed.append(error)
                scope.cancel()

        with trio.move_on_after(self.timeout) as patience:
            async with trio.open_nursery() as nursery:
                for key, question in questions.items():
                    nursery.start_soon(answer, key, question, nursery.cancel_scope)
        if failed:
            raise failed[0]
        if patience.cancelled_caught:
            raise RequestTimeout(f"the server's questions were not answered within {self.timeout:g} s")
        return {key: answers[key] for key in questions}

    # -- what is told

    def tell(self, method: str, params: dict[str, Any]) -> None:
        """Hand a notification to the callbacks, in order, some time soon. Never waits."""
        if self.on_notification is None and (self.log is None or method != "notifications/message"):
            return
        try:
            self._tell.send_nowait((method, params))
        except trio.WouldBlock:
            self.dropped += 1

    async def run(self) -> None:
        """Call the callbacks, one after the other; a failing one is logged."""
        async for method, params in self._told:
            try:
                if method == "notifications/message" and self.log is not None:
                    await _call(self.log, structure(params, LoggingMessageParams))
                if self.on_notification is not None:
                    await _call(self.on_notification, method, params)
            except StructureError as error:
                logger.warning("%s cannot be read: %s", method, error)
            except Exception:
                logger.exception("the callback for %s failed", method)


async def _call(callback: Callable[..., Any], *args: Any) -> Any:
    result = callback(*args)
    return await result if inspect.isawaitable(result) else result
