"""What a handler is given: the request it serves, its session, and the ways to talk back to the client."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

import trio
from attrs import define, field, frozen

from mcptrio import telemetry
from mcptrio._actors.session import Call, Session
from mcptrio._eras.shape import trim
from mcptrio._schema.elicit import form_schema, parse_form
from mcptrio._schema.faults import ArgumentFaults
from mcptrio._wire.converter import structure, unstructure
from mcptrio.errors import CapabilityMissing, DeclarationError, RemoteProtocolError
from mcptrio.types import (
    LOGGING_LEVELS,
    ClientCapabilities,
    ContentLike,
    CreateMessageResult,
    ElicitResult,
    Implementation,
    ListRootsResult,
    LoggingLevel,
    ModelPreferences,
    Root,
    SamplingMessage,
    ServerCapabilities,
    Tool,
    ToolChoice,
    to_content,
)

T = TypeVar("T")

_SEVERITY = {level: rank for rank, level in enumerate(LOGGING_LEVELS)}


@frozen
class Elicited(Generic[T]):
    """What the person did with a question. Use `value` only after looking at `accepted`."""

    action: str
    """accept, decline or cancel."""
    value: T | None = None
    """The answer in the type that was asked for; None unless it was accepted."""
    content: Mapping[str, Any] | None = field(default=None, repr=False)
    """The answer as it came over the wire."""

    @property
    def accepted(self) -> bool:
        return self.action == "accept"


@frozen
class HttpInfo:
    """The HTTP request that carried a call."""

    method: str
    path: str
    headers: Mapping[str, str]
    client: str | None
    """The remote address."""


class SessionHandle:
    """What handlers may know of, and do with, the session they serve."""

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    def __repr__(self) -> str:
        return f"<session {self.id[:8]}… over {self._session.transport}>"

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def transport(self) -> str:
        return self._session.transport

    @property
    def principal(self) -> Any:
        return self._session.principal

    @property
    def protocol_version(self) -> str | None:
        era = self._session.peer.era
        return None if era is None else era.date

    @property
    def client_info(self) -> Implementation | None:
        return cast("Implementation | None", self._session.data.get("client_info"))

    @property
    def client_capabilities(self) -> ClientCapabilities:
        return structure(self._session.peer.capabilities, ClientCapabilities)

    @property
    def capabilities(self) -> ServerCapabilities:
        """What the server offers in this session; a session function may set it to something narrower."""
        return cast(ServerCapabilities, self._session.data["capabilities"])

    @capabilities.setter
    def capabilities(self, offered: ServerCapabilities) -> None:
        self._session.data["capabilities"] = offered

    @property
    def ended(self) -> str | None:
        """Why the session ended, once it has."""
        return None if self._session.ended is None else self._session.ended.value

    def start_soon(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run `fn` in the background for as long as the session lives."""
        self._session.start_background(fn, *args)

    async def resource_updated(self, uri: str) -> None:
        """Tell this client, and no other, that a resource has changed."""
        await self._session.notify("notifications/resources/updated", {"uri": uri})


class Context:
    """A handler's view of its request. Annotate a parameter with it and it is given; it is never part of a schema."""

    __slots__ = ("_call", "_data", "_done", "_last_progress", "_session")

    def __init__(self, session: Session, call: Call) -> None:
        self._session = session
        self._call = call
        self._data: dict[str, Any] | None = None
        self._done: dict[str, _Once] | None = None
        self._last_progress: float | None = None

    def __repr__(self) -> str:
        return f"<context of {self._call.start.method} {self.request_id!r}>"

    # -- who and what

    @property
    def session(self) -> SessionHandle:
        return SessionHandle(self._session)

    @property
    def request_id(self) -> int | str | None:
        return self._call.start.request_id

    @property
    def method(self) -> str:
        return self._call.start.method

    @property
    def meta(self) -> Mapping[str, Any]:
        """The `_meta` of the request."""
        meta = self._call.start.params.get("_meta")
        return meta if isinstance(meta, dict) else {}

    @property
    def protocol_version(self) -> str:
        return self._call.start.era.date

    @property
    def client_info(self) -> Implementation | None:
        return self.session.client_info

    @property
    def client_capabilities(self) -> ClientCapabilities:
        return self.session.client_capabilities

    @property
    def http(self) -> HttpInfo | None:
        """The HTTP request that carried this call, or None over stdio."""
        head = getattr(self._call.start.link, "head", None)
        if head is None:
            return None
        return HttpInfo(method=head.method, path=head.path, headers=head.header_map(), client=head.client)

    @property
    def principal(self) -> Any:
        return self._session.principal

    @property
    def state(self) -> Any:
        """What the function declared with `@server.session` yielded for this session."""
        return self._session.state

    @property
    def lifespan(self) -> Any:
        """What the server's lifespan function yielded."""
        return self._session.runtime.lifespan

    @property
    def data(self) -> dict[str, Any]:
        """A dictionary of one's own for this request, e.g. for middleware to leave things in."""
        if self._data is None:
            self._data = {}
        return self._data

    # -- telling

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress, if the client asked for it. It also restarts the call's soft time limit."""
        self._call.extend()
        token = self._call.start.progress_token
        if token is None:
            await trio.lowlevel.checkpoint()
            return
        # basic/utilities/progress: the value MUST increase with each notification
        if self._last_progress is not None and progress <= self._last_progress:
            self._dropped("stale_progress")
            return
        self._last_progress = progress
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None and self._call.start.era.features.progress_message:
            params["message"] = message
        if not self._call.may_notify():
            self._call.held_back = ("notifications/progress", params)
            self._dropped("progress_rate")
            await trio.lowlevel.checkpoint()
            return
        self._call.held_back = None
        await self._session.notify("notifications/progress", params, call=self._call)

    async def log(self, level: LoggingLevel, data: Any, *, logger: str | None = None) -> None:
        """Send a log message to the client, if it wants messages of that level."""
        if level not in _SEVERITY:
            raise DeclarationError(f"{level!r} is not a log level; use one of {', '.join(LOGGING_LEVELS)}")
        threshold = self._session.log_level or "info"
        if _SEVERITY[level] < _SEVERITY[cast(LoggingLevel, threshold)]:
            await trio.lowlevel.checkpoint()
            return
        if not self._call.may_notify():
            self._dropped("log_rate")
            await trio.lowlevel.checkpoint()
            return
        params: dict[str, Any] = {"level": level, "data": unstructure(data)}
        if logger is not None:
            params["logger"] = logger
        await self._session.notify("notifications/message", params, call=self._call)

    async def debug(self, data: Any, *, logger: str | None = None) -> None:
        await self.log("debug", data, logger=logger)

    async def info(self, data: Any, *, logger: str | None = None) -> None:
        await self.log("info", data, logger=logger)

    async def warning(self, data: Any, *, logger: str | None = None) -> None:
        await self.log("warning", data, logger=logger)

    async def error(self, data: Any, *, logger: str | None = None) -> None:
        await self.log("error", data, logger=logger)

    def _dropped(self, kind: str) -> None:
        hub = self._session.service.telemetry
        if hub:
            hub.emit(telemetry.Dropped(kind=kind, session=self._session.id))

    def close_stream(self) -> None:
        """End the HTTP stream of this call now; the client comes back for the rest (it polls). Nothing elsewhere."""
        close = getattr(self._call.start.link, "close_connection", None)
        if close is not None:
            close()

    # -- asking

    async def elicit(
        self, message: str, form: type[T] | Mapping[str, Any], *, timeout: float | None = None
    ) -> Elicited[T]:
        """Ask the person to fill in a form.

        `form` is a dataclass, attrs class, TypedDict, Struct or pydantic model with flat fields, or a schema written by
        hand (then `value` is the plain object).

        Raises:
            CapabilityMissing: this client cannot ask the person, or its protocol version has no elicitation.
        """
        schema = dict(form) if isinstance(form, Mapping) else form_schema(form)
        result = await self._ask_person({"message": message, "requestedSchema": schema}, timeout)
        if result.action != "accept":
            return Elicited(result.action)
        content = dict(result.content or {})
        if isinstance(form, Mapping):
            return Elicited(result.action, cast(T, content), content)
        try:
            value = parse_form(form, content)
        except ArgumentFaults as error:
            raise RemoteProtocolError(f"the answer to elicitation/create does not fit the form: {error}") from error
        return Elicited(result.action, cast(T, value), content)

    async def elicit_url(
        self, message: str, url: str, *, elicitation_id: str | None = None, timeout: float | None = None
    ) -> Elicited[None]:
        """Ask the person to visit a page; for secrets, payments and sign-ins that must not pass through the client.

        Raises:
            CapabilityMissing: this client cannot open pages, or its protocol version cannot ask for it.
        """
        if not self._call.start.era.features.elicitation_url:
            raise CapabilityMissing(f"elicitation by URL does not exist at protocol version {self.protocol_version}")
        params = {
            "mode": "url",
            "message": message,
            "url": url,
            "elicitationId": elicitation_id or f"{self._session.id[:12]}-{self._call.start.call}",
        }
        result = await self._ask_person(params, timeout)
        return Elicited(result.action)

    async def elicitation_complete(self, elicitation_id: str) -> None:
        """Tell the client that what happened at the page of an earlier `elicit_url` is done."""
        params = {"elicitationId": elicitation_id}
        await self._session.notify("notifications/elicitation/complete", params)

    async def _ask_person(self, params: dict[str, Any], timeout: float | None) -> ElicitResult:
        answer = await self._session.ask("elicitation/create", params, call=self._call, timeout=timeout)
        return self._read(answer, ElicitResult, "elicitation/create")

    async def sample(
        self,
        messages: ContentLike | Sequence[SamplingMessage | ContentLike],
        *,
        max_tokens: int = 1024,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        model_preferences: ModelPreferences | None = None,
        tools: Sequence[Tool] | None = None,
        tool_choice: ToolChoice | None = None,
        metadata: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> CreateMessageResult:
        """Ask the client's model.

        Raises:
            CapabilityMissing: this client lets nobody ask its model (or gives it no tools).
            McpError: the client refused; its code is -1 when the person said no.
        """
        listed = [messages] if isinstance(messages, str) or not isinstance(messages, Sequence) else messages
        params: dict[str, Any] = {
            "messages": [unstructure(_message(item)) for item in listed],
            "maxTokens": max_tokens,
        }
        optional: dict[str, Any] = {
            "systemPrompt": system_prompt,
            "temperature": temperature,
            "stopSequences": None if stop_sequences is None else list(stop_sequences),
            "modelPreferences": None if model_preferences is None else unstructure(model_preferences),
            "tools": None if tools is None else [unstructure(tool) for tool in tools],
            "toolChoice": None if tool_choice is None else unstructure(tool_choice),
            "metadata": metadata,
        }
        params.update({key: value for key, value in optional.items() if value is not None})
        if tools and not self._call.start.era.features.sampling_tools:
            raise CapabilityMissing(f"tools in sampling do not exist at protocol version {self.protocol_version}")
        params = trim(self._call.start.era, "sampling", params)
        answer = await self._session.ask("sampling/createMessage", params, call=self._call, timeout=timeout)
        return self._read(answer, CreateMessageResult, "sampling/createMessage")

    async def list_roots(self, *, timeout: float | None = None) -> tuple[Root, ...]:
        """Ask which directories and files the client lets the server work in.

        Raises:
            CapabilityMissing: this client has no roots.
        """
        answer = await self._session.ask("roots/list", {}, call=self._call, timeout=timeout)
        return self._read(answer, ListRootsResult, "roots/list").roots

    def _read(self, answer: Any, cls: type[T], method: str) -> T:
        try:
            return structure(answer, cls)
        except Exception as error:
            raise RemoteProtocolError(f"the client's answer to {method} cannot be read: {error}") from error

    async def once(self, key: str, fn: Callable[..., Any], *args: Any) -> Any:
        """Run `fn` and remember its result under `key`: a second time in the same call it is returned, not done again.

        In a call that is replayed (after an ask whose answer reached another process) the recorded result is returned.
        """
        if self._done is None:
            self._done = {}
        done = self._done.setdefault(key, _Once())
        async with done.lock:  # a second task of the call that comes meanwhile gets the same result
            if not done.made:
                result = fn(*args)
                done.value = await result if inspect.isawaitable(result) else result
                done.made = True
        return done.value


@define(eq=False)
class _Once:
    lock: trio.Lock = field(factory=trio.Lock)
    made: bool = False
    value: Any = None


def _message(item: SamplingMessage | ContentLike) -> SamplingMessage:
    return item if isinstance(item, SamplingMessage) else SamplingMessage(role="user", content=to_content(item))


__all__ = ["Context", "Elicited", "HttpInfo", "SessionHandle"]
