"""A Trio-native, actor-style runtime for the Model Context Protocol."""

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
from mcptrio.server.features.resources import ResourceNotFound
from mcptrio.server.server import Server
from mcptrio.types import Audio, Image, Link, Message, assistant, user

__version__ = "0.1.0"

__all__ = [
    "Audio",
    "CapabilityMissing",
    "Context",
    "DeclarationError",
    "Elicited",
    "HttpInfo",
    "Image",
    "Link",
    "LinkClosed",
    "LocalProtocolError",
    "MCPTrioException",
    "McpError",
    "Message",
    "Overloaded",
    "RemoteProtocolError",
    "RequestTimeout",
    "ResourceNotFound",
    "Server",
    "SessionHandle",
    "SessionRefused",
    "ToolError",
    "assistant",
    "user",
]
