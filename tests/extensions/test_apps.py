"""MCP Apps: a tool points to a page, the page is a resource with its policy and its type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mcptrio import Context, DeclarationError, Server
from mcptrio.extensions.apps import IDENTIFIER, MIME_TYPE, Apps, Csp, Ui, apps_of
from tests.server.talk import Talk, open_server, refusal, talking

from .kit import calling

PAGE = "<!DOCTYPE html><html><body>hello</body></html>"


def with_page(ui: Any) -> Server:
    server = Server("apps")

    @server.tool(ui=ui, meta={"org.example/x": 1})
    async def show() -> str:
        """Shows."""
        return "shown"

    return server


async def test_a_tool_points_to_its_page_and_the_page_can_be_read() -> None:
    page = Ui(
        "ui://weather/dashboard",
        html=PAGE,
        name="dashboard",
        description="The weather.",
        csp=Csp(
            connect=["https://api.example.com", "wss://live.example.com:8443"], resources=["https://*.example.com"]
        ),
        permissions=["camera", "clipboardWrite"],
        domain="abc.example.com",
        prefers_border=True,
        visibility=("model", "app"),
    )
    policy = {
        "csp": {
            "connectDomains": ["https://api.example.com", "wss://live.example.com:8443"],
            "resourceDomains": ["https://*.example.com"],
        },
        "permissions": {"camera": {}, "clipboardWrite": {}},
        "domain": "abc.example.com",
        "prefersBorder": True,
    }
    async with calling(with_page(page)) as caller:
        (tool,) = (await caller.ask("tools/list"))["tools"]
        assert tool["_meta"] == {
            "org.example/x": 1,
            "ui": {"resourceUri": "ui://weather/dashboard", "visibility": ["model", "app"]},
        }
        (listed,) = (await caller.ask("resources/list"))["resources"]
        assert listed == {
            "uri": "ui://weather/dashboard",
            "name": "dashboard",
            "description": "The weather.",
            "mimeType": MIME_TYPE,
            "_meta": {"ui": policy},
        }
        (contents,) = (await caller.ask("resources/read", uri="ui://weather/dashboard"))["contents"]
        assert contents == {
            "uri": "ui://weather/dashboard",
            "mimeType": "text/html;profile=mcp-app",
            "text": PAGE,
            "_meta": {"ui": policy},
        }
        assert (await caller.ask("server/discover"))["capabilities"]["extensions"] == {IDENTIFIER: {}}
        assert (await caller.call("show"))["content"][0]["text"] == "shown"


async def test_a_page_without_options_has_no_meta() -> None:
    async with calling(with_page(Ui("ui://plain", html=PAGE))) as caller:
        (contents,) = (await caller.ask("resources/read", uri="ui://plain"))["contents"]
        assert "_meta" not in contents


async def test_a_page_comes_from_a_file_or_a_function(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(PAGE, encoding="utf-8")

    async def made(ctx: Context) -> str:
        return f"<html>{ctx.method}</html>"

    def plain() -> str:
        return "<html>plain</html>"

    for html, text in ((file, PAGE), (made, "<html>resources/read</html>"), (plain, "<html>plain</html>")):
        async with calling(with_page(Ui("ui://page", html=html))) as caller:
            (contents,) = (await caller.ask("resources/read", uri="ui://page"))["contents"]
            assert contents["text"] == text


async def test_pages_reach_stateful_clients_too() -> None:
    async with talking(with_page(Ui("ui://page", html=PAGE))) as talk:
        (tool,) = (await talk.request("tools/list"))["tools"]
        assert tool["_meta"]["ui"] == {"resourceUri": "ui://page"}
        (contents,) = (await talk.request("resources/read", uri="ui://page"))["contents"]
        assert contents["mimeType"] == MIME_TYPE


async def test_tools_can_share_a_page_and_point_to_one_by_its_uri() -> None:
    page = Ui("ui://shared", html=PAGE)
    server = with_page(page)

    @server.tool(ui=page)
    async def again() -> str:
        return ""

    @server.tool(ui="ui://shared")
    async def by_uri() -> str:
        return ""

    async with calling(server) as caller:
        tools = (await caller.ask("tools/list"))["tools"]
        assert [tool["_meta"]["ui"]["resourceUri"] for tool in tools] == ["ui://shared"] * 3
        assert len((await caller.ask("resources/list"))["resources"]) == 1
    with pytest.raises(DeclarationError, match="share one"):

        @server.tool(ui=Ui("ui://shared", html=PAGE))
        async def other() -> str:
            return ""


async def test_pages_come_along_when_a_server_is_included() -> None:
    outer = with_page(Ui("ui://outer", html=PAGE))
    outer.include(with_page(Ui("ui://inner", html=PAGE)), prefix="in_")
    async with calling(outer) as caller:
        tools = {tool["name"]: tool["_meta"]["ui"]["resourceUri"] for tool in (await caller.ask("tools/list"))["tools"]}
        assert tools == {"show": "ui://outer", "in_show": "ui://inner"}
        assert (await caller.ask("resources/read", uri="ui://inner"))["contents"][0]["text"] == PAGE


async def test_a_tool_can_ask_whether_pages_are_shown() -> None:
    server = Server("asking")

    @server.tool
    async def look(ctx: Context) -> str:
        return str(apps_of(ctx))

    shows = {"extensions": {IDENTIFIER: Apps().client_settings()}}
    others = ({}, {"extensions": {IDENTIFIER: {}}}, {"extensions": {IDENTIFIER: {"mimeTypes": ["text/plain"]}}})
    async with calling(server) as caller:
        assert (await caller.call("look", shows))["content"][0]["text"] == "True"
        for capabilities in others:
            assert (await caller.call("look", capabilities))["content"][0]["text"] == "False"


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda: Ui("https://example.com", html=PAGE), "ui://name"),
        (lambda: Ui("ui://", html=PAGE), "ui://name"),
        (lambda: Ui("ui://{x}", html=PAGE), "ui://name"),
        (lambda: Ui("ui://x", html="page.html"), "html=Path"),
        (lambda: Ui("ui://x", html=Path("/does/not/exist.html")), "no file"),
        (lambda: Ui("ui://x", html=PAGE, permissions=["usb"]), "no permission usb"),
        (lambda: Ui("ui://x", html=PAGE, visibility=("everyone",)), "visibility"),  # type: ignore[arg-type]
        (lambda: Ui("ui://x", html=PAGE, domain="a b"), "not a domain"),
        (lambda: Csp(connect=["https://a.example; script-src *"]), "not an origin"),
        (lambda: Csp(connect=["https://a.example/path"]), "not an origin"),
        (lambda: Csp(connect=["https://user@a.example"]), "not an origin"),
        (lambda: Csp(resources=["'unsafe-eval'"]), "not an origin"),
        (lambda: Csp(resources=["*"]), "not an origin"),
        (lambda: Csp(frames="https://a.example"), "single string"),
        (lambda: with_page(5), "ui= is a Ui"),
        (lambda: with_page("nothing"), "ui= is a Ui"),
    ],
)
def test_a_wrong_page_is_refused_when_it_is_declared(make: Any, hint: str) -> None:
    with pytest.raises(DeclarationError, match=hint):
        make()


async def test_an_include_that_fails_takes_over_no_pages() -> None:
    outer, page = with_page(Ui("ui://outer", html=PAGE)), Ui("ui://inner", html=PAGE)
    with pytest.raises(DeclarationError, match="there is a tool 'show' already"):
        outer.include(with_page(page))

    @outer.tool(ui=page)
    async def another() -> str:
        return ""

    async with calling(outer) as caller:
        assert (await caller.ask("resources/read", uri="ui://inner"))["contents"][0]["text"] == PAGE


@pytest.mark.defect("D14")
async def test_a_page_function_gets_the_context_only_where_it_asks_for_it() -> None:
    async def with_default(theme: str = "dark") -> str:
        return f"<p>{theme}"

    def annotated(theme: str = "dark", ctx: Context | None = None, *, who: Context) -> str:
        return f"<p>{theme} {ctx is None} {who.uri}"

    def required(context) -> str:  # type: ignore[no-untyped-def]
        return f"<p>{context.uri}"

    def optional(theme: str = "dark", ctx: Context = None) -> str:  # type: ignore[assignment]
        return f"<p>{theme} {ctx.uri}"

    server = Server("apps")
    for number, html in enumerate((with_default, annotated, required, optional)):
        server.add_tool(show, name=f"t{number}", ui=Ui(f"ui://{number}", html=html))
    async with talking(server) as talk:
        texts = [
            (await talk.request("resources/read", uri=f"ui://{number}"))["contents"][0]["text"] for number in range(4)
        ]
    assert texts == ["<p>dark", "<p>dark True ui://1", "<p>ui://2", "<p>dark ui://3"]


async def show() -> str:
    return "shown"


@pytest.mark.defect("D23")
async def test_a_page_goes_with_its_last_tool_and_can_be_replaced() -> None:
    server, page = Server("apps"), Ui("ui://page", html="<p>one")
    server.add_tool(show, name="one", ui=page)
    server.add_tool(show, name="two", ui=page)
    async with talking(server) as talk:

        async def pages() -> list[str]:
            return [resource["uri"] for resource in (await talk.request("resources/list"))["resources"]]

        server.remove_tool("one")
        assert await pages() == ["ui://page"]
        server.remove_tool("two")
        assert await pages() == []
        server.add_tool(show, name="three", ui=Ui("ui://page", html="<p>two"))
        (contents,) = (await talk.request("resources/read", uri="ui://page"))["contents"]
        assert contents["text"] == "<p>two"


async def test_a_page_is_seen_by_those_who_see_one_of_its_tools() -> None:
    def staff(ctx: Context) -> bool:
        return bool(ctx.client_capabilities.sampling)

    server, page = Server("apps"), Ui("ui://page", html="<p>one")
    server.add_resource("other://", show)
    server.add_tool(show, name="for_everyone", ui=page)
    server.add_tool(show, name="for_staff", ui=page, visible=staff)
    server.add_tool(show, name="secret", ui=Ui("ui://secret", html="<p>"), visible=staff)
    async with open_server(server) as join, join() as guest, join(capabilities={"sampling": {}}) as member:

        async def pages(talk: Talk) -> list[str]:
            uris = [resource["uri"] for resource in (await talk.request("resources/list"))["resources"]]
            return [uri for uri in uris if uri.startswith("ui://")]

        assert await pages(guest) == ["ui://page"]
        assert sorted(await pages(member)) == ["ui://page", "ui://secret"]
        assert "not found" in (await refusal(guest, "resources/read", uri="ui://secret")).message
        server.remove_tool("for_everyone")
        assert await pages(guest) == []
        assert sorted(await pages(member)) == ["ui://page", "ui://secret"]
