"""Parts of the clients for other event loops (`mcptrio.aio`, `mcptrio.blocking`) that do not depend on the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

from mcptrio.client.client import Client
from mcptrio.client.multi import Clients
from mcptrio.types import Implementation, ServerCapabilities

C = TypeVar("C", bound="WrappedClient")

CALLBACKS: Final = frozenset({"elicit", "visited", "sample", "roots", "log", "on_notification", "on_progress"})
"""The options of clients and requests that are callbacks."""


def adapt_callbacks(options: Mapping[str, Any], adapt: Callable[[str, Callable[..., Any]], Any]) -> dict[str, Any]:
    """Return the options with every callback replaced by `adapt(name of the option, callback)`."""
    adapted = {name: adapt(name, one) if name in CALLBACKS and callable(one) else one for name, one in options.items()}
    if routes := adapted.get("routes"):
        adapted["routes"] = {method: adapt("routes", handler) for method, handler in routes.items()}
    return adapted


class WrappedClient:
    """A client of Trio behind another face: the facts about its server."""

    _client: Client

    @property
    def transport(self) -> str:
        """The kind of transport: `http`, `stdio`, `memory`, `websocket`, `sse`."""
        return self._client.transport

    @property
    def server_info(self) -> Implementation | None:
        """Name and version of the server, as it reports them."""
        return self._client.server_info

    @property
    def capabilities(self) -> ServerCapabilities:
        return self._client.capabilities

    @property
    def protocol_version(self) -> str:
        """The protocol version of the connection."""
        return self._client.protocol_version

    @property
    def instructions(self) -> str | None:
        """The server's instructions for its use."""
        return self._client.instructions


class WrappedClients(Generic[C]):
    """The clients of `connect_all` behind another face, by name."""

    _client: Clients
    _wrapped: dict[str, C]

    @property
    def failed(self) -> Mapping[str, Exception]:
        """The servers that could not be connected to, and why."""
        return self._client.failed

    def __getitem__(self, name: str) -> C:
        if name not in self._wrapped:
            self._client[name]  # raises, with the reason
        return self._wrapped[name]

    def __contains__(self, name: object) -> bool:
        return name in self._wrapped

    def __iter__(self) -> Iterator[str]:
        return iter(self._wrapped)

    def __len__(self) -> int:
        return len(self._wrapped)


def unwrapped(servers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the servers for `connect_all` of Trio: a client with another face is replaced by the one behind it."""
    return {name: one._client if isinstance(one, WrappedClient) else one for name, one in servers.items()}
