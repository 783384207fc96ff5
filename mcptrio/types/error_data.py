"""What stands in the `data` of the errors that the protocol defines."""

from __future__ import annotations

from attrs import field

from .base import Record, as_tuple, frozen
from .client_capabilities import ClientCapabilities
from .elicitation import ElicitParams


@frozen(kw_only=True)
class UnsupportedProtocolVersionData(Record):
    """The revisions that would have been understood, and the one that was asked for."""

    supported: tuple[str, ...] = field(converter=as_tuple)
    requested: str


@frozen(kw_only=True)
class MissingClientCapabilityData(Record):
    """What the client would have to declare."""

    required_capabilities: ClientCapabilities


@frozen(kw_only=True)
class UrlElicitationRequiredData(Record):
    """The URLs a person must visit before the request can work."""

    elicitations: tuple[ElicitParams, ...] = field(converter=as_tuple)
