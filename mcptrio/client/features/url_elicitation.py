"""Pages that the user must visit before a request can work: the error -32042.

2025-11-25 client/elicitation. The server has not executed the request; it names the pages, and may report when the user
is done there. The host is asked for consent, page by page, and then the request is repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import trio
from attrs import define, field

from mcptrio._peer.era import Era
from mcptrio._wire.objects.converter import StructureError, structure, unstructure
from mcptrio.client.callbacks import HostCallbacks
from mcptrio.errors import URL_ELICITATION_REQUIRED, MCPError, UrlElicitationRequired
from mcptrio.types import ElicitParams, UrlElicitationRequiredData

COMPLETE: Final = "notifications/elicitation/complete"
_MAX_PAGES: Final = 16

VisitedCallback: TypeAlias = Callable[[ElicitParams], Awaitable[None]]


def required(error: MCPError, era: Era | None) -> UrlElicitationRequired | None:
    """Return the pages that an error requires, or None if it is another error or cannot be read."""
    if error.code != URL_ELICITATION_REQUIRED or era is None or not era.stateful:
        return None  # 2026-07-28 basic/index: only 2025-11-25 has this code
    try:
        wanted = structure(error.data, UrlElicitationRequiredData).elicitations
    except StructureError:
        return None
    # "Any elicitations returned in the error MUST be URL mode elicitations and have an elicitationId"
    if not 0 < len(wanted) <= _MAX_PAGES or any(one.mode != "url" or not one.elicitation_id for one in wanted):
        return None
    found = UrlElicitationRequired(wanted[0].url or "", error.message)
    found.data, found.elicitations = error.data, wanted
    return found


@define(eq=False, repr=False, kw_only=True)
class UrlElicitations:
    """The pages that users visit now, and the requests that wait for them."""

    callbacks: HostCallbacks
    timeout: float
    """Seconds to wait for the server's report that the user is done."""
    visited: VisitedCallback | None = None
    """Waits until the user is done; raises if the user gives up."""
    _waiting: dict[trio.Event, str] = field(factory=dict)
    """Event that is set when an elicitation is complete -> the id of the elicitation."""

    def on_notification(self, method: str, params: dict[str, Any]) -> None:
        """Note that an elicitation is complete; unknown ids are ignored, as the specification says."""
        if method == COMPLETE:
            for done, number in self._waiting.items():
                if number == params.get("elicitationId"):
                    done.set()

    async def make(self, wanted: UrlElicitationRequired) -> None:
        """Have the user visit every page, until the server or the user reports completion, or the timeout is over.

        Raises:
            UrlElicitationRequired: there is no callback to ask the user, or the user declined.
        """
        if self.callbacks.elicit is None or "url" not in self.callbacks.elicit_modes:
            raise wanted
        pages = {trio.Event(): page for page in wanted.elicitations}
        self._waiting.update((done, page.elicitation_id or "") for done, page in pages.items())
        try:
            await self._consent(wanted)
            # After the timeout repeat the request anyway: the user may be done, and a refusal costs nothing.
            with trio.move_on_after(self.timeout):
                await self._wait_for(pages)
        finally:
            for done in pages:
                del self._waiting[done]

    async def _consent(self, wanted: UrlElicitationRequired) -> None:
        questions = {
            str(number): {"method": "elicitation/create", "params": unstructure(page)}
            for number, page in enumerate(wanted.elicitations)
        }
        answers = await self.callbacks.answer_all(questions)
        if any(answer["action"] != "accept" for answer in answers.values()):
            raise wanted

    async def _wait_for(self, pages: Mapping[trio.Event, ElicitParams]) -> None:
        failed: list[Exception] = []

        async def ask(visited: VisitedCallback, page: ElicitParams, done: trio.Event, all_of: trio.CancelScope) -> None:
            try:
                await visited(page)
            except Exception as error:  # noqa: BLE001 - raised below, alone instead of in a group
                failed.append(error)
                all_of.cancel()
            done.set()

        async def wait(page: ElicitParams, done: trio.Event, all_of: trio.CancelScope) -> None:
            async with trio.open_nursery() as nursery:
                if self.visited is not None:
                    nursery.start_soon(ask, self.visited, page, done, all_of)
                await done.wait()
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for done, page in pages.items():
                nursery.start_soon(wait, page, done, nursery.cancel_scope)
        if failed:
            raise failed[0]
