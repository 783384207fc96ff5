"""Requests that take several rounds: the server answers with questions, and the request is repeated with the answers.

2026-07-28 basic/patterns/mrtr. Whoever wants to drive the rounds by hand asks with `max_rounds=0`, catches
`InputRequired`, and asks again with `answers` and `state`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from mcptrio._eras.stateless import MAY_ASK
from mcptrio._wire.converter import StructureError, structure
from mcptrio.client.host import Host
from mcptrio.errors import MCPTrioException, RemoteProtocolError
from mcptrio.types import InputRequest, InputRequiredResult

COMPLETE: Final = "complete"
INPUT_REQUIRED: Final = "input_required"
_MAX_QUESTIONS: Final = 100


class InputRequired(MCPTrioException):
    """The server wants answers before it goes on, and no further round is made by itself.

    `questions` holds what it asks, by key; `state` is to be given back as it is.
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
    host: Host,
    *,
    max_rounds: int,
    others: Mapping[str, OtherResult],
) -> dict[str, Any]:
    """Ask again until the result is complete, answering the server's questions with the host's callbacks.

    `others` knows what to do with results of extensions, by their type.

    Raises:
        InputRequired: the server asks once more than `max_rounds` allows.
        RemoteProtocolError: the result is of no known type.
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
            asked["inputResponses"] = await host.answer_all(questions)
        if wanted.request_state is not None:
            asked["requestState"] = wanted.request_state
        result = await ask(asked)


def _read(method: str, result: dict[str, Any]) -> InputRequiredResult:
    try:
        wanted = structure(result, InputRequiredResult, at="result")
    except StructureError as error:
        raise RemoteProtocolError(f"the questions of {method} cannot be read: {error}") from error
    if wanted.input_requests is None and wanted.request_state is None:
        raise RemoteProtocolError(f"{method} needs input but says neither which nor what to give back")
    if len(wanted.input_requests or ()) > _MAX_QUESTIONS:
        raise RemoteProtocolError(f"{method} asks more than {_MAX_QUESTIONS} questions at once")
    return wanted
