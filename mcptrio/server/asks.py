"""Requests from a handler to the client: elicitation, sampling and roots, with one API for every revision."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

from msgspec import Struct

from mcptrio import types
from mcptrio._actors.call import Call
from mcptrio._actors.service import Actor
from mcptrio._eras.shape import lower_form, trim
from mcptrio._schema.faults import ArgumentFaults
from mcptrio._struct import Entity
from mcptrio._wire.objects.converter import structure, unstructure
from mcptrio.errors import CapabilityMissing, DeclarationError, RemoteProtocolError
from mcptrio.server.once import Once, recordable_name

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

logger = logging.getLogger("mcptrio.asks")


class Elicited(Struct, Generic[T], frozen=True):
    """The reply of the user to an elicitation. Check `accepted` before using `value`."""

    action: str
    """accept, decline or cancel."""
    value: T | None = None
    """The answer in the requested type; None unless it was accepted."""
    content: Mapping[str, Any] | None = None
    """The answer in its wire form."""

    def __repr__(self) -> str:
        return f"Elicited(action={self.action!r}, value={self.value!r})"

    @property
    def accepted(self) -> bool:
        return self.action == "accept"


class ContextAsks(Entity):
    """The part of a context that sends requests to the client.

    `key` names a request. Where requests travel in results (2026-07-28) the client sees it; by default it is derived
    from the method and the parameters. Two requests that wait at the same time need different keys.
    """

    _session: Actor
    _call: Call

    @overload
    async def elicit(
        self, message: str, form: type[T], *, key: str | None = None, timeout: float | None = None
    ) -> Elicited[T]: ...
    @overload
    async def elicit(
        self, message: str, form: Mapping[str, Any], *, key: str | None = None, timeout: float | None = None
    ) -> Elicited[dict[str, Any]]: ...

    async def elicit(
        self,
        message: str,
        form: type[Any] | Mapping[str, Any],
        *,
        key: str | None = None,
        timeout: float | None = None,
    ) -> Elicited[Any]:
        """Ask the user to fill in a form.

        `form` is a dataclass, attrs class, TypedDict, Struct or pydantic model with flat fields, or a JSON Schema of
        such an object (then `value` is the plain object).

        Raises:
            CapabilityMissing: the client or the protocol version does not support elicitation.
            DeclarationError: the form has other than flat fields, or is not a valid JSON Schema of an object.
        """
        if isinstance(form, Mapping):
            schema = dict(form)
            read_content = _by_schema(schema)
        else:
            from mcptrio._schema.elicit import form_of  # on first use: most servers never ask

            schema = form_of(form).schema
            read_content = partial(_by_type, form)

        def read(answer: Any) -> Elicited[Any]:
            result = _read(answer, types.ElicitResult, "elicitation/create")
            if result.action != "accept":
                return Elicited(result.action)
            content = dict(result.content or {})
            return Elicited(result.action, read_content(content), content)

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
        """Ask the user to visit a page, for secrets, payments and sign-ins that must not pass through the client.

        Raises:
            CapabilityMissing: the client or the protocol version does not support URL elicitation.
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
        """Notify the client that the interaction at the page of an earlier `elicit_url` is complete."""
        params = {"elicitationId": elicitation_id}
        await self._session.asks.notify("notifications/elicitation/complete", params)

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
        """Request a completion from the client's model.

        `messages` is a text or other content, which counts as said by the user, or a list of these, of `user(…)`,
        `assistant(…)` and `SamplingMessage(…)`, and of results of an earlier `sample`.

        Raises:
            CapabilityMissing: this client has no sampling, or no tools in sampling.
            MCPError: the client refused; its code is -1 if the user declined.
        """
        from mcptrio.server.features.media_files import names_files, read_files  # on first use: most servers never ask
        from mcptrio.server.features.sampling import listed, to_messages

        era = self._call.start.era
        items = listed(messages)
        if names_files(items):
            items = await read_files(items, self)
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
        """Request the directories and files that the client lets the server work in.

        Raises:
            CapabilityMissing: the client does not support roots.
        """

        def read(answer: Any) -> tuple[Root, ...]:
            return _read(answer, types.ListRootsResult, "roots/list").roots

        return await self._ask("roots/list", {}, read, key, timeout)

    async def _ask(
        self, method: str, params: dict[str, Any], read: Callable[[Any], T], key: str | None, timeout: float | None
    ) -> T:
        value: T = await self._session.asks.ask(method, params, call=self._call, timeout=timeout, key=key, read=read)
        return value

    async def once(self, key: str, fn: Callable[..., Any], *args: Any) -> Any:
        """Run `fn(*args)`, record its result under `key`, and return it; later in the same call only return it.

        This also holds when the call is replayed, because an answer reached another process. The record travels with
        the questions of the call, so it holds from the next question on; with a durable store it holds as soon as
        `once` returns, also after a crash. The result is recorded as JSON, and that form is returned from the first
        time on: a tuple becomes a list, an object a dictionary.

        The key is claimed before `fn` runs. If `fn` raises an exception, the claim is released and the next `once` runs
        it again. If it is cancelled, or the process dies, its end is unknown and it is not run again.

        Raises:
            OnceInterrupted: an earlier run of `fn` did not finish, so it may have taken effect.
            DeclarationError: the result has no JSON form. If the return annotation of `fn` has none, `fn` is not run.
            LocalProtocolError: the key was used for another function (one with another `__qualname__`).
        """
        return await Once(self._call, key, recordable_name(key, fn)).run(fn, args)


def _by_schema(schema: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Any]:
    """Return the function that checks the content of an answer against a hand-written form.

    Raises:
        DeclarationError: the form is not valid.
    """
    from mcptrio._schema.check import Checker  # jsonschema-rs is only needed for hand-written schemas

    if schema.get("type") != "object" or not isinstance(schema.get("properties"), Mapping):
        raise DeclarationError('a form is a JSON Schema with "type": "object" and "properties"')
    checker = Checker(schema)

    def read(content: Mapping[str, Any]) -> Any:
        if faults := checker.faults(content, root="content"):
            raise _unfit("; ".join(faults))
        return content

    return read


def _by_type(form: Any, content: Mapping[str, Any]) -> Any:
    from mcptrio._schema.elicit import form_of

    try:
        return form_of(form).parse(content)
    except ArgumentFaults as error:
        raise _unfit(str(error)) from error
    except Exception as error:  # a validator or `__post_init__`: its text is not for the client
        logger.exception("the form %r failed to read an answer", form)
        raise _unfit(f"the form raised {type(error).__name__}") from error


def _unfit(text: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"the answer to elicitation/create does not match the form: {text}")


def _read(answer: Any, cls: type[T], method: str) -> T:
    try:
        return structure(answer, cls, at="result")
    except Exception as error:
        raise RemoteProtocolError(f"the client's answer to {method} cannot be read: {error}") from error
