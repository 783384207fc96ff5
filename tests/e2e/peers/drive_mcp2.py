"""Drives the fixture server with the official Python SDK, 2.x: `python drive_mcp2.py URL` or `… COMMAND ARGUMENT…`."""

from __future__ import annotations

import warnings
from typing import Any

import anyio
import mcp_types as types
from features import ROOTS, STATELESS, Json, Peer, Refused, command_line, drive, finish
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

warnings.simplefilter("ignore")  # the SDK marks the stateful features as deprecated; they are what we are after


def plain(model: Any) -> Json:
    found: Json = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    found.pop("resultType", None)  # the SDK's own default on old wires
    return found


class Adapter(Peer):
    client: Client
    tasks: Any
    watching: anyio.CancelScope | None = None

    async def call(self, name: str, arguments: Json | None = None, on_progress: Any = None) -> Json:
        try:
            return plain(await self.client.call_tool(name, arguments, progress_callback=on_progress))
        except MCPError as error:
            raise Refused(error.error.code, error.error.message) from error

    async def call_and_cancel(self, name: str, arguments: Json, after: float) -> None:
        with anyio.move_on_after(after):
            await self.client.call_tool(name, arguments)
            raise AssertionError("the call was answered before it could be cancelled")

    async def request(self, method: str, params: Json | None = None) -> Json:
        given = dict(params or {})
        session = self.client.session
        try:
            match method:
                case "ping":
                    result: Any = await session.send_ping()
                case "tools/list":
                    result = await self.client.list_tools(**given)
                case "prompts/list":
                    result = await self.client.list_prompts(**given)
                case "prompts/get":
                    result = await self.client.get_prompt(**given)
                case "resources/list":
                    result = await self.client.list_resources(**given)
                case "resources/templates/list":
                    result = await self.client.list_resource_templates(**given)
                case "resources/read":
                    result = await self.client.read_resource(given["uri"])
                case "resources/subscribe" if STATELESS:
                    await self.tasks.start(self.watch, {"resource_subscriptions": [given["uri"]]})
                    return {}
                case "resources/unsubscribe" if STATELESS:
                    assert self.watching is not None
                    self.watching.cancel()
                    return {}
                case "logging/setLevel" if STATELESS:
                    return {}  # the client was made with a level, which goes with every request
                case "resources/subscribe":
                    result = await self.client.subscribe_resource(given["uri"])
                case "resources/unsubscribe":
                    result = await self.client.unsubscribe_resource(given["uri"])
                case "logging/setLevel":
                    result = await session.set_logging_level(given["level"])
                case "completion/complete":
                    ref = types.PromptReference(**given["ref"])
                    result = await self.client.complete(ref, given["argument"])
                case _:
                    raise NotImplementedError(method)
        except MCPError as error:
            raise Refused(error.error.code, error.error.message) from error
        return plain(result)

    async def watch(self, wanted: Json, task_status: Any = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep a listen stream open and write down what it tells, in the words of the wire."""
        with anyio.CancelScope() as scope:
            if "resource_subscriptions" in wanted:
                self.watching = scope
            async with self.client.listen(**wanted) as news:
                task_status.started()
                async for event in news:
                    kind = type(event).__name__
                    if kind == "ResourceUpdated":
                        self.notified.append(("notifications/resources/updated", {"uri": str(event.uri)}))
                    else:
                        name = kind.removesuffix("ListChanged").lower()
                        self.notified.append((f"notifications/{name}/list_changed", {}))

    async def on_elicit(self, context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(**self.elicited(plain(params)))

    async def on_sample(self, context: Any, params: Any) -> types.CreateMessageResult:
        return types.CreateMessageResult.model_validate(self.sampled(plain(params)))

    async def on_roots(self, context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root.model_validate(root) for root in ROOTS])

    async def on_message(self, message: Any) -> None:
        if isinstance(message, Exception):
            self.notified.append(("exception", {"text": repr(message)}))
        else:
            params = plain(message).get("params", {})
            if "io.modelcontextprotocol/subscriptionId" not in params.get("_meta", {}):  # those come to `watch` too
                self.notified.append((message.method, params))


async def main() -> None:
    target = command_line()
    peer = Adapter()
    server = target if isinstance(target, str) else StdioServerParameters(command=target[0], args=target[1:])
    async with Client(
        server,
        mode="auto" if STATELESS else "legacy",
        log_level="debug" if STATELESS else None,
        elicitation_callback=peer.on_elicit,
        sampling_callback=peer.on_sample,
        list_roots_callback=peer.on_roots,
        message_handler=peer.on_message,
    ) as peer.client:
        async with anyio.create_task_group() as peer.tasks:
            if STATELESS:
                peer.opening = {
                    "protocolVersion": peer.client.protocol_version,
                    "capabilities": plain(peer.client.server_capabilities),
                    "serverInfo": plain(peer.client.server_info),
                }
                lists = ("tools_list_changed", "prompts_list_changed", "resources_list_changed")
                await peer.tasks.start(peer.watch, dict.fromkeys(lists, True))
            else:
                peer.opening = plain(await peer.client.session.initialize())  # kept from the opening
            found = await drive(peer)
            peer.tasks.cancel_scope.cancel()
    finish({**found, "close": "ok"})


anyio.run(main)
