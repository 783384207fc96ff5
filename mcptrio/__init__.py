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
    from mcptrio._actors.call import Limits
    from mcptrio._actors.supervisor import SupervisorLimits
    from mcptrio._schema.elicit import Format, Titles
    from mcptrio.client import Client, InputRequired, Reconnect, UrlElicitationRequired, connect, connect_all
    from mcptrio.transports.http_server.config import HttpConfig
    from mcptrio.transports.http_server.serve import ListenerConfig

__version__ = "0.1.0"

__all__ = [
    "Audio",
    "Cache",
    "CapabilityMissing",
    "Client",
    "Context",
    "DeclarationError",
    "Elicited",
    "Format",
    "Header",
    "HttpConfig",
    "HttpInfo",
    "Image",
    "InputRequired",
    "Limits",
    "Link",
    "LinkClosed",
    "ListenerConfig",
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
    "SupervisorLimits",
    "Titles",
    "ToolError",
    "UrlElicitationRequired",
    "assistant",
    "connect",
    "connect_all",
    "user",
]

_LAZY = {
    **dict.fromkeys(
        ("Client", "InputRequired", "Reconnect", "UrlElicitationRequired", "connect", "connect_all"), "mcptrio.client"
    ),
    **dict.fromkeys(("Format", "Titles"), "mcptrio._schema.elicit"),
    "HttpConfig": "mcptrio.transports.http_server.config",
    "Limits": "mcptrio._actors.call",
    "ListenerConfig": "mcptrio.transports.http_server.serve",
    "SupervisorLimits": "mcptrio._actors.supervisor",
}


def __getattr__(name: str) -> Any:
    """What not every server needs is imported when it is first used: a server that starts does not pay for it."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return value
