"""Sampling: convert the answer of the host's callback to a protocol result."""

from __future__ import annotations

from typing import Any, TypeAlias

from mcptrio.errors import LocalProtocolError
from mcptrio.types import CreateMessageResult, TextContent

SampleAnswer: TypeAlias = CreateMessageResult | str
"""The return value of a sample callback: a result, or the text of the model."""


def to_result(answer: Any) -> CreateMessageResult:
    """Convert the callback's return value to a result."""
    if isinstance(answer, CreateMessageResult):
        return answer
    if isinstance(answer, str):
        content = TextContent(text=answer)
        return CreateMessageResult(role="assistant", content=(content,), model="unknown", stop_reason="endTurn")
    raise LocalProtocolError(f"a sample callback cannot answer with {type(answer).__name__}")
