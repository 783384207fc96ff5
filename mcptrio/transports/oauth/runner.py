"""Performs the steps of a flow: requests, storage, redirect listener, browser and user callbacks."""

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
from mcptrio.auth.client.errors import AuthorizationFailed, FetchFailed
from mcptrio.auth.client.steps import Fetch, Flow, Listen, Load, Lock, Save, Step, Supply, Unlock, Visit
from mcptrio.auth.client.storage import LockingStorage, MemoryStorage, TokenStorage
from mcptrio.transports.fetch import Fetcher
from mcptrio.transports.oauth.browser import open_page
from mcptrio.transports.oauth.redirect import RedirectListener, open_listener

T = TypeVar("T")

LOCK_TIMEOUT: Final = 60.0  # seconds; longer than a renewal takes with all its timeouts
LOCK_POLL: Final = 0.05
LOOPBACK: Final = "http://127.0.0.1:0/callback"
Visitor = Callable[[str], Awaitable[str]]


@frozen(kw_only=True)
class SignInSettings:
    """Settings of a sign-in: how the page is shown and how the redirect is received."""

    redirect_uri: str = LOOPBACK
    visit: Visitor | None = field(default=None, repr=False)
    """Takes the URL of the page and returns the URL that it redirected to; None: browser and redirect listener."""
    open_browser: Callable[[str], Awaitable[bool]] = open_page
    timeout: float = 300.0
    """Seconds for the user to sign in."""


def print_url(url: str) -> None:
    """Print the URL of the sign-in page, where no browser can be opened."""
    print(f"Open this page to sign in:\n\n  {url}\n", file=sys.stderr, flush=True)


@define(eq=False, repr=False)
class Runner:
    """The driver of one flow. Owns: the fetcher, the redirect listener and locked records, until the flow ends."""

    fetcher: Fetcher
    storage: TokenStorage
    sign_in: SignInSettings
    _listener: RedirectListener | None = field(default=None, init=False)
    _locks: dict[str, Callable[[], None]] = field(factory=dict, init=False)
    """How to release the records that the flow has locked."""
    _stack: AsyncExitStack = field(factory=AsyncExitStack, init=False)

    async def run(self, flow: Flow[T]) -> T:
        """Run the flow and return its result.

        Raises:
            AuthorizationFailed: the flow failed.
        """
        async with self._stack:
            self._stack.push_async_callback(self.fetcher.aclose)
            self._stack.callback(self._unlock_all)
            try:
                step = next(flow)
                while True:
                    try:
                        answer = await self._perform(step)
                    except AuthorizationFailed as error:
                        step = flow.throw(error)
                    else:
                        step = flow.send(answer)
            except StopIteration as done:
                result: T = done.value
            return result

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
            case Lock(key=key):
                return await self._lock(key)
            case Unlock(key=key):
                return self._unlock(key)
            case Supply(supplier=supplier, arguments=arguments):
                answer = supplier(*arguments)
                return await answer if inspect.isawaitable(answer) else answer

    async def _stored(self, act: Callable[..., Any], *arguments: Any) -> Any:
        if isinstance(self.storage, MemoryStorage):
            return act(*arguments)
        try:
            return await trio.to_thread.run_sync(act, *arguments)
        except OSError as error:
            raise AuthorizationFailed(f"the token storage failed: {error.strerror or type(error).__name__}") from error

    async def _lock(self, key: str) -> None:
        if not isinstance(self.storage, LockingStorage):
            return
        with trio.move_on_after(LOCK_TIMEOUT):
            while (release := await self._stored(self.storage.try_lock, key)) is None:  # noqa: ASYNC110
                await trio.sleep(LOCK_POLL)  # another process may hold it, so there is no event to wait for
            self._locks[key] = release
            return
        raise FetchFailed(
            f"another program has not finished renewing the stored tokens within {LOCK_TIMEOUT:g} s: "
            "end it, or use a token storage of your own"
        )

    def _unlock(self, key: str) -> None:
        release = self._locks.pop(key, None)
        if release is not None:
            release()

    def _unlock_all(self) -> None:
        for key in list(self._locks):
            self._unlock(key)

    async def _listen(self, preferred: str | None) -> str:
        if self.sign_in.visit is not None:
            return self.sign_in.redirect_uri
        if self._listener is None:
            self._listener = await open_listener(self.sign_in.redirect_uri, preferred)
            self._stack.callback(self._listener.close)
        return self._listener.redirect_uri

    async def _visit(self, url: str, state: str) -> Mapping[str, str]:
        check_page(url)
        with trio.move_on_after(self.sign_in.timeout):
            if self.sign_in.visit is not None:
                return read_answer(await self.sign_in.visit(url))
            assert self._listener is not None  # flows listen before they visit
            if not await self.sign_in.open_browser(url):
                print_url(url)
            return await self._listener.wait(state)
        raise AuthorizationFailed(f"sign-in timed out after {self.sign_in.timeout:g} s", error="sign_in_timeout")


def read_answer(redirected: str) -> dict[str, str]:
    """Parse the query of a redirect.

    Raises:
        AuthorizationFailed: a parameter is repeated.
    """
    query = parse_qsl(urlsplit(redirected).query, keep_blank_values=True)
    if len(dict(query)) != len(query):
        raise AuthorizationFailed("the redirect repeats a parameter")
    return dict(query)
