"""The MCP client, for any server and any protocol version."""

from __future__ import annotations

from mcptrio.client.client import Client, connect
from mcptrio.client.config import ClientConfig
from mcptrio.client.features.round_trips import InputRequired
from mcptrio.client.features.subscriptions import Change, Changes
from mcptrio.client.host_config import read_servers
from mcptrio.client.multi import Clients, connect_all, make_client
from mcptrio.client.requester import How
from mcptrio.errors import UrlElicitationRequired
from mcptrio.transports.retry import Reconnect

__all__ = [
    "Change",
    "Changes",
    "Client",
    "ClientConfig",
    "Clients",
    "How",
    "InputRequired",
    "Reconnect",
    "UrlElicitationRequired",
    "connect",
    "connect_all",
    "make_client",
    "read_servers",
]
