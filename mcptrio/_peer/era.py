"""An era: everything in which one protocol date differs from another, as a value.

The questions are asked here, by name; the answers are in `mcptrio._eras`, one module per date. An era belongs to a
request, not to a connection: one process, and on stdio one pipe, may serve several at once.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct


class Role(enum.Enum):
    SERVER = "server"
    CLIENT = "client"

    # By identity: the default hash of an enum goes through its name on every look-up.
    __hash__ = object.__hash__


class Method(Struct, frozen=True):
    """A request of the protocol: who receives it, and what the receiver must have declared to be asked."""

    receiver: Role | None
    """None: either side may be asked."""
    needs: tuple[str, ...] = ()
    """Path into the receiver's capabilities, `("resources", "subscribe")`."""


class HttpRules(Struct, frozen=True, kw_only=True):
    """How a date uses Streamable HTTP."""

    sessions: bool = True
    """`Mcp-Session-Id`, a GET stream and DELETE exist."""
    resumable: bool = True
    """Events have ids and a stream can be taken up again with `Last-Event-ID`."""
    primes: bool = False
    """A stream begins with an event that has an id and no data."""
    version_header: bool = False
    """Clients repeat the date in `MCP-Protocol-Version`."""
    unknown_method_status: int = 200
    missing_capability_status: int = 200
    disconnect_cancels: bool = False


class Features(Struct, frozen=True, kw_only=True):
    """What a feature can do at a date, where that is not visible in a method's name."""

    elicitation: bool = False
    elicitation_url: bool = False
    sampling_tools: bool = False
    structured_output: bool = False
    progress_message: bool = False
    argument_faults_are_results: bool = False
    """Arguments that do not fit a tool's schema: a result with `isError`, or a JSON-RPC error."""
    asks_in_results: bool = False
    """A question to the client is a result, and its answer a repeated request."""
    cache_hints: bool = False
    any_structured_content: bool = False
    """`structuredContent` may be any JSON value, not only an object."""
    errors_without_id: bool = False
    """The schema allows an error response with no id."""


MissingCapability = Callable[[Mapping[str, Any], str, Mapping[str, Any]], dict[str, Any] | None]
"""(what the peer declared, method, params) -> what it would have to declare in addition, or None."""


class Era(Struct, frozen=True, eq=False, kw_only=True):
    """One protocol date."""

    date: str
    stateful: bool
    batching: bool
    requests: Mapping[str, Method]
    notifications: frozenset[str]
    shapes: Mapping[str, frozenset[str]]
    """Kind of object -> the wire keys that this date defines for it. What is not here is left out when sending."""
    content: frozenset[str]
    """The content types that this date has."""
    features: Features
    http: HttpRules
    missing: MissingCapability
    resource_not_found: int
    may_ask: frozenset[str] = frozenset()
    """Requests that may be answered with questions, where questions travel in results."""
    lacks: frozenset[str] = frozenset()
    """Methods of other dates that do not exist at this one, even if somebody routed them."""
