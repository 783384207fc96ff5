"""Values that JSON cannot carry: the error names the tool, prompt or resource that they come from."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio

from mcptrio import Context, DeclarationError, Server, types
from mcptrio.errors import INTERNAL_ERROR
from tests.stateless.kit import meta

from .talk import open_server, refusal

FILE = "caf\udce9.txt"  # as Python reads a file name in Latin-1


def make_file_server() -> Server:
    server = Server("files")

    @server.tool
    async def name() -> str:
        return FILE

    @server.tool
    async def names() -> list[str]:
        return [FILE]

    @server.tool
    async def block() -> types.TextContent:
        return types.TextContent(text=FILE)

    @server.tool
    async def log(ctx: Context) -> None:
        await ctx.warning(FILE)

    @server.tool
    async def ask(ctx: Context) -> None:
        await ctx.elicit(FILE, str)

    @server.tool
    async def sample(ctx: Context) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.sample, FILE)

    @server.tool
    async def announce() -> None:
        server.notify_resource_updated(f"files://{FILE}")

    @server.prompt
    async def review(ctx: Context) -> str:
        return FILE

    @server.resource("file://{name}")
    async def file(name: str, ctx: Context) -> str:
        if name == "log":
            await ctx.info(FILE)
        return FILE

    @server.resource("folder://all")
    async def folder() -> list[str]:
        return [FILE]

    @file.complete("name")
    async def complete(prefix: str) -> list[str]:
        return [FILE]

    return server


@pytest.mark.defect("C18")
@pytest.mark.parametrize("stateless", [False, True], ids=["sessions", "stateless"])
@pytest.mark.parametrize(
    ("method", "name"),
    [
        *(("tools/call", tool) for tool in ("name", "names", "block", "log", "ask", "sample", "announce")),
        ("prompts/get", "review"),
        *(("resources/read", uri) for uri in ("file://text", "file://log", "folder://all")),
        ("completion/complete", "file://{name}"),
    ],
)
async def test_a_text_that_cannot_be_encoded_is_an_error_that_names_its_source(
    method: str, name: str, stateless: bool, caplog: pytest.LogCaptureFixture
) -> None:
    params: dict[str, Any] = {"uri" if method == "resources/read" else "name": name}
    if method == "completion/complete":
        params = {"ref": {"type": "ref/resource", "uri": name}, "argument": {"name": "name", "value": ""}}
    declared = {"elicitation": {"form": {}}, "sampling": {}}
    if stateless:
        params["_meta"] = {**meta(declared), "io.modelcontextprotocol/logLevel": "debug"}
    async with open_server(make_file_server()) as join, join(capabilities=declared) as talk:
        if method == "tools/call":
            result = await talk.request(method, **params)
            assert result["isError"]
            said = result["content"][0]["text"]
        else:
            refused = await refusal(talk, method, **params)
            assert refused.code == INTERNAL_ERROR
            said = refused.message
        assert said == f"{method} {name!r} failed: a text has a lone surrogate, which JSON cannot carry"
    (record,) = caplog.records
    assert f"{name!r} failed" in record.getMessage()
    assert r"caf\udce9.txt" in caplog.text


@pytest.mark.defect("C18")
def test_what_no_list_can_show_is_refused_when_it_is_declared() -> None:
    server = Server("files")
    for wrong in ({"description": FILE}, {"meta": {"size": math.nan}}, {"meta": {"when": object()}}):
        with pytest.raises(DeclarationError, match="'name' cannot be listed: "):
            server.tool(name="name", **wrong)(lambda: "")  # type: ignore[arg-type]  # one of them at a time
        with pytest.raises(DeclarationError, match="'name' cannot be listed: "):
            server.prompt(name="name", **wrong)(lambda: "")  # type: ignore[arg-type]
        with pytest.raises(DeclarationError, match="'file://name' cannot be listed: "):
            server.resource("file://name", name="name", **wrong)(lambda: "")  # type: ignore[arg-type]
