"""The client: any server, any revision."""

from __future__ import annotations

from mcptrio.client.asking import How
from mcptrio.client.client import Client, connect
from mcptrio.client.config import ClientConfig, Reconnect
from mcptrio.client.features.rounds import InputRequired
from mcptrio.client.features.subscriptions import Change, Changes
from mcptrio.client.features.visits import UrlElicitationRequired
from mcptrio.client.several import Clients, connect_all, make_client, read_servers

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
