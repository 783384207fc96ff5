"""The server asks the person: at the terminal, or, where there is none, not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define
from rich.text import Text

from mcptrio.auth.client.errors import AuthorizationFailed
from mcptrio.cli.exits import REFUSED, Failure
from mcptrio.cli.forms import Field, fields_of
from mcptrio.cli.screen import Screen, clean
from mcptrio.client.features.elicitation import ElicitAnswer
from mcptrio.errors import USER_REJECTED, McpError
from mcptrio.transports.oauth.browser import open_page
from mcptrio.types import CreateMessageParams, ElicitParams


class _Declined(Exception):
    """The person pressed the key."""


@define(eq=False, repr=False)
class Person:
    """Whoever sits at the terminal, if anybody does."""

    screen: Screen
    server: Callable[[], str]
    """The name of the server that asks."""

    async def elicit(self, params: ElicitParams) -> ElicitAnswer:
        """What they answer; Ctrl-D declines, Ctrl-C ends everything."""
        if not self.screen.interactive:
            where = f" ({params.url})" if params.mode == "url" else ""
            self.screen.note(
                f"mcptrio: the server asked: {_one_line(params.message)}{where}; declined: there is no terminal",
                "yellow",
            )
            return "decline"
        async with self.screen.turn:
            self._show(params)
            try:
                return await self._visit(params.url) if params.mode == "url" else await self._fill_in(params)
            except _Declined:
                self.screen.note("declined")
                return "decline"

    def _show(self, params: ElicitParams) -> None:
        self.screen.stop_progress()
        err = self.screen.err
        err.print(Text(f"{clean(self.server())} asks:", style="bold cyan"), soft_wrap=True)
        err.print(Text(clean(params.message)), soft_wrap=True)
        err.print(Text("Ctrl-D declines.", style="dim"))

    async def _line(self, prompt: str) -> str:
        line = await self.screen.ask(prompt)
        if line is None:
            raise _Declined
        return line

    # -- a form

    async def _fill_in(self, params: ElicitParams) -> dict[str, Any]:
        fields = fields_of(params.requested_schema or {})
        content: dict[str, Any] = {}
        while True:
            for field in fields:
                await self._one(field, content)
            # 2025-11-25 client/elicitation: let people review their answers before they are sent
            answer = (await self._line("Send this? [Y]es, [e]dit, [d]ecline:")).lower()
            if answer in ("", "y", "yes"):
                return content
            if answer in ("d", "n", "no", "decline"):
                raise _Declined
            content.clear()

    async def _one(self, field: Field, content: dict[str, Any]) -> None:
        err = self.screen.err
        if field.description:
            err.print(Text(clean(field.description), style="dim"), soft_wrap=True)
        for number, (_, title) in enumerate(field.choices, 1):
            err.print(Text(f"  {number}  {clean(title)}"), soft_wrap=True)
        hint = f" ({field.hint})" if field.hint else ""
        while True:
            text = await self._line(f"{field.title}{hint}:")
            if not text and field.default is not None:
                content[field.name] = field.default
                return
            if not text and not field.required:
                return
            try:
                content[field.name] = field.read(text)
                return
            except ValueError as error:
                self.screen.note(str(error), "red")

    # -- a page

    async def _visit(self, url: str | None) -> str:
        assert url is not None  # the type checks that
        self.screen.err.print(Text(clean(url), style="underline"), soft_wrap=True)
        answer = (await self._line("Open this page? [y]es, [d]ecline:")).lower()
        if answer not in ("y", "yes"):
            raise _Declined
        try:
            opened = await open_page(url)
        except AuthorizationFailed:
            self.screen.note("This page is neither https nor on this machine: not opened.", "red")
            raise _Declined from None
        if not opened:
            self.screen.note("No browser was found: open the page yourself.")
        return "accept"

    async def visited(self, page: ElicitParams) -> None:
        """Wait until they say that they are done at a page which the server wants them to visit first."""
        async with self.screen.turn:
            line = await self.screen.ask("Press Enter when you are done there, unless the server says so first:")
        if line is None:
            raise Failure(REFUSED, "the page was not visited")


@define(eq=False, repr=False)
class Model:
    """What is asked when a server wants the host's model: nobody, or a text that stands for its answer."""

    screen: Screen
    answer: str | None

    def sample(self, params: CreateMessageParams) -> str:
        if self.answer is not None:
            return self.answer
        self.screen.note("mcptrio: the server asked for a model; there is none here (see --sample)", "yellow")
        raise McpError(USER_REJECTED, "no model")


def _one_line(text: str) -> str:
    return " ".join(text.split())
