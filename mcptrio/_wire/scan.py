"""What the JSON decoder does not check: nesting, number of nodes, duplicate keys.

The usual message pays for a few counts and one re-encoding, all of them loops in C. Only where a count cannot rule a
fault out is the text itself looked at, without its strings.

* Depth and nodes: the brackets and commas of the whole text, those inside strings included, are upper bounds.
* Duplicate keys: a decoder keeps the last of them, so what it returns, encoded again, has fewer colons than the text.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from mcptrio.errors import INVALID_REQUEST, PARSE_ERROR, RemoteProtocolError

_encode: Final = msgspec.json.Encoder().encode
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


class JsonLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one received JSON text.

    A node is a container or a comma: 1 + commas + containers, so that every value counts once and an empty container
    twice.
    """

    max_depth: int = 64
    """Levels of arrays and objects inside each other; a deeper text is refused as no JSON. Raise it for tools that
    take deep trees."""
    max_nodes: int = 100_000
    """Values in one message; more are refused with 413. Decoding costs time by this number, so raise it only for
    tools that take large tables."""
    max_batch: int = 100
    """Messages in one batch (2025-03-26); a longer one is refused. Raise it for clients that send more at once."""


def check_limits(data: bytes | bytearray, limits: JsonLimits) -> None:
    """Refuse a text that would be deep or expensive, before it is decoded.

    Raises:
        RemoteProtocolError: nested too deeply (a parse error), or more nodes than allowed (HTTP 413).
    """
    openers = data.count(b"[") + data.count(b"{")
    if openers <= limits.max_depth and (len(data) < limits.max_nodes or openers + data.count(b",") < limits.max_nodes):
        return
    _check_exactly(data, limits)


def has_duplicate_keys(data: bytes | bytearray, tree: Any) -> bool:
    """Whether any object in `data`, at any level, has a key twice; `tree` is what `data` was decoded to."""
    encoded = _encode(tree)
    if encoded == data:  # compact already, as most programs write it
        return False
    # A colon written as an escape would stand in the encoded text only, and could hide a missing one.
    if b"\\" in data and b"\\u003" in data:
        return structure(data).count(b":") != structure(encoded).count(b":")
    return data.count(b":") != encoded.count(b":")


def structure(data: bytes | bytearray) -> bytes:
    """The text without its strings; what follows an unterminated quote is left out."""
    return b"".join(_without_escapes(data).split(b'"')[::2])


def _without_escapes(data: bytes | bytearray) -> bytes | bytearray:
    """The text without escaped quotes, so that every quote begins or ends a string."""
    if b"\\" not in data:
        return data
    # A run of backslashes starts unescaped, so pairs may be removed from the left; what is left escapes a quote or not.
    return data.replace(b"\\\\", b"").replace(b'\\"', b"")


def _check_exactly(data: bytes | bytearray, limits: JsonLimits) -> None:
    # Each value brings at most two strings, itself and its key: more quotes need no look, nor the memory to split them.
    if len(data) > 4 * limits.max_nodes and _without_escapes(data).count(b'"') > 4 * limits.max_nodes:
        raise _too_many_nodes(limits)
    outside = structure(data)
    brackets = outside.translate(_SQUARE, _NO_BRACKETS)
    too_deep = b"[" * (limits.max_depth + 1)
    if len(brackets) > 2 * limits.max_nodes:  # too many in any case: which of the two is all there is to say
        raise _too_deep(limits) if too_deep in brackets else _too_many_nodes(limits)
    # Taking away the innermost pairs lowers the height by one. What is unbalanced never becomes empty.
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
