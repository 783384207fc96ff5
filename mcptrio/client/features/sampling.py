"""The server asks the host's model: the callback's answer in the form that the protocol has for it."""

from __future__ import annotations

from typing import Any, TypeAlias

from mcptrio.errors import LocalProtocolError
from mcptrio.types import CreateMessageResult, TextContent

SampleAnswer: TypeAlias = CreateMessageResult | str
"""What a sample callback returns: a result, or what the model said."""


def to_result(answer: Any) -> CreateMessageResult:
    """The result for what the callback returned."""
    if isinstance(answer, CreateMessageResult):
        return answer
    if isinstance(answer, str):
        content = TextContent(text=answer)
        return CreateMessageResult(role="assistant", content=(content,), model="unknown", stop_reason="endTurn")
    raise LocalProtocolError(f"a sample callback cannot answer with {type(answer).__name__}")
