"""Asking the client from inside a handler: the person, the model, the roots. The same words at every date."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from mcptrio import types
from mcptrio._actors.call import Call
from mcptrio._actors.session import Session
from mcptrio._eras.shape import lower_form, trim
from mcptrio._schema.build import dump
from mcptrio._schema.faults import ArgumentFaults
from mcptrio._wire.converter import structure, unstructure
from mcptrio.errors import CapabilityMissing, DeclarationError, RemoteProtocolError

if TYPE_CHECKING:
    from mcptrio.types import (
        ContentLike,
        CreateMessageResult,
        Message,
        ModelPreferences,
        PromptMessage,
        Root,
        SamplingMessage,
        Tool,
        ToolChoice,
    )

    MessageLike: TypeAlias = SamplingMessage | Message | PromptMessage | CreateMessageResult | ContentLike

T = TypeVar("T")


class Elicited(Struct, Generic[T], frozen=True):
    """What the person did with a question. Use `value` only after looking at `accepted`."""

    action: str
    """accept, decline or cancel."""
    value: T | None = None
    """The answer in the type that was asked for; None unless it was accepted."""
    content: Mapping[str, Any] | None = None
    """The answer as it came over the wire."""

    def __repr__(self) -> str:
        return f"Elicited(action={self.action!r}, value={self.value!r})"

    @property
    def accepted(self) -> bool:
        return self.action == "accept"


class Asking:
    """The part of a context that asks.

    `key` names a question. Where questions travel in results (2026-07-28) it is what the client sees; without one a
    question is named by what it asks. Two questions that wait at the same time need different keys.
    """

    __slots__ = ("_call", "_session")

    def __init__(self, session: Session, call: Call) -> None:
        self._session = session
        self._call = call

    async def elicit(
        self,
        message: str,
        form: type[T] | Mapping[str, Any],
        *,
        key: str | None = None,
        timeout: float | None = None,
    ) -> Elicited[T]:
        """Ask the person to fill in a form.

        `form` is a dataclass, attrs class, TypedDict, Struct or pydantic model with flat fields, or a schema written by
        hand (then `value` is the plain object).

        Raises:
            CapabilityMissing: this client cannot ask the person, or its protocol version cannot ask for this.
        """
        from mcptrio._schema.elicit import form_schema, parse_form  # most servers ask nobody

        schema = dict(form) if isinstance(form, Mapping) else form_schema(form)

        def read(answer: Any) -> Elicited[T]:
            result = _read(answer, types.ElicitResult, "elicitation/create")
            if result.action != "accept":
                return Elicited(result.action)
            content = dict(result.content or {})
            if isinstance(form, Mapping):
                faults = checker(schema).faults(content, root="content")
                if faults:
                    text = "; ".join(faults)
                    raise RemoteProtocolError(f"the answer to elicitation/create does not fit the form: {text}")
                return Elicited(result.action, cast(T, content), content)
            try:
                value = parse_form(form, content)
            except ArgumentFaults as error:
                raise RemoteProtocolError(f"the answer to elicitation/create does not fit the form: {error}") from error
            return Elicited(result.action, cast(T, value), content)

        params = {"message": message, "requestedSchema": lower_form(self._call.start.era, schema)}
        return await self._ask("elicitation/create", params, read, key, timeout)

    async def elicit_url(
        self,
        message: str,
        url: str,
        *,
        elicitation_id: str | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> Elicited[None]:
        """Ask the person to visit a page; for secrets, payments and sign-ins that must not pass through the client.

        Raises:
            CapabilityMissing: this client cannot open pages, or its protocol version cannot ask for it.
        """
        era = self._call.start.era
        if not era.features.elicitation_url:
            raise CapabilityMissing(f"elicitation by URL does not exist at protocol version {era.date}")
        params = {"mode": "url", "message": message, "url": url}
        if not era.features.asks_in_results:
            params["elicitationId"] = elicitation_id or f"{self._session.id[:12]}-{self._call.start.call}"

        def read(answer: Any) -> Elicited[None]:
            return Elicited(_read(answer, types.ElicitResult, "elicitation/create").action)

        return await self._ask("elicitation/create", params, read, key, timeout)

    async def elicitation_complete(self, elicitation_id: str) -> None:
        """Tell the client that what happened at the page of an earlier `elicit_url` is done."""
        params = {"elicitationId": elicitation_id}
        await self._session.notify("notifications/elicitation/complete", params)

    async def sample(
        self,
        messages: MessageLike | Sequence[MessageLike],
        *,
        max_tokens: int = 1024,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        model_preferences: ModelPreferences | None = None,
        tools: Sequence[Tool] | None = None,
        tool_choice: ToolChoice | None = None,
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
        timeout: float | None = None,
    ) -> CreateMessageResult:
        """Ask the client's model.

        `messages` is a text or other content, which the person is taken to say, or a list of these, of `user(…)`,
        `assistant(…)` and `SamplingMessage(…)`, and of what an earlier `sample` returned.

        Raises:
            CapabilityMissing: this client lets nobody ask its model (or gives it no tools).
            McpError: the client refused; its code is -1 when the person said no.
        """
        from mcptrio.server.features.media import names_files, read_files  # most servers ask nobody
        from mcptrio.server.features.sampled import listed, to_messages

        era = self._call.start.era
        items = listed(messages)
        if names_files(items):
            items = await read_files(items)
        optional: dict[str, Any] = {
            "systemPrompt": system_prompt,
            "temperature": temperature,
            "stopSequences": None if stop_sequences is None else list(stop_sequences),
            "modelPreferences": None if model_preferences is None else unstructure(model_preferences),
            "tools": None if tools is None else [unstructure(tool) for tool in tools],
            "toolChoice": None if tool_choice is None else unstructure(tool_choice),
            "metadata": metadata,
        }
        if tools and not era.features.sampling_tools:
            raise CapabilityMissing(f"tools in sampling do not exist at protocol version {era.date}")
        params: dict[str, Any] = {"messages": to_messages(items, era), "maxTokens": max_tokens}
        params.update({name: value for name, value in optional.items() if value is not None})

        def read(answer: Any) -> CreateMessageResult:
            return _read(answer, types.CreateMessageResult, "sampling/createMessage")

        return await self._ask("sampling/createMessage", trim(era, "sampling", params), read, key, timeout)

    async def list_roots(self, *, key: str | None = None, timeout: float | None = None) -> tuple[Root, ...]:
        """Ask which directories and files the client lets the server work in.

        Raises:
            CapabilityMissing: this client has no roots.
        """

        def read(answer: Any) -> tuple[Root, ...]:
            return _read(answer, types.ListRootsResult, "roots/list").roots

        return await self._ask("roots/list", {}, read, key, timeout)

    async def _ask(
        self, method: str, params: dict[str, Any], read: Callable[[Any], T], key: str | None, timeout: float | None
    ) -> T:
        answer = await self._session.ask(method, params, call=self._call, timeout=timeout, key=key, check=read)
        return read(answer)

    async def once(self, key: str, fn: Callable[..., Any], *args: Any) -> Any:
        """Run `fn` and record its result under `key`: a second time in the same call it is returned, not done again.

        That holds when the call is replayed too (its answer reached another process). The record travels with the
        questions of the call, so it counts from the first question after it on; with a durable store it counts from the
        moment `once` returns, also across a crash. What is recorded is the JSON form of the result.
        """
        once = self._call.once_lock(key)
        async with once:  # a second task of the call that comes meanwhile gets the same result
            done = self._call.journal.done
            if key in done:
                return done[key]
            replayable = self._call.start.era.features.asks_in_results
            store = self._session.runtime.store if replayable and self._session.runtime.store.durable else None
            name = f"once {self._call.journal.chain} {key}"
            if store is not None and (kept := await store.sessions.get(name)) is not None:
                done[key] = msgspec.json.decode(kept)
                return done[key]
            result = fn(*args)
            result = await result if inspect.isawaitable(result) else result
            if replayable:
                try:
                    done[key] = dump(result)
                except (TypeError, ValueError) as error:
                    raise DeclarationError(
                        f"once({key!r}): the result has no JSON form, so it cannot be recorded: {error}"
                    ) from error
            else:
                done[key] = result
            if store is not None:
                store.sessions.put(name, msgspec.json.encode(done[key]))
                await store.flush()
            return result


def checker(schema: Mapping[str, Any]) -> Any:
    from mcptrio._schema.check import Checker  # jsonschema-rs is only needed for schemas written by hand

    return Checker(schema)


def _read(answer: Any, cls: type[T], method: str) -> T:
    try:
        return structure(answer, cls, at="result")
    except Exception as error:
        raise RemoteProtocolError(f"the client's answer to {method} cannot be read: {error}") from error


__all__ = ["Asking", "Elicited"]
