"""Elicitation: convert the answer of the host's callback to a protocol result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from mcptrio._schema.elicit import fill_defaults
from mcptrio.client.features.peer_schema import compile_schema
from mcptrio.errors import INVALID_PARAMS, DeclarationError, LocalProtocolError, MCPError
from mcptrio.types import ElicitParams, ElicitResult

ElicitAnswer: TypeAlias = ElicitResult | Mapping[str, Any] | str | None
"""The return value of an elicit callback: a result; the content of an accepted form; `"accept"`, `"decline"` or
`"cancel"`; None for `"decline"`."""


async def to_result(params: ElicitParams, answer: Any) -> ElicitResult:
    """Convert the callback's return value to a result. Missing fields get the defaults of the form.

    Raises:
        MCPError: the server's form cannot be read.
        LocalProtocolError: the answer does not fit the form, or has an unsupported type.
    """
    if answer is None:
        return ElicitResult(action="decline")
    if isinstance(answer, str):
        if answer not in ("accept", "decline", "cancel"):
            raise LocalProtocolError(f"an elicit callback answers accept, decline or cancel, not {answer!r:.80}")
        answer = ElicitResult(action=answer)  # type: ignore[arg-type]  # checked in the line before
    elif isinstance(answer, Mapping):
        answer = ElicitResult(action="accept", content=answer)
    elif not isinstance(answer, ElicitResult):
        raise LocalProtocolError(f"an elicit callback cannot answer with {type(answer).__name__}")
    if answer.action != "accept" or params.mode == "url" or params.requested_schema is None:
        return ElicitResult(action=answer.action)
    content = fill_defaults(params.requested_schema, answer.content or {})
    await _check(params.requested_schema, content)
    return ElicitResult(action="accept", content=content)


async def _check(schema: Mapping[str, Any], content: dict[str, Any]) -> None:
    try:
        checker = await compile_schema(schema)
    except DeclarationError as error:
        raise MCPError(INVALID_PARAMS, f"the requested schema cannot be used: {error}") from error
    if faults := checker.faults(content, root="content"):
        raise LocalProtocolError("the answer does not fit the form: " + "; ".join(faults))
