"""An era: all differences between protocol dates, as a value.

This module defines the fields; `mcptrio._eras` has one module of values per date. An era belongs to a request, not to a
connection: one process, and on stdio one pipe, may serve several at once.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct


class Role(enum.Enum):
    SERVER = "server"
    CLIENT = "client"

    # By identity: the default hash of an enum hashes its name on every lookup.
    __hash__ = object.__hash__


class Method(Struct, frozen=True):
    """A request method: the role that receives it, and the capability that the receiver must have declared."""

    receiver: Role | None
    """None: both roles may receive it."""
    needs: tuple[str, ...] = ()
    """Path into the receiver's capabilities, `("resources", "subscribe")`."""


class HttpRules(Struct, frozen=True, kw_only=True):
    """The use of Streamable HTTP at a date."""

    sessions: bool = True
    """`Mcp-Session-Id`, a GET stream and DELETE exist."""
    resumable: bool = True
    """Events have ids, and a stream can be resumed with `Last-Event-ID`."""
    primes: bool = False
    """A stream begins with an event that has an id and no data."""
    version_header: bool = False
    """Clients repeat the date in `MCP-Protocol-Version`."""
    unknown_method_status: int = 200
    missing_capability_status: int = 200
    disconnect_cancels: bool = False


class Features(Struct, frozen=True, kw_only=True):
    """Feature details of a date that method names do not show."""

    elicitation_url: bool = False
    elicitation_error: bool = False
    """The error -32042 exists."""
    sampling_tools: bool = False
    progress_message: bool = False
    asks_in_results: bool = False
    """Servers ask the client inside a result, and the client answers with a repeated request."""
    cache_hints: bool = False
    any_structured_content: bool = False
    """`structuredContent` may be any JSON value, not only an object."""
    errors_without_id: bool = False
    """The schema allows an error response with no id."""


MissingCapability = Callable[[Mapping[str, Any], str, Mapping[str, Any]], dict[str, Any] | None]
"""(capabilities of the peer, method, params) -> the capabilities that it lacks, or None."""


class Era(Struct, frozen=True, eq=False, kw_only=True):
    """One protocol date."""

    date: str
    stateful: bool
    batching: bool
    requests: Mapping[str, Method]
    notifications: frozenset[str]
    shapes: Mapping[str, frozenset[str]]
    """Kind of object -> the wire keys that this date defines for it. Other keys are left out when sending."""
    content: frozenset[str]
    """The content types that this date has."""
    features: Features
    http: HttpRules
    missing: MissingCapability
    resource_not_found: int
    may_ask: frozenset[str] = frozenset()
    """Requests that may be answered with input requests."""
    lacks: frozenset[str] = frozenset()
    """Methods of other dates that do not exist at this one, even if a route for them is registered."""
