"""Pages that a person must visit before a request can work: the error -32042.

2025-11-25 client/elicitation. The server has not done what was asked; it names the pages, and may tell when the person
is done there. The host is asked for consent, page by page, and the request is made once more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import trio
from attrs import define, field

from mcptrio._peer.era import Era
from mcptrio._wire.converter import StructureError, structure, unstructure
from mcptrio.client.host import Host
from mcptrio.errors import URL_ELICITATION_REQUIRED, McpError
from mcptrio.types import ElicitParams, UrlElicitationRequiredData

COMPLETE: Final = "notifications/elicitation/complete"
_MAX_PAGES: Final = 16

VisitedCallback: TypeAlias = Callable[[ElicitParams], Awaitable[None]]


class UrlElicitationRequired(McpError):
    """A person must visit pages first, and did not, or nobody could ask them to.

    `elicitations` holds the pages: their `url`, and a `message` that says what for.
    """

    def __init__(self, error: McpError, elicitations: tuple[ElicitParams, ...]) -> None:
        super().__init__(error.code, error.message, error.data)
        self.elicitations = elicitations


def required(error: McpError, era: Era | None) -> UrlElicitationRequired | None:
    """What the error is about, if it is this one and can be read."""
    if error.code != URL_ELICITATION_REQUIRED or era is None or not era.stateful:
        return None  # 2026-07-28 basic/index: the code is of 2025-11-25 only
    try:
        wanted = structure(error.data, UrlElicitationRequiredData).elicitations
    except StructureError:
        return None
    # "Any elicitations returned in the error MUST be URL mode elicitations and have an elicitationId"
    if not 0 < len(wanted) <= _MAX_PAGES or any(one.mode != "url" or not one.elicitation_id for one in wanted):
        return None
    return UrlElicitationRequired(error, wanted)


@define(eq=False, repr=False, kw_only=True)
class Visits:
    """What people do at pages now, and who waits for it."""

    host: Host
    timeout: float
    """How long the server is given to tell that they are done."""
    visited: VisitedCallback | None = None
    """Waits until the person says that they are done; raises when they give up."""
    _waiting: dict[trio.Event, str] = field(factory=dict)
    """Set when the elicitation with this id is complete."""

    def on_notification(self, method: str, params: dict[str, Any]) -> None:
        """Ids that are not waited for are ignored, as they must be."""
        if method == COMPLETE:
            for done, number in self._waiting.items():
                if number == params.get("elicitationId"):
                    done.set()

    async def make(self, wanted: UrlElicitationRequired) -> None:
        """Have every page visited: until the server or the person says so, or the time is over.

        Raises:
            UrlElicitationRequired: nobody can be asked, or they did not want to.
        """
        if self.host.elicit is None or "url" not in self.host.elicit_modes:
            raise wanted
        pages = {trio.Event(): page for page in wanted.elicitations}
        self._waiting.update((done, page.elicitation_id or "") for done, page in pages.items())
        try:
            await self._consent(wanted)
            # Whoever tells nothing is asked again all the same: it may be done, and refuses at no cost otherwise.
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
        answers = await self.host.answer_all(questions)
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
