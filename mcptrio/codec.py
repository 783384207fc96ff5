"""Conversion between the classes of `mcptrio.types` and JSON values.

A JSON value is what `json.loads` returns: dicts, lists, strings, numbers, booleans and `None`. Field names are
camelCase on the wire and snake_case in Python; a field that is `None` is left out.
"""

from typing import Any, TypeVar, overload

from mcptrio._wire.objects.converter import StructureError, structure, unstructure
from mcptrio.types import Audio, Image, Message

__all__ = ["StructureError", "from_json", "to_json"]

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """Convert a value of `mcptrio.types` to a JSON value.

    Lists and tuples of such values become lists; a value that is JSON already is returned unchanged. The helpers
    `Image`, `Audio` and `Message` become the content block or the prompt message that they stand for.
    """
    match value:
        case Image() | Audio():
            return unstructure(value.to_content())
        case Message():
            return unstructure(value.to_prompt_message())
        case list() | tuple():
            return [to_json(item) for item in value]
    return unstructure(value)


@overload
def from_json(value: Any, cls: type[T]) -> T: ...
@overload
def from_json(value: Any, cls: Any) -> Any: ...


def from_json(value: Any, cls: Any) -> Any:
    """Convert a JSON value to a class of `mcptrio.types`, or to a union of them such as `types.ContentBlock`.

    Unknown fields are ignored, because later protocol revisions may add some. `null` in an optional field means absent.

    Raises:
        StructureError: the value does not fit; `faults` lists every error with its path.
    """
    return structure(value, cls, at="$")
