"""Extensions on the client's side: `async with extended(connect(url), Tasks()) as client`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from mcptrio._actors.extension import Extension
from mcptrio.client.client import Client


@frozen
class Peer:
    """What an extension may do with a client (see `mcptrio._actors.extension.ClientPeer`)."""

    client: Client

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return await self.client.request(method, params)

    async def answer(self, questions: Mapping[str, Any]) -> dict[str, Any]:
        """What the host's callbacks say; all are asked at the same time."""
        return await self.client._service.host.answer_all(questions)


def extended(client: Client, *extensions: Extension) -> Client:
    """Let a client that is not open yet declare extensions and understand their results; gives the same client."""
    peer = Peer(client)
    host = client._service.host
    host.extensions = {**host.extensions, **{each.identifier: dict(each.client_settings()) for each in extensions}}
    for extension in extensions:
        client.result_types.update(extension.results(peer))
    return client
