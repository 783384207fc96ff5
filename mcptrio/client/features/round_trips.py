"""Requests that take several rounds: the server answers with input requests, and the client repeats the request.

2026-07-28 basic/patterns/mrtr. To drive the rounds by hand, pass `max_rounds=0`, catch `InputRequired`, and repeat the
request with `answers` and `state`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from mcptrio._eras.stateless import MAY_ASK
from mcptrio._wire.objects.converter import StructureError, structure
from mcptrio.client.callbacks import HostCallbacks
from mcptrio.errors import MCPTrioError, RemoteProtocolError
from mcptrio.types import InputRequest, InputRequiredResult

COMPLETE: Final = "complete"
INPUT_REQUIRED: Final = "input_required"
_MAX_QUESTIONS: Final = 100


class InputRequired(MCPTrioError):
    """The server requires input before it continues, and no automatic round is left.

    `questions` holds its input requests by key; `state` has to be returned unchanged.
    """

    def __init__(self, method: str, result: InputRequiredResult) -> None:
        questions = result.input_requests or {}
        super().__init__(f"{method} needs more input: {', '.join(questions) or 'another try'}")
        self.method = method
        self.questions: Mapping[str, InputRequest] = questions
        self.state: str | None = result.request_state


Ask = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
OtherResult = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


async def complete(
    method: str,
    params: dict[str, Any],
    result: dict[str, Any],
    ask: Ask,
    callbacks: HostCallbacks,
    *,
    max_rounds: int,
    others: Mapping[str, OtherResult],
) -> dict[str, Any]:
    """Repeat a request until its result is complete, answering the input requests with the host's callbacks.

    `others` handles results of extensions, by their type.

    Raises:
        InputRequired: the server requires more rounds than `max_rounds`.
        RemoteProtocolError: the type of the result is unknown.
    """
    rounds = 0
    while True:
        kind = result.get("resultType", COMPLETE)
        if kind == COMPLETE:
            return result
        if isinstance(kind, str) and kind in others:
            return await others[kind](method, result)
        if kind != INPUT_REQUIRED or method not in MAY_ASK:
            raise RemoteProtocolError(f"the result of {method} is of the type {kind!r:.80}, which cannot be used")
        wanted = _read(method, result)
        if rounds >= max_rounds:
            raise InputRequired(method, wanted)
        rounds += 1
        asked = {key: value for key, value in params.items() if key not in ("inputResponses", "requestState")}
        questions = result.get("inputRequests")
        if questions:
            asked["inputResponses"] = await callbacks.answer_all(questions)
        if wanted.request_state is not None:
            asked["requestState"] = wanted.request_state
        result = await ask(asked)


def _read(method: str, result: dict[str, Any]) -> InputRequiredResult:
    try:
        wanted = structure(result, InputRequiredResult, at="result")
    except StructureError as error:
        raise RemoteProtocolError(f"the questions of {method} cannot be read: {error}") from error
    if wanted.input_requests is None and wanted.request_state is None:
        raise RemoteProtocolError(f"{method} requires input, but has neither inputRequests nor requestState")
    if len(wanted.input_requests or ()) > _MAX_QUESTIONS:
        raise RemoteProtocolError(f"{method} asks more than {_MAX_QUESTIONS} questions at once")
    return wanted
