"""Multi round-trip requests: a stateless server asks in its result, and the client retries with the responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from attrs import field

from ._fields import frozen
from .base import JsonObject, Params, Record
from .elicitation import ElicitParams, ElicitResult
from .results import Result
from .roots import ListRootsParams, ListRootsResult
from .sampling import CreateMessageParams, CreateMessageResult


@frozen(kw_only=True)
class InputRequest(Record):
    """One request inside an `InputRequiredResult`; the params of an unknown method stay plain JSON."""

    method: str
    params: CreateMessageParams | ElicitParams | Params | JsonObject | None = None


InputRequests: TypeAlias = Mapping[str, InputRequest]
InputResponses: TypeAlias = Mapping[str, JsonObject]
INPUT_PARAMS_BY_METHOD: Final[Mapping[str, type[Any]]] = {
    "sampling/createMessage": CreateMessageParams,
    "elicitation/create": ElicitParams,
    "roots/list": ListRootsParams,
}
INPUT_RESULT_BY_METHOD: Final[Mapping[str, type[Any]]] = {
    "sampling/createMessage": CreateMessageResult,
    "elicitation/create": ElicitResult,
    "roots/list": ListRootsResult,
}


@frozen(kw_only=True)
class InputRequiredResult(Result):
    """The requests that the client must answer before it retries with the responses and this state."""

    result_type: Literal["input_required"] = field(default="input_required", init=False, repr=False)
    input_requests: Mapping[str, InputRequest] | None = None
    request_state: str | None = None
