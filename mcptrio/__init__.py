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

if TYPE_CHECKING:
    from mcptrio._actors.call import Limits
    from mcptrio._actors.supervisor import SupervisorLimits
    from mcptrio._schema.elicit import Format, Titles
    from mcptrio.client import Client, InputRequired, Reconnect, UrlElicitationRequired, connect, connect_all
    from mcptrio.server.context import Context, Elicited, HttpInfo, SessionHandle
    from mcptrio.server.features.headers import Header
    from mcptrio.server.features.hints import Cache
    from mcptrio.server.features.resources import ResourceNotFound
    from mcptrio.server.server import Server
    from mcptrio.transports.http_server.config import HttpConfig
    from mcptrio.transports.http_server.serve import ListenerConfig
    from mcptrio.types import Audio, Image, Link, Message, assistant, user

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

_HOME = {
    name: module
    for module, names in {
        "_actors.call": "Limits",
        "_actors.supervisor": "SupervisorLimits",
        "_schema.elicit": "Format Titles",
        "client": "Client InputRequired Reconnect UrlElicitationRequired connect connect_all",
        "server.context": "Context Elicited HttpInfo SessionHandle",
        "server.features.headers": "Header",
        "server.features.hints": "Cache",
        "server.features.resources": "ResourceNotFound",
        "server.server": "Server",
        "transports.http_server.config": "HttpConfig",
        "transports.http_server.serve": "ListenerConfig",
        "types": "Audio Image Link Message assistant user",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    """A name is imported when it is first used: a program that starts pays for what it needs, and for nothing else."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
