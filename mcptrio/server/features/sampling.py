"""Messages for a model: convert the arguments of `sample` to the content types of a revision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mcptrio import types
from mcptrio._peer.era import Era
from mcptrio._wire.objects.converter import StructureError, structure, unstructure
from mcptrio.errors import CapabilityMissing

if TYPE_CHECKING:
    from mcptrio.types import SamplingMessage

_OF_TOOLS: Final = ("tool_use", "tool_result")
_WANTED: Final = (
    "pass texts, content, user(…) and assistant(…), SamplingMessage(…), or what an earlier sample() returned"
)


def listed(messages: Any) -> list[Any]:
    """Return one message or several as a list."""
    several = isinstance(messages, Sequence) and not isinstance(messages, str | bytes)
    return list(messages) if several else [messages]


def to_messages(items: Sequence[Any], era: Era) -> list[dict[str, Any]]:
    """Convert messages to the form of this date. A message of several blocks is split where a message has only one.

    Raises:
        TypeError: an item is not a message.
        CapabilityMissing: this date does not support such content.
    """
    wire: list[dict[str, Any]] = []
    for item in items:
        message = _message(item)
        blocks = [unstructure(block) for block in message.content]
        for block in blocks:
            _check(block["type"], era)
        if era.features.sampling_tools:
            wire.append(unstructure(message))
        else:
            wire += [{"role": message.role, "content": block} for block in blocks]
    return wire


def _check(kind: str, era: Era) -> None:
    if kind in _OF_TOOLS:
        if not era.features.sampling_tools:
            raise CapabilityMissing(f"tools in sampling do not exist at protocol version {era.date}")
    elif kind not in ("text", "image", "audio"):
        raise TypeError(f"sample(): a model cannot be sent content of type {kind!r}; send its text, or an image")
    elif kind not in era.content:
        raise CapabilityMissing(f"{kind} content does not exist at protocol version {era.date}")


def _message(item: Any) -> SamplingMessage:
    match item:
        case types.SamplingMessage():
            return item
        case types.Message(role=role, content=content) | types.PromptMessage(role=role, content=content):
            return types.SamplingMessage(role=role, content=_content(content))
        case types.CreateMessageResult(role=role, content=content):
            return types.SamplingMessage(role=role, content=content)
        case Mapping():
            try:
                return structure(item, types.SamplingMessage, at="message")
            except StructureError as error:
                raise TypeError(f"sample(): {error}; {_WANTED}") from None
    return types.SamplingMessage(role="user", content=_content(item))


def _content(value: Any) -> Any:
    if isinstance(value, str | types.Image | types.Audio):
        return types.to_content(value)
    if isinstance(value, types.Record) and isinstance(getattr(value, "type", None), str):
        return value
    raise TypeError(f"sample(): {type(value).__name__} is not a message; {_WANTED}")
