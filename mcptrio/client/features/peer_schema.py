"""JSON Schemas that a server sent."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import trio

from mcptrio._schema.check import Checker, SchemaLimits, is_within

_SMALL: Final = SchemaLimits(max_nodes=300, max_chars=20_000, max_refs=16, max_patterns=16, max_repeats=500)
"""A schema that is compiled in a few milliseconds."""

_one_at_a_time: Final[trio.lowlevel.RunVar[trio.CapacityLimiter]] = trio.lowlevel.RunVar("mcptrio schemas of servers")
"""Several threads that compute would leave the event loop little of the interpreter."""


async def compile_schema(schema: Mapping[str, Any]) -> Checker:
    """Return the checker of a server's schema.

    A large one, or one whose references expand, can take a second. It is compiled in a thread.

    Raises:
        DeclarationError: the schema cannot be used.
    """
    if is_within(schema, _SMALL):
        return Checker(schema, limits=SchemaLimits())
    try:
        limiter = _one_at_a_time.get()
    except LookupError:
        limiter = trio.CapacityLimiter(1)
        _one_at_a_time.set(limiter)
    return await trio.to_thread.run_sync(partial(Checker, schema, limits=SchemaLimits()), limiter=limiter)
