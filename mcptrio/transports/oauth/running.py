"""Runs a flow: performs each step that it asks for, and tells it what came of it."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlsplit

import trio
from attrs import define, field, frozen

from mcptrio.auth.client.code_grant import check_page
from mcptrio.auth.client.errors import AuthorizationFailed
from mcptrio.auth.client.steps import Ask, Fetch, Flow, Listen, Load, Save, Step, Visit
from mcptrio.auth.client.storage import MemoryStorage, TokenStorage
from mcptrio.transports.oauth.browser import open_page
from mcptrio.transports.oauth.fetching import Fetcher
from mcptrio.transports.oauth.redirect import RedirectListener, open_listener

T = TypeVar("T")

LOOPBACK: Final = "http://127.0.0.1:0/callback"
Visitor = Callable[[str], Awaitable[str]]


@frozen(kw_only=True)
class Desk:
    """Where the person is met: how pages are shown and how the answer comes back."""

    redirect_uri: str = LOOPBACK
    visit: Visitor | None = field(default=None, repr=False)
    """Takes the page's URL, returns the URL that the person was redirected to; None: a browser and a listener."""
    open_browser: Callable[[str], Awaitable[bool]] = open_page
    patience: float = 300.0


def tell(url: str) -> None:
    """What is left when no browser can be opened."""
    print(f"Open this page to sign in:\n\n  {url}\n", file=sys.stderr, flush=True)


@define(eq=False, repr=False)
class Runner:
    """Runs one flow. Owns: what its steps open, until the flow ends."""

    fetcher: Fetcher
    storage: TokenStorage
    desk: Desk
    _listener: RedirectListener | None = field(default=None, init=False)
    _stack: AsyncExitStack = field(factory=AsyncExitStack, init=False)

    async def run(self, flow: Flow[T]) -> T:
        """What the flow returns.

        Raises:
            AuthorizationFailed: what the flow raises.
        """
        async with self._stack:
            self._stack.push_async_callback(self.fetcher.aclose)
            step = _start(flow)
            while isinstance(step, _Next):
                try:
                    answer = await self._perform(step.step)
                except AuthorizationFailed as error:
                    step = _resume(flow, error=error)
                else:
                    step = _resume(flow, answer)
            return step

    async def _perform(self, step: Step) -> Any:
        match step:
            case Fetch():
                return await self.fetcher.fetch(step)
            case Load(key=key):
                return await self._stored(self.storage.load, key)
            case Save(key=key, record=record):
                return await self._stored(self.storage.save, key, record)
            case Listen(preferred=preferred):
                return await self._listen(preferred)
            case Visit(url=url, state=state):
                return await self._visit(url, state)
            case Ask(supplier=supplier, arguments=arguments):
                answer = supplier(*arguments)
                return await answer if inspect.isawaitable(answer) else answer

    async def _stored(self, act: Callable[..., Any], *arguments: Any) -> Any:
        if isinstance(self.storage, MemoryStorage):
            return act(*arguments)
        try:
            return await trio.to_thread.run_sync(act, *arguments)
        except OSError as error:
            raise AuthorizationFailed(f"the token storage failed: {error.strerror or type(error).__name__}") from error

    async def _listen(self, preferred: str | None) -> str:
        if self.desk.visit is not None:
            return self.desk.redirect_uri
        if self._listener is None:
            self._listener = await open_listener(self.desk.redirect_uri, preferred)
            self._stack.callback(self._listener.close)
        return self._listener.redirect_uri

    async def _visit(self, url: str, state: str) -> Mapping[str, str]:
        check_page(url)
        with trio.move_on_after(self.desk.patience):
            if self.desk.visit is not None:
                return read_answer(await self.desk.visit(url))
            assert self._listener is not None  # flows listen before they visit
            if not await self.desk.open_browser(url):
                tell(url)
            return await self._listener.wait(state)
        raise AuthorizationFailed(f"nobody signed in within {self.desk.patience:g} s", error="nobody_came")


def read_answer(redirected: str) -> dict[str, str]:
    """The query of a redirect.

    Raises:
        AuthorizationFailed: it says something twice.
    """
    query = parse_qsl(urlsplit(redirected).query, keep_blank_values=True)
    if len(dict(query)) != len(query):
        raise AuthorizationFailed("the redirect has a parameter twice")
    return dict(query)


@frozen
class _Next:
    step: Step


def _start(flow: Flow[T]) -> _Next | T:
    return _resume(flow)


def _resume(flow: Flow[T], answer: Any = None, error: AuthorizationFailed | None = None) -> _Next | T:
    try:
        return _Next(flow.throw(error) if error is not None else flow.send(answer))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
