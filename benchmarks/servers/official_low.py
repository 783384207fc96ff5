"""The measured tools on the official Python SDK, low-level server."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as types
import uvicorn
from filler import arguments, fillers
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

given = arguments()
NUMBERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
SEARCH = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "limit": {"type": "integer", "default": 10},
        "exact": {"type": "boolean", "default": False},
    },
    "required": ["query"],
}
TOOLS = [
    types.Tool(name="add", description="Add two numbers after one turn of the event loop.", input_schema=NUMBERS),
    types.Tool(name="add_without_waiting", description="Add two numbers without waiting.", input_schema=NUMBERS),
    types.Tool(name="count", description="Report progress once per step.", input_schema={"type": "object"}),
    types.Tool(name="ask", description="Ask the user for a size.", input_schema={"type": "object"}),
    *(types.Tool(name=f.__name__, description=f.__doc__, input_schema=SEARCH) for f in fillers(given.tools)),
]
SIZE = {"type": "object", "properties": {"size": {"type": "integer"}}, "required": ["size"]}


async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=TOOLS)


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    arguments = params.arguments or {}
    if params.name == "add":
        await anyio.lowlevel.checkpoint()
        text = f"{arguments['a'] + arguments['b']}"
    elif params.name == "add_without_waiting":
        text = f"{arguments['a'] + arguments['b']}"
    elif params.name == "count":
        for step in range(arguments["to"]):
            await ctx.session.report_progress(step + 1, arguments["to"])
        text = "done"
    else:
        answer = await ctx.session.elicit_form("Which size?", SIZE, ctx.request_id)
        text = answer.action
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


server = Server("bench", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def main() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    if not given.port:
        anyio.run(main)
    else:
        app = server.streamable_http_app(json_response=given.form == "json")
        uvicorn.run(app, port=given.port, log_level="error")
