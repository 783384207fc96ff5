"""The start of a session: `initialize`, `ping`, log levels, and the user's session function."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import evolve
from msgspec import field

from mcptrio._actors.call import Call
from mcptrio._actors.service import Actor
from mcptrio._eras.shape import trim
from mcptrio._peer.era import Era
from mcptrio._struct import Entity
from mcptrio._wire.objects.converter import unstructure
from mcptrio.errors import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    DeclarationError,
    MCPError,
    RemoteProtocolError,
    SessionRefused,
)
from mcptrio.server.context import Context, RequestHandle, SessionHandle
from mcptrio.server.features.result_fields import ResultFields
from mcptrio.server.session_handle import check_kept, is_large

if TYPE_CHECKING:
    from mcptrio._actors.record import SessionRecord
    from mcptrio.types import (
        Implementation,
        InitializeParams,
        Params,
        SetLevelParams,
    )

T = TypeVar("T")
SessionT = TypeVar("SessionT", bound=Callable[[SessionHandle], AsyncIterator[Any] | AbstractAsyncContextManager[Any]])
SessionFunction = Callable[[SessionHandle], AbstractAsyncContextManager[Any]]


def entered_with(
    kind: str, fn: Callable[[T], AsyncIterator[Any] | AbstractAsyncContextManager[Any]]
) -> Callable[[T], AbstractAsyncContextManager[Any]]:
    """Return a lifespan or session function in the form that is entered with `async with`.

    Raises:
        DeclarationError: it is neither an async generator function nor one that returns an async context manager.
    """
    if inspect.isasyncgenfunction(fn):
        return asynccontextmanager(fn)
    # `unwrap`: a function with `@contextmanager` looks like any other from outside
    if inspect.iscoroutinefunction(fn) or inspect.isgeneratorfunction(inspect.unwrap(fn)) or not callable(fn):
        raise DeclarationError(f"a {kind} function is async and yields once: async def {kind}(it): ...; yield value")
    return fn  # type: ignore[return-value]  # with `@asynccontextmanager`, or a class of the user


class Lifecycle(Entity):
    """The handlers of the lifecycle methods."""

    info: Implementation
    instructions: str | None
    capabilities: Callable[[], dict[str, Any]]
    """Returns the current capabilities in their wire form."""
    result_fields: ResultFields
    dates: Callable[[], tuple[str, ...]]
    session_function: SessionFunction | None = None
    movable: bool = False
    """Whether the session function runs again when a stored session is continued."""
    _current: dict[str, Any] | None = None
    _offered: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Date -> the capabilities in their wire form, shared by all sessions because there may be thousands."""

    def declare(self, fn: SessionT, *, movable: bool) -> SessionT:
        """Set the session function.

        Raises:
            DeclarationError: there is one already, or it is none.
        """
        if self.session_function is not None:
            raise DeclarationError("there is a session function already; a server has one")
        self.session_function, self.movable = entered_with("session", fn), movable
        return fn

    def _common_capabilities(self) -> dict[str, Any]:
        now = self.capabilities()
        if now != self._current:
            self._current = now
            self._offered.clear()
        assert self._current is not None
        return self._current

    def _offer(self, era: Era, capabilities: dict[str, Any]) -> dict[str, Any]:
        if capabilities is not self._current:  # narrowed by the session function
            return trim(era, "capabilities", capabilities)
        if era.date not in self._offered:
            self._offered[era.date] = trim(era, "capabilities", capabilities)
        return self._offered[era.date]

    def initialize(self, ctx: Context, params: InitializeParams) -> dict[str, Any]:
        """Answer `initialize` of a session without a session function: it never waits, so the session needs no task."""
        self._keep_client(ctx, params.client_info)
        ctx._session.data["capabilities"] = self._common_capabilities()
        return self._answer(ctx)

    async def initialize_with_state(self, ctx: Context, params: InitializeParams) -> dict[str, Any]:
        """Answer `initialize` after the session function has yielded the state of the session."""
        self._keep_client(ctx, params.client_info)
        session = ctx._session
        try:
            await self._enter(session)
        except SessionRefused as refused:
            raise MCPError(INVALID_REQUEST, str(refused) or "the session was refused") from None
        return self._answer(ctx)

    def _keep_client(self, ctx: Context, info: Implementation) -> None:
        """Keep who the client is. Its icons may be images: a session keeps them only as long as they are small."""
        said = ctx._call.start.params
        if info.icons is not None and is_large(said):
            said = {**said, "clientInfo": {key: value for key, value in said["clientInfo"].items() if key != "icons"}}
            info = evolve(info, icons=None)
        check_kept(said)
        ctx._session.data["client_info"] = info

    def _answer(self, ctx: Context) -> dict[str, Any]:
        session, era = ctx._session, ctx._call.start.era
        session.peer.offers = offered = self._offer(era, session.data["capabilities"])
        answer: dict[str, Any] = {
            "protocolVersion": era.date,
            "capabilities": offered,
            "serverInfo": trim(era, "implementation", unstructure(self.info)),
        }
        if self.instructions is not None:
            answer["instructions"] = self.instructions
        return answer

    async def _enter(self, session: Actor) -> None:
        """Run the session function up to its `yield`; note what it has made of the capabilities."""
        data = session.data
        data["capabilities"] = common = self._common_capabilities()
        if self.session_function is None:
            return
        data["pinned"] = not self.movable
        session.state = await session.background.hold(self.session_function(SessionHandle(session)))
        if data["capabilities"] is not common:
            data["narrowed"] = data["capabilities"]

    async def restore(self, session: Actor, record: SessionRecord) -> None:
        """Continue a stored session: offer the same capabilities, and run a movable session function again.

        Raises:
            SessionRefused: the session function refuses it.
        """
        era = session.peer.era
        assert era is not None
        await self._enter(session)
        if record.offers is not None and "narrowed" not in session.data:
            session.data["capabilities"] = session.data["narrowed"] = record.offers
        session.peer.offers = self._offer(era, session.data["capabilities"])

    def discover(self, ctx: Context, params: Params) -> dict[str, Any]:
        """Return the supported versions and capabilities, without opening a session (2026-07-28 server/discover)."""
        era, offers = ctx._call.start.era, ctx._call.offers
        answer: dict[str, Any] = {
            "supportedVersions": list(reversed(self.dates())),
            "capabilities": trim(era, "capabilities", self.capabilities() if offers is None else offers),
        }
        if self.instructions is not None:
            answer["instructions"] = self.instructions
        return self.result_fields.finish_list("discover", answer, era, varies=offers is not None)

    def around_request(self, session: Actor, call: Call) -> AbstractAsyncContextManager[Any] | None:
        """Return the context manager of the session function around one stateless request."""
        function = self.session_function
        return None if function is None else self._around_request(function, session, call)

    @asynccontextmanager
    async def _around_request(self, function: SessionFunction, session: Actor, call: Call) -> AsyncIterator[Any]:
        call.offers = self.capabilities()
        start = call.start
        try:
            async with function(RequestHandle(session, call)) as state:
                spec = start.era.requests.get(start.method)
                if spec is not None and spec.needs and spec.needs[0] not in call.offers:
                    raise RemoteProtocolError(
                        f"method not found: {start.method!r:.80}",
                        code=METHOD_NOT_FOUND,
                        http_status=start.era.http.unknown_method_status,
                    )
                yield state
        except SessionRefused as refused:
            raise MCPError(INVALID_REQUEST, str(refused) or "the session was refused") from None


def ping(ctx: Context, params: Params) -> dict[str, Any]:
    return {}


def set_level(ctx: Context, params: SetLevelParams) -> dict[str, Any]:
    ctx._session.log_level = params.level
    ctx._session.changed()
    return {}
