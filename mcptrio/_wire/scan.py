"""Checks that the JSON decoder does not make: nesting depth, number of nodes, duplicate keys.

An ordinary message costs a few counts and one re-encoding, all of them loops in C. The text itself, without its
strings, is scanned only if a count cannot rule out an error.

* Depth and nodes: the brackets and commas of the whole text, including those inside strings, are upper bounds.
* Duplicate keys: a decoder keeps the last one, so its result, encoded again, has fewer colons than the text. In a text
  of megabytes, encoding costs more than counting the keys and the colons of the result.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

import msgspec

from mcptrio._settings import check_fields
from mcptrio.errors import INVALID_REQUEST, PARSE_ERROR, RemoteProtocolError

_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


class JsonLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one received JSON text.

    A node is a container or a comma: 1 + commas + containers, so that every value counts once and an empty container
    twice.
    """

    max_depth: int = 64
    """Maximum nesting of arrays and objects; a deeper text is rejected as invalid JSON. Raise it for tools that take
    deep trees."""
    max_nodes: int = 100_000
    """Maximum number of values in one message; more are refused with 413. The time for decoding grows with it: raise it
    only for tools that take large tables."""
    max_batch: int = 100
    """Messages in one batch (2025-03-26); a longer one is refused. Raise it for clients that send more at once."""

    def __post_init__(self) -> None:
        check_fields(self, positive=("max_depth", "max_nodes"), not_negative=("max_batch",), finite=("max_depth",))


def check_limits(data: bytes | bytearray, limits: JsonLimits) -> None:
    """Refuse a text that is too deep or too expensive, before it is decoded.

    Raises:
        RemoteProtocolError: nested too deeply (a parse error), or more nodes than allowed (HTTP 413).
    """
    for _ in check_in_parts(data, limits):
        pass


def check_in_parts(data: bytes | bytearray, limits: JsonLimits) -> Generator[None, None, None]:
    """Check a text as `check_limits` does; it yields between parts that take milliseconds in a large text."""
    openers = data.count(b"[") + data.count(b"{")
    if openers <= limits.max_depth and (len(data) < limits.max_nodes or openers + data.count(b",") < limits.max_nodes):
        return
    yield from _check_exactly(data, limits)


def has_duplicate_keys(data: bytes | bytearray, encoded: bytes) -> bool:
    """Return whether any object in `data` has a key twice; `encoded` is `data` after decoding and encoding."""
    if encoded == data:
        return False
    # A colon written as an escape would stand in the encoded text only, and could hide a missing one.
    if b"\\" in data and b"\\u003" in data:
        return structure(data).count(b":") != structure(encoded).count(b":")
    return data.count(b":") != encoded.count(b":")


def lost_keys(data: bytes | bytearray, tree: Any) -> Generator[None, None, bool]:
    """Return whether any object in `data` has a key twice; `tree` is `data` after decoding.

    It yields between parts that take milliseconds in a text of megabytes.
    """
    kept, level = 0, [tree]
    while level:
        below: list[Any] = []
        for node in level:
            if type(node) is dict:
                kept += len(node) + sum([key.count(":") for key in node])
                below += node.values()
            elif type(node) is list:
                below += node
            elif type(node) is str:
                kept += node.count(":")
        level = below
    escaped = 0
    yield
    if b"\\u003" in data:
        yield
        text = data.replace(b"\\\\", b"")
        yield
        escaped = text.count(b"\\u003a")
        yield
        escaped += text.count(b"\\u003A")
        yield
    # Each key has a colon in the text, and every other colon is in a string, as such or escaped.
    return data.count(b":") + escaped != kept


def structure(data: bytes | bytearray) -> bytes:
    """Return the text without its strings; what follows an unterminated quote is left out."""
    return b"".join(_without_escapes(data).split(b'"')[::2])


def _without_escapes(data: bytes | bytearray) -> bytes | bytearray:
    """Return the text without escaped quotes, so that every quote begins or ends a string."""
    if b"\\" not in data:
        return data
    # A run of backslashes starts unescaped, so pairs may be removed from the left; what is left escapes a quote or not.
    return data.replace(b"\\\\", b"").replace(b'\\"', b"")


def _check_exactly(data: bytes | bytearray, limits: JsonLimits) -> Generator[None, None, None]:
    # Each value has at most two strings, itself and its key: with more quotes, refuse without splitting the text.
    data = _without_escapes(data)
    if data.count(b'"') > 4 * limits.max_nodes:
        raise _too_many_nodes(limits)
    yield
    pieces = data.split(b'"')[::2]
    yield
    outside = b"".join(pieces)
    del pieces
    brackets = outside.translate(_SQUARE, _NO_BRACKETS)
    too_deep = b"[" * (limits.max_depth + 1)
    if len(brackets) > 2 * limits.max_nodes:  # over the limit in any case: report the depth or the nodes
        raise _too_deep(limits) if too_deep in brackets else _too_many_nodes(limits)
    # Removing the innermost pairs lowers the height by one. Unbalanced brackets never become empty.
    remaining = brackets
    for _ in range(limits.max_depth):
        if not remaining or too_deep in remaining:
            break
        remaining = remaining.replace(b"[]", b"")
    if remaining:
        raise _too_deep(limits)
    if 1 + outside.count(b",") + brackets.count(b"[") > limits.max_nodes:
        raise _too_many_nodes(limits)


def _too_deep(limits: JsonLimits) -> RemoteProtocolError:
    text = f"Not JSON, or nested deeper than {limits.max_depth} levels"
    return RemoteProtocolError(text, code=PARSE_ERROR, limit="json_depth")


def _too_many_nodes(limits: JsonLimits) -> RemoteProtocolError:
    text = f"The message has more than {limits.max_nodes} JSON values"
    return RemoteProtocolError(text, code=INVALID_REQUEST, http_status=413, limit="json_nodes")
