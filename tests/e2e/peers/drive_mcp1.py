"""Drives the fixture server with the official Python SDK, 1.x: `python drive_mcp1.py URL` or `… COMMAND ARGUMENT…`."""

from __future__ import annotations

import warnings
from contextlib import AsyncExitStack
from typing import Any

import anyio
from features import ROOTS, Json, Peer, Refused, command_line, drive, finish
from mcp import ClientSession, McpError, StdioServerParameters, stdio_client, types
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl

warnings.simplefilter("ignore")


def plain(model: Any) -> Json:
    found: Json = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return found


class Adapter(Peer):
    session: ClientSession

    async def call(self, name: str, arguments: Json | None = None, on_progress: Any = None) -> Json:
        try:
            return plain(await self.session.call_tool(name, arguments, progress_callback=on_progress))
        except McpError as error:
            raise Refused(error.error.code, error.error.message) from error

    async def call_and_cancel(self, name: str, arguments: Json, after: float) -> None:
        # This SDK does not tell the server by itself when a caller gives up.
        request_id = self.session._request_id
        with anyio.move_on_after(after):
            await self.session.call_tool(name, arguments)
            raise AssertionError("the call was answered before it could be cancelled")
        params = types.CancelledNotificationParams(requestId=request_id, reason="enough")
        await self.session.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))

    async def request(self, method: str, params: Json | None = None) -> Json:
        given = dict(params or {})
        page = types.PaginatedRequestParams(**given) if "list" in method else None
        session = self.session
        try:
            match method:
                case "ping":
                    result: Any = await session.send_ping()
                case "tools/list":
                    result = await session.list_tools(params=page)
                case "prompts/list":
                    result = await session.list_prompts(params=page)
                case "prompts/get":
                    result = await session.get_prompt(**given)
                case "resources/list":
                    result = await session.list_resources(params=page)
                case "resources/templates/list":
                    result = await session.list_resource_templates(params=page)
                case "resources/read":
                    result = await session.read_resource(AnyUrl(given["uri"]))
                case "resources/subscribe":
                    result = await session.subscribe_resource(AnyUrl(given["uri"]))
                case "resources/unsubscribe":
                    result = await session.unsubscribe_resource(AnyUrl(given["uri"]))
                case "logging/setLevel":
                    result = await session.set_logging_level(given["level"])
                case "completion/complete":
                    ref = types.PromptReference(**given["ref"])
                    result = await session.complete(ref, given["argument"])
                case _:
                    raise NotImplementedError(method)
        except McpError as error:
            raise Refused(error.error.code, error.error.message) from error
        return plain(result)

    async def on_elicit(self, context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(**self.elicited(plain(params)))

    async def on_sample(self, context: Any, params: Any) -> types.CreateMessageResult:
        return types.CreateMessageResult.model_validate(self.sampled(plain(params)))

    async def on_roots(self, context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root.model_validate(root) for root in ROOTS])

    async def on_message(self, message: Any) -> None:
        if isinstance(message, Exception):
            self.notified.append(("exception", {"text": repr(message)}))
        elif isinstance(message, types.ServerNotification):
            self.notified.append((message.root.method, plain(message).get("params", {})))


async def main() -> None:
    target = command_line()
    peer = Adapter()
    async with AsyncExitStack() as stack:
        if isinstance(target, str):
            read, write, _ = await stack.enter_async_context(streamable_http_client(target))
        else:
            parameters = StdioServerParameters(command=target[0], args=target[1:])
            read, write = await stack.enter_async_context(stdio_client(parameters))
        peer.session = await stack.enter_async_context(
            ClientSession(
                read,
                write,
                elicitation_callback=peer.on_elicit,
                sampling_callback=peer.on_sample,
                list_roots_callback=peer.on_roots,
                message_handler=peer.on_message,
            )
        )
        peer.opening = plain(await peer.session.initialize())
        found = await drive(peer)
    finish({**found, "close": "ok"})


anyio.run(main)
