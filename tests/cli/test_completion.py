"""Completion with Tab in `mcptrio shell`."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from mcptrio import Server, connect
from mcptrio.cli.completion import Completer, TemplatePosition, position


def make_server() -> Server:
    server = Server("desk")

    @server.tool
    async def order(item: str, size: Literal["small", "large"] | None = None, express: bool = False) -> str:
        return item

    @server.tool
    async def refund(order_id: int) -> str:
        return "done"

    @server.resource("shop://index")
    async def index() -> str:
        return "index"

    @server.resource("shop://{city}/items/{item}")
    async def item(city: str, item: str) -> str:
        return item

    @item.complete("city")
    async def cities(prefix: str) -> list[str]:
        return [city for city in ("lisbon", "lima", "oslo") if city.startswith(prefix)]

    @item.complete("item")
    async def items(prefix: str, arguments: dict[str, str]) -> list[str]:
        return [f"{arguments['city']}-1", "other"]

    @server.prompt
    def complain(about: str, tone: str = "calm") -> str:
        return about

    @complain.complete("tone")
    async def tones(prefix: str, arguments: dict[str, str]) -> list[str]:
        known = ("calm", "curt", "very curt", f"as-{arguments.get('about')}")
        return [tone for tone in known if tone.startswith(prefix)]

    return server


@pytest.mark.parametrize(
    ("before", "word", "expected"),
    [
        ("", "", ["call ", "read ", "prompt ", "list ", "help ", "quit "]),
        ("", "c", ["call "]),
        ("", "x", []),
        ("call ", "", ["order ", "refund "]),
        ("call ", "re", ["refund "]),
        ("call order ", "", ["item=", "size=", "express="]),
        ("call order size=small ", "", ["item=", "express="]),
        ("call order ", "size=", ["size=small ", "size=large "]),
        ("call order ", "size=l", ["size=large "]),
        ("call order ", "express=", ["express=true ", "express=false "]),
        ("call order ", "item=", []),
        ("call order ", "nope=", []),
        ("call nope ", "", []),
        ("prompt ", "", ["complain "]),
        ("prompt complain ", "", ["about=", "tone="]),
        ("prompt complain ", "tone=c", ["tone=calm ", "tone=curt "]),
        ("prompt complain ", "tone=v", ["tone='very curt' "]),
        ("prompt complain about=x ", "tone=as", ["tone=as-x "]),
        ("prompt nope ", "", []),
        ("read ", "", ["shop://index", "shop://"]),
        ("read ", "shop://", ["shop://index", "shop://lisbon/items/", "shop://lima/items/", "shop://oslo/items/"]),
        ("read ", "shop://li", ["shop://lisbon/items/", "shop://lima/items/"]),
        ("read ", "shop://oslo/it", ["shop://oslo/items/"]),
        ("read ", "shop://oslo/items/", ["shop://oslo/items/oslo-1", "shop://oslo/items/other"]),
        ("read ", "other://", []),
        ("list ", "", []),
        ("nope ", "", []),
    ],
)
async def test_tab_suggests_what_may_come_next(before: str, word: str, expected: list[str]) -> None:
    async with connect(make_server()) as client:
        assert await Completer(client).suggest(before, word) == expected


@pytest.mark.parametrize("before", ["call ", "read ", "prompt ", "prompt x "])
async def test_a_server_that_lacks_something_suggests_nothing(before: str) -> None:
    async with connect(Server("empty")) as client:
        assert await Completer(client).suggest(before, "") == []
        assert await Completer(client).suggest(before, "a=") == []


@pytest.mark.parametrize(
    ("template", "uri", "expected"),
    [
        ("a://{x}", "", (0, "a://", None)),
        ("a://{x}", "a:", (0, "a://", None)),
        ("a://{x}", "a://", (4, "", "x")),
        ("a://{x}", "a://b", (4, "", "x")),
        ("a://{x}/c", "a://b", (4, "/c", "x")),
        ("a://{x}/c", "a://b/", (5, "/c", None)),
        ("a://{x}/c", "a://b/c", (5, "/c", None)),
        ("a://{x}/c", "a://b/d", None),
        ("a://{x}/c", "a://b/cc", None),
        ("a://{x}/{y}", "a://b/c", (6, "", "y")),
        ("a://{x}{?q}", "a://b", (4, "", "x")),
        ("a://{+path}", "a://", None),
        ("b://{x}", "a://", None),
    ],
)
def test_the_position_in_a_half_written_uri_is_found(template: str, uri: str, expected: Any) -> None:
    found = position(template, uri)
    assert (found and (found.start, found.literal, found.variable)) == expected


def test_completion_gets_the_values_of_earlier_variables() -> None:
    assert position("a://{x}/{y}", "a://b/c") == TemplatePosition(6, "", "y", {"x": "b"})
