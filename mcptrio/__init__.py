"""A Trio-native, actor-style runtime for the Model Context Protocol."""

from typing import TYPE_CHECKING, Any

from mcptrio.errors import (
    CapabilityMissing,
    ConnectionLost,
    DeclarationError,
    LocalProtocolError,
    MCPError,
    MCPTrioError,
    OnceInterrupted,
    Overloaded,
    RemoteProtocolError,
    RequestTimeout,
    SessionRefused,
    ToolError,
    UrlElicitationRequired,
)

if TYPE_CHECKING:
    from mcptrio._actors.limits import Limits
    from mcptrio._schema.elicit import Format, Titles
    from mcptrio._schema.schema import Schema
    from mcptrio.client import Client, InputRequired, Reconnect, connect, connect_all
    from mcptrio.server.context import Context, Elicited, HttpInfo, SessionHandle
    from mcptrio.server.features.headers import Header
    from mcptrio.server.features.resources import ResourceNotFound
    from mcptrio.server.features.result_fields import Cache
    from mcptrio.server.server import Server
    from mcptrio.transports.http_server.config import HttpConfig
    from mcptrio.transports.link import Link, Transport
    from mcptrio.types import Audio, Image, Message, ResourceLink, assistant, user

__version__ = "0.1.0"

__all__ = [
    "Audio",
    "Cache",
    "CapabilityMissing",
    "Client",
    "ConnectionLost",
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
    "LocalProtocolError",
    "MCPError",
    "MCPTrioError",
    "Message",
    "OnceInterrupted",
    "Overloaded",
    "Reconnect",
    "RemoteProtocolError",
    "RequestTimeout",
    "ResourceLink",
    "ResourceNotFound",
    "Schema",
    "Server",
    "SessionHandle",
    "SessionRefused",
    "Titles",
    "ToolError",
    "Transport",
    "UrlElicitationRequired",
    "assistant",
    "connect",
    "connect_all",
    "user",
]

_HOME = {
    name: module
    for module, names in {
        "_actors.limits": "Limits",
        "_schema.elicit": "Format Titles",
        "_schema.schema": "Schema",
        "client": "Client InputRequired Reconnect connect connect_all",
        "server.context": "Context Elicited HttpInfo SessionHandle",
        "server.features.headers": "Header",
        "server.features.result_fields": "Cache",
        "server.features.resources": "ResourceNotFound",
        "server.server": "Server",
        "transports.http_server.config": "HttpConfig",
        "transports.link": "Link Transport",
        "types": "Audio Image Message ResourceLink assistant user",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that a program pays only for the names that it uses."""
    if name not in _HOME:
        if name[0].isupper():  # not a submodule, which `from mcptrio import types` asks for here first
            from mcptrio._hints import missing_name

            raise missing_name(__name__, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
