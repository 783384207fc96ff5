"""The hooks with which JSON values are read: strict, and with every fault named.

cattrs by itself turns `"5"` into 5 and a string into a list of its characters, so each kind of value has a hook here.
None of them knows a name of the wire but the tags of unions; `converter` puts them together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

from cattrs import BaseConverter, ClassValidationError, IterableValidationError, IterableValidationNote

from mcptrio import types

Structure = Callable[[Any, Any], Any]

MAX_FAULTS: Final = 32  # of one value; a long list of rubbish must not make a longer answer
_SHOWN: Final = 60  # characters of a wrong value that are repeated to the peer


class Mismatch(ValueError):
    """One fault; `where` is the rest of its path when it lies inside the value that was looked at."""

    def __init__(self, text: str, where: str = "") -> None:
        super().__init__(text)
        self.where = where


def wrong(expected: str, value: Any, where: str = "") -> Mismatch:
    return Mismatch(f"expected {expected}, got {_show(value)}", where)


def shortened(text: str) -> str:
    """The beginning of what a peer wrote, enough to recognise it."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _show(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{shortened(value)}"'
        case int() if value.bit_length() > 4 * _SHOWN:
            return "a very large integer"  # and turning it into digits would cost as much as it likes
        case int() | float():
            return repr(value)
        case Mapping():
            return "object"
        case list() | tuple():
            return "array"
    return type(value).__name__


# -- scalars and objects


def read_str(value: Any, _: Any) -> str:
    if isinstance(value, str):
        return value
    raise wrong("string", value)


def read_int(value: Any, _: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)  # JSON has one kind of number: 2.0 is an integer
    raise wrong("integer", value)


def read_float(value: Any, _: Any) -> float:
    if type(value) is float or type(value) is int:
        return value  # an int stays one: it is exact, and goes back as it came
    raise wrong("number", value)


def read_bool(value: Any, _: Any) -> bool:
    if value is True or value is False:
        return value
    raise wrong("boolean", value)


def _read_int_or_str(value: Any, cls: Any) -> int | str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and value is not True and value is not False:
        return read_int(value, cls)
    raise wrong("string or integer", value)


def _read_object(value: Any, _: Any) -> Mapping[str, Any]:
    if type(value) is dict or isinstance(value, Mapping):  # the second question alone is ten times slower
        return value
    raise wrong("object", value)


def read_nullable(value: Any, _: Any) -> Any:
    return types.NULL if value is None else value


def literal_reader(cls: Any) -> Structure:
    allowed = get_args(cls)
    expected = " or ".join(f'"{word}"' for word in allowed)

    def read_literal(value: Any, _: Any) -> Any:
        if isinstance(value, str) and value in allowed:
            return value
        raise wrong(expected, value)

    return read_literal


# -- arrays and maps


def tuple_reader(cls: Any, converter: BaseConverter) -> Structure:
    item = get_args(cls)[0]
    read = converter.get_structure_hook(item)

    def read_tuple(value: Any, _: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise wrong("array", value)
        return tuple([read(v, item) for v in value])

    def explain_tuple(value: Any, _: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise wrong("array", value)
        return tuple(_explain_items(enumerate(value), read, item).values())

    return explain_tuple if converter.detailed_validation else read_tuple


def mapping_reader(cls: Any, converter: BaseConverter) -> Structure:
    item = get_args(cls)[1]
    if item is Any:
        return _read_object
    read = converter.get_structure_hook(item)

    def read_mapping(value: Any, _: Any) -> dict[str, Any]:
        return {k: read(v, item) for k, v in _read_object(value, cls).items()}

    def explain_mapping(value: Any, _: Any) -> dict[str, Any]:
        return _explain_items(_read_object(value, cls).items(), read, item)

    return explain_mapping if converter.detailed_validation else read_mapping


def _explain_items(items: Any, read: Structure, item: Any) -> dict[Any, Any]:
    done: dict[Any, Any] = {}
    errors: list[Exception] = []
    for key, value in items:
        try:
            done[key] = read(value, item)
        except (KeyError, TypeError, ValueError, ClassValidationError, IterableValidationError) as exc:
            exc.add_note(IterableValidationNote("", key, item))
            errors.append(exc)
            if len(errors) > MAX_FAULTS:
                break
    if errors:
        raise IterableValidationError("", errors, item)
    return done


# -- unions, each by its tag; nothing is found out by trying

_TAG_TABLES: Final[Mapping[frozenset[Any], Mapping[str, type]]] = {
    frozenset(get_args(types.ContentBlock)): types.CONTENT_BY_TYPE,
    frozenset(get_args(types.SamplingContent)): types.SAMPLING_CONTENT_BY_TYPE,
    frozenset(get_args(types.CompletionReference)): types.REFERENCE_BY_TYPE,
}


def union_reader(cls: Any, converter: BaseConverter) -> Structure:
    members = frozenset(get_args(cls)) - {type(None)}
    if len(members) == 1:
        (inner,) = members
        read = converter.get_structure_hook(inner)
    else:
        inner = cls
        read = _plain_union_reader(members, converter)
    if type(None) not in get_args(cls):
        return read

    def read_optional(value: Any, _: Any) -> Any:
        return None if value is None else read(value, inner)

    return read_optional


def _plain_union_reader(members: frozenset[Any], converter: BaseConverter) -> Structure:
    if members == {int, str}:
        return _read_int_or_str
    if members == frozenset(get_args(types.ResourceContents)):
        return _contents_reader(converter)
    return _tagged_reader(_TAG_TABLES[members], converter, unknown_allowed=types.UnknownContent in members)


def _tagged_reader(table: Mapping[str, type], converter: BaseConverter, *, unknown_allowed: bool) -> Structure:
    expected = " or ".join(f'"{tag}"' for tag in table)
    hooks = {tag: (converter.get_structure_hook(cls), cls) for tag, cls in table.items()}

    def read_tagged(value: Any, _: Any) -> Any:
        tag = _read_object(value, None).get("type")
        if isinstance(tag, str):
            if tag in hooks:
                read, cls = hooks[tag]
                return read(value, cls)
            if unknown_allowed:  # a newer peer: what it sent is kept, and goes back as it came
                return types.UnknownContent(type=tag, data={k: v for k, v in value.items() if k != "type"})
        elif tag is None:
            raise Mismatch("required, but missing", ".type")
        raise wrong("string" if unknown_allowed else expected, tag, ".type")

    return read_tagged


def _contents_reader(converter: BaseConverter) -> Structure:
    """Resource contents have no tag; which of two required fields is there tells them apart."""

    def read_contents(value: Any, _: Any) -> Any:
        cls: type
        if "text" in _read_object(value, None):
            cls = types.TextResourceContents
        elif "blob" in value:
            cls = types.BlobResourceContents
        else:
            raise Mismatch("expected text or blob, got neither")
        return converter.get_structure_hook(cls)(value, cls)

    return read_contents


def read_unknown_content(value: Any, _: Any) -> types.UnknownContent:
    data = dict(_read_object(value, None))
    return types.UnknownContent(type=read_str(data.pop("type", None), str), data=data)


def input_request_reader(converter: BaseConverter) -> Structure:
    """The params of a question have the shape that its method says."""

    def read_params(value: Any, cls: Any) -> Any:
        return _read_object(value, None) if cls is None else converter.get_structure_hook(cls)(value, cls)

    def read_input_request(value: Any, _: Any) -> types.InputRequest:
        method = _read_object(value, None).get("method")
        if not isinstance(method, str):
            raise wrong("string", method, ".method")
        params = value.get("params")
        cls = types.INPUT_PARAMS_BY_METHOD.get(method)
        if params is not None and converter.detailed_validation:
            params = _explain_items([("params", params)], read_params, cls)["params"]
        elif params is not None:
            params = read_params(params, cls)
        return types.InputRequest(method=method, params=params)

    return read_input_request


def one_or_many_reader(cls: Any, converter: BaseConverter) -> Structure:
    read_many = converter.get_structure_hook(cls)

    def read_one_or_many(value: Any, _: Any) -> Any:
        return read_many(value if isinstance(value, list | tuple) else [value], cls)

    return read_one_or_many
