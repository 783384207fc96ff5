"""Extensions of a client: `async with extended(connect(url), Tasks()) as client`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from mcptrio._actors.extension import Extension
from mcptrio.client.client import Client


@frozen
class ExtensionPeer:
    """The client as its extensions use it (see `mcptrio.extensions.ClientPeer`)."""

    client: Client

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return await self.client.request(method, params)

    async def answer(self, questions: Mapping[str, Any]) -> dict[str, Any]:
        """Answer input requests with the host's callbacks, all at the same time."""
        return await self.client._service.callbacks.answer_all(questions)


def extended(client: Client, *extensions: Extension) -> Client:
    """Add extensions to a client that is not open yet, and return it: it declares them and handles their results."""
    peer = ExtensionPeer(client)
    callbacks = client._service.callbacks
    callbacks.extensions = {
        **callbacks.extensions,
        **{each.identifier: dict(each.client_settings()) for each in extensions},
    }
    for extension in extensions:
        client.result_types.update(extension.results(peer))
    return client
