"""Client callbacks of the command line: elicitation at the terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define
from rich.text import Text

from mcptrio.auth.client.errors import AuthorizationFailed
from mcptrio.cli.exit_codes import REFUSED, Failure
from mcptrio.cli.forms import FormField, fields_of
from mcptrio.cli.terminal import Terminal, clean
from mcptrio.client.features.elicitation import ElicitAnswer
from mcptrio.transports.oauth.browser import open_page
from mcptrio.types import ElicitParams


class _Declined(Exception):
    """The user pressed Ctrl-D or chose to decline."""


@define(eq=False, repr=False)
class TerminalElicitation:
    """Elicitation at the terminal; declines if there is no terminal."""

    terminal: Terminal
    server: Callable[[], str]
    """Returns the name of the server that asks."""

    async def elicit(self, params: ElicitParams) -> ElicitAnswer:
        """Ask the user; Ctrl-D declines, Ctrl-C ends the command."""
        if not self.terminal.interactive:
            where = f" ({params.url})" if params.mode == "url" else ""
            self.terminal.note(
                f"mcptrio: the server asked: {_one_line(params.message)}{where}; declined, because stdin is not a "
                "terminal",
                "yellow",
            )
            return "decline"
        async with self.terminal.turn:
            self._show(params)
            try:
                return await self._visit(params.url) if params.mode == "url" else await self._fill_in(params)
            except _Declined:
                self.terminal.note("declined")
                return "decline"

    def _show(self, params: ElicitParams) -> None:
        self.terminal.stop_progress()
        err = self.terminal.err
        err.print(Text(f"{clean(self.server())} asks:", style="bold cyan"), soft_wrap=True)
        err.print(Text(clean(params.message)), soft_wrap=True)
        err.print(Text("Ctrl-D declines.", style="dim"))

    async def _line(self, prompt: str) -> str:
        line = await self.terminal.ask(prompt)
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
            # To edit: each field is asked again, and Enter keeps its answer.

    async def _one(self, field: FormField, content: dict[str, Any]) -> None:
        err = self.terminal.err
        if field.description:
            err.print(Text(clean(field.description), style="dim"), soft_wrap=True)
        for number, (_, title) in enumerate(field.choices, 1):
            err.print(Text(f"  {number}  {clean(title)}"), soft_wrap=True)
        kept = content.get(field.name, field.default)
        hint = f" ({words})" if (words := field.hint(kept)) else ""
        while True:
            text = await self._line(f"{field.title}{hint}:")
            if not text and kept is None and not field.required:
                return
            try:
                content[field.name] = field.check(kept) if not text and kept is not None else field.read(text)
                return
            except ValueError as error:
                self.terminal.note(str(error), "red")

    # -- a page

    async def _visit(self, url: str | None) -> str:
        assert url is not None  # `ElicitParams` checks that
        self.terminal.err.print(Text(clean(url), style="underline"), soft_wrap=True)
        answer = (await self._line("Open this page? [y]es, [d]ecline:")).lower()
        if answer not in ("y", "yes"):
            raise _Declined
        try:
            opened = await open_page(url)
        except AuthorizationFailed:
            self.terminal.note("Not opened: the page is neither https nor on this machine.", "red")
            raise _Declined from None
        if not opened:
            self.terminal.note("No browser was found: open the page yourself.")
        return "accept"

    async def visited(self, page: ElicitParams) -> None:
        """Wait until the user has finished at a page that a request requires."""
        async with self.terminal.turn:
            line = await self.terminal.ask("Press Enter when you have finished there (the server may report it first):")
        if line is None:
            raise Failure(REFUSED, "the page was not visited")


def _one_line(text: str) -> str:
    return " ".join(text.split())
