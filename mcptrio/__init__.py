"""A Trio-native, actor-style runtime for the Model Context Protocol."""

from typing import TYPE_CHECKING, Any

from mcptrio.errors import (
    CapabilityMissing,
    DeclarationError,
    LinkClosed,
    LocalProtocolError,
    McpError,
    MCPTrioException,
    Overloaded,
    RemoteProtocolError,
    RequestTimeout,
    SessionRefused,
    ToolError,
)
from mcptrio.server.context import Context, Elicited, HttpInfo, SessionHandle
from mcptrio.server.features.headers import Header
from mcptrio.server.features.hints import Cache
from mcptrio.server.features.resources import ResourceNotFound
from mcptrio.server.server import Server
from mcptrio.types import Audio, Image, Link, Message, assistant, user

if TYPE_CHECKING:
    from mcptrio.client import Client, InputRequired, Reconnect, connect, connect_all

__version__ = "0.1.0"

__all__ = [
    "Audio",
    "Cache",
    "CapabilityMissing",
    "Client",
    "Context",
    "DeclarationError",
    "Elicited",
    "Header",
    "HttpInfo",
    "Image",
    "InputRequired",
    "Link",
    "LinkClosed",
    "LocalProtocolError",
    "MCPTrioException",
    "McpError",
    "Message",
    "Overloaded",
    "Reconnect",
    "RemoteProtocolError",
    "RequestTimeout",
    "ResourceNotFound",
    "Server",
    "SessionHandle",
    "SessionRefused",
    "ToolError",
    "assistant",
    "connect",
    "connect_all",
    "user",
]

_OF_THE_CLIENT = frozenset({"Client", "InputRequired", "Reconnect", "connect", "connect_all"})


def __getattr__(name: str) -> Any:
    """The client is imported when it is first used: a server that starts does not pay for it."""
    if name in _OF_THE_CLIENT:
        from mcptrio import client

        value = getattr(client, name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
