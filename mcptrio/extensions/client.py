"""Extensions on the client's side: `async with extended(connect(url), Tasks()) as client`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import trio
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
        """All questions at the same time; the first failure ends the others and is raised alone."""
        host = self.client._service.host
        answers: dict[str, Any] = {}
        failed: list[Exception] = []

        async def answer(key: str, question: Mapping[str, Any], scope: trio.CancelScope) -> None:
            try:
                answers[key] = await host.answer(question["method"], question.get("params", {}))
            except Exception as error:  # noqa: BLE001 - raised below
                failed.append(error)
                scope.cancel()

        async with trio.open_nursery() as nursery:
            for key, question in questions.items():
                nursery.start_soon(answer, key, question, nursery.cancel_scope)
        if failed:
            raise failed[0]
        return answers


def extended(client: Client, *extensions: Extension) -> Client:
    """Let a client that is not open yet declare extensions and understand their results; gives the same client."""
    peer = Peer(client)
    host = client._service.host
    host.extensions = {**host.extensions, **{each.identifier: dict(each.client_settings()) for each in extensions}}
    for extension in extensions:
        client.result_types.update(extension.results(peer))
    return client
