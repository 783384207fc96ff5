"""The client that the official conformance suite drives: one scenario per run, the server's URL as the last argument.

MCP_CONFORMANCE_SCENARIO=tools_call python examples/conformance/client.py http://127.0.0.1:3000/mcp
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import trio

from mcptrio import Client, MCPTrioError, connect
from mcptrio.types import ElicitParams

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
VERSION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
CONTEXT: Mapping[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
Play = Callable[[Client], Awaitable[None]]
PLAYS: dict[str, Play] = {}


def scenario(*names: str) -> Callable[[Play], Play]:
    def remember(play: Play) -> Play:
        PLAYS.update(dict.fromkeys(names, play))
        return play

    return remember


@scenario("initialize", "json-schema-ref-no-deref")
async def look(client: Client) -> None:
    await client.list_tools()


@scenario("tools_call")
async def add(client: Client) -> None:
    await client.list_tools()
    await client.call_tool("add_numbers", {"a": 5, "b": 3})


@scenario("elicitation-sep1034-client-defaults")
async def defaults(client: Client) -> None:
    await client.list_tools()
    await client.call_tool("test_client_elicitation_defaults", {})


@scenario("sse-retry")
async def reconnect(client: Client) -> None:
    await client.list_tools()
    await client.call_tool("test_reconnection", {})


@scenario("request-metadata")
async def metadata(client: Client) -> None:
    for tool in await client.list_tools():
        await client.call_tool(tool.name, {})


@scenario("sep-2322-client-request-state")
async def rounds(client: Client) -> None:
    for name in ("test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type"):
        await client.call_tool(name, {})


@scenario("http-standard-headers")
async def standard_headers(client: Client) -> None:
    for tool in await client.list_tools():
        await client.call_tool(tool.name, {})
    for resource in await client.list_resources():
        await client.read_resource(resource.uri)
    for prompt in await client.list_prompts():
        await client.get_prompt(prompt.name)


@scenario("http-custom-headers")
async def custom_headers(client: Client) -> None:
    await client.list_tools()
    for call in CONTEXT["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


@scenario("http-invalid-tool-headers")
async def invalid_headers(client: Client) -> None:
    for tool in await client.list_tools():
        await client.call_tool(tool.name, {"region": "us", "value": "x"})


@scenario("json-schema-2020-12-preservation")
async def keep_schema(client: Client) -> None:
    tools = {tool.name: tool for tool in await client.list_tools()}
    schema = tools["json_schema_2020_12_tool"].input_schema
    await client.call_tool("json_schema_echo", {"schema": schema})


@scenario("sep-2640-client-no-prefetch")
async def list_skills(client: Client) -> None:
    from mcptrio.extensions.skills import loading

    await loading.list_skills(client)


@scenario(
    "sep-2640-client-verify-digest", "sep-2640-client-verify-size", "sep-2640-client-verify-frontmatter"
)  # fmt: skip
async def load_skills(client: Client) -> None:
    """Read every file of every skill; one that is not what was listed ends the program."""
    from mcptrio.extensions.skills import loading

    for entry in await loading.list_skills(client):
        skill = await loading.load_skill(client, entry)
        folder = entry["uri"].removesuffix("SKILL.md")
        for file in entry["resources"]:
            await skill.read(file["uri"].removeprefix(folder))


def answer(asked: ElicitParams) -> dict[str, Any]:
    """Accept every form: what it has defaults for is filled in by the client, the rest is said here."""
    properties = (asked.requested_schema or {}).get("properties", {})
    simple = {"boolean": True, "string": "text", "number": 1, "integer": 1}
    return {key: simple[p["type"]] for key, p in properties.items() if "default" not in p and p.get("type") in simple}


async def main(url: str) -> None:
    # A date with sessions is spoken as it is; for the stateless one the client finds out, since a mock may be older.
    protocol = VERSION if VERSION and VERSION < "2026" else None
    settings: dict[str, Any] = {"elicit": answer, "sample": lambda _: "text", "roots": ["file:///tmp"]}
    play = PLAYS.get(SCENARIO)
    if SCENARIO.startswith("auth/"):
        import oauth_scenarios  # next to this file

        settings = {"auth": oauth_scenarios.auth_for(SCENARIO, CONTEXT)}
        play = partial(oauth_scenarios.use, scenario=SCENARIO)
    assert play is not None, f"no such scenario: {SCENARIO}"
    async with connect(url, protocol=protocol, **settings) as client:
        await play(client)


if __name__ == "__main__":
    try:
        trio.run(main, sys.argv[-1])
    except MCPTrioError as error:
        sys.exit(f"{type(error).__name__}: {error}")
