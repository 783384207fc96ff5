"""Marks in a tool's input schema: `x-mcp-header` names the HTTP header that repeats an argument.

2026-07-28 basic/transports/streamable-http, "Custom Headers". A server declares marks, and a client reads them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf
from typing import Any, Final

MARK: Final = "x-mcp-header"
TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110 section 5.6.2
MAX_MARKS: Final = 100
_TYPES: Final = ("string", "integer", "boolean")


class InvalidHeaderMark(ValueError):
    """A mark that makes its tool unusable over HTTP."""


def find_marks(schema: Mapping[str, Any], *, max_nodes: float = inf) -> dict[str, tuple[str, ...]]:
    """Return the marks of a schema, each with the path of the argument that it is on.

    Raises:
        InvalidHeaderMark: a mark is at a place where it is not allowed, or is malformed; or the schema is too large.
    """
    marks: dict[str, tuple[str, ...]] = {}
    pending: list[tuple[Mapping[str, Any], tuple[str, ...]]] = [(schema, ())]
    for node, path in pending:  # grows while it is read
        properties = node.get("properties")
        for name, inner in properties.items() if isinstance(properties, Mapping) else ():
            if not isinstance(inner, Mapping):
                continue
            pending.append((inner, (*path, name)))
            if MARK in inner:
                mark = _checked(inner, ".".join((*path, name)))
                if mark.lower() in {known.lower() for known in marks}:
                    raise InvalidHeaderMark(f"two arguments have the header {mark}")
                marks[mark] = (*path, name)
        if len(marks) > MAX_MARKS:
            raise InvalidHeaderMark(f"more than {MAX_MARKS} arguments have a header")
        if len(pending) > max_nodes:
            raise InvalidHeaderMark("the schema is too large")
    if _count(schema, max_nodes) != len(marks):  # one is not reachable by `properties` alone: no argument can be read
        raise InvalidHeaderMark(f"{MARK} may only mark properties of the arguments object itself")
    return marks


def _checked(schema: Mapping[str, Any], where: str) -> str:
    mark, kind = schema[MARK], schema.get("type")
    if not isinstance(mark, str) or not TOKEN.fullmatch(mark):
        raise InvalidHeaderMark(f"{MARK} of {where:.80} is not a part of a header's name: {mark!r:.80}")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise InvalidHeaderMark(f"{where:.80} has {MARK}, so its type must be one of {', '.join(_TYPES)}")
    return mark


def _count(schema: Mapping[str, Any], max_nodes: float) -> int:
    """Count the marks anywhere in a schema; parts that it has in two places count twice."""
    pending: list[tuple[Any, bool]] = [(schema, False)]
    nodes = found = 0
    while pending:
        node, is_names = pending.pop()
        nodes += 1
        if nodes > max_nodes:
            raise InvalidHeaderMark("the schema is too large")
        if isinstance(node, Mapping):
            # Below `properties` the keys are names of arguments, one of which may be equal to the mark.
            found += not is_names and MARK in node
            pending += [
                (child, not is_names and key in ("properties", "$defs", "patternProperties"))
                for key, child in node.items()
                if is_names or key not in ("default", "const", "enum", "examples")
            ]
        elif isinstance(node, list | tuple):
            pending += [(child, False) for child in node]
    return found
