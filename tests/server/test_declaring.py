"""A wrong declaration is refused at once, and the error says how to fix it."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from mcptrio import Context, DeclarationError, Server, connect
from mcptrio._eras.choose import ERAS
from tests.server.talk import refusal, talking

if TYPE_CHECKING:
    from decimal import Decimal


async def ok() -> str:
    return ""


async def no_annotation(x) -> str:  # type: ignore[no-untyped-def]
    return ""


async def a_socket(x: socket.socket) -> str:
    return ""


async def star(*args: int) -> str:
    return ""


async def two_stars(**kwargs: int) -> str:
    return ""


async def positional(x: int, /) -> str:
    return ""


async def two_contexts(a: Context, b: Context) -> str:
    return ""


async def only_for_checkers(x: Decimal) -> str:
    return ""


async def gives_a_socket() -> socket.socket: ...


async def yields() -> AsyncIterator[str]:
    yield ""


def yields_too() -> Iterator[str]:
    yield ""


async def bare_context(ctx) -> str:  # type: ignore[no-untyped-def]
    return ""


class Desk:
    async def method(self, x: str) -> str:
        return x


async def one(x: str) -> str:
    return ""


async def two(x: str, y: str) -> str:
    return ""


TOOLS: list[tuple[str, Callable[..., Any], dict[str, Any], str]] = [
    ("a name with spaces", ok, {"name": "two words"}, "'two words' is not a valid tool name: use 1 to 128 letters"),
    ("an empty name", ok, {"name": "é"}, "is not a valid tool name"),
    ("a long name", ok, {"name": "x" * 129}, "is not a valid tool name"),
    ("a lambda", lambda: "", {}, "a lambda has no name; pass name="),
    ("no annotation", no_annotation, {}, "`x` of `no_annotation` has no annotation; write for example `x: str`"),
    ("no annotation of the context", bare_context, {}, "write `ctx: Context`"),
    ("a method of no object", Desk.method, {}, r"declare the method of an object.*server.tool\(thing.method\)"),
    ("an async generator", yields, {}, "tool 'yields': `yields` yields, and there is one answer; return it"),
    ("a generator", yields_too, {}, "`yields_too` yields, and there is one answer; return it"),
    ("no JSON form", a_socket, {}, "tool 'a_socket': parameter `x` of `a_socket`: "),
    ("*args", star, {}, r"take `args: list\[…\]` instead"),
    ("**kwargs", two_stars, {}, r"name each one, or take `kwargs: dict\[str, …\]` instead"),
    ("positional-only", positional, {}, "remove the `/`"),
    ("two contexts", two_contexts, {}, "takes the context twice, as `a` and `b`; keep one"),
    ("TYPE_CHECKING", only_for_checkers, {}, "`Decimal` of `only_for_checkers` cannot be found; import it for real"),
    ("no JSON result", gives_a_socket, {}, "or annotate it with Any to send it as text"),
    ("inline and async", ok, {"inline": True}, "inline=True is for plain functions"),
    ("a schema that is no object", one, {"input_schema": {"type": "string"}}, '"type": "object" at its root'),
    ("a schema that is none", one, {"input_schema": {"type": "object", "properties": 7}}, "tool 'one': "),
    ("two parameters by hand", two, {"input_schema": {"type": "object"}}, "takes one parameter .*, not 2: x, y"),
    ("none by hand", ok, {"input_schema": {"type": "object"}}, "takes one parameter .*, not 0: none"),
]


@pytest.mark.parametrize(("fn", "options", "text"), [row[1:] for row in TOOLS], ids=[row[0] for row in TOOLS])
def test_a_tool_that_cannot_be_one_is_refused_with_a_hint(
    fn: Callable[..., Any], options: dict[str, Any], text: str
) -> None:
    server = Server("x")
    with pytest.raises(DeclarationError, match=text):
        server.add_tool(fn, **options)
    assert len(server._app.tools.registry) == 0


async def test_a_method_of_an_object_is_a_tool() -> None:
    server = Server("x")
    server.tool(Desk().method)
    async with talking(server) as talk:
        assert await talk.text("method", x="3") == "3"


def test_a_resource_without_its_uri_is_refused_with_a_hint() -> None:
    with pytest.raises(DeclarationError, match=r'write @server.resource\("notes://today"\)'):
        Server("x").resource(ok)  # type: ignore[arg-type]


async def test_a_server_is_not_run_inside_trio() -> None:
    with pytest.raises(DeclarationError, match=r"await nursery.start\(server.serve_http\)"):
        Server("x").run("http")


async def test_a_wrong_return_value_is_logged_with_a_hint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def forgets() -> Any:
        class Later:
            def __await__(self) -> Iterator[None]:
                yield

        return Later()

    async def counts() -> Any:
        return 3

    server = Server("x")
    server.tool(forgets)
    server.prompt(counts)
    async with talking(server) as talk:
        await talk.fault("forgets")
        await refusal(talk, "prompts/get", name="counts")
    assert "a value of type Later was returned: an `await` is missing" in caplog.text
    assert "prompt 'counts' returned a value of type int; return a text, a Message, or a list of these" in caplog.text


RESOURCES: list[tuple[str, str, Callable[..., Any], dict[str, Any], str]] = [
    ("no scheme", "today", ok, {}, "begins with a scheme, as in notes://today"),
    ("a variable too many", "n://{x}/{y}", one, {}, "the template has y, which the function does not take"),
    ("a variable too few", "n://{x}", two, {}, "the function needs y, which the template does not give"),
    ("no variables at all", "n://x", one, {}, "the function needs x, which the URI, which has no variables"),
    ("broken braces", "n://{x", one, {}, "resource 'n://{x': "),
    ("the size of a template", "n://{x}", one, {"size": 3}, "a template has no size of its own"),
    (
        "an option that there is not",
        "n://{x}",
        one,
        {"mime": "a/b"},
        "there is no resource option 'mime'; did you mean mime_type",
    ),
]


@pytest.mark.parametrize(
    ("uri", "fn", "options", "text"), [row[1:] for row in RESOURCES], ids=[row[0] for row in RESOURCES]
)
def test_a_resource_that_cannot_be_one_is_refused_with_a_hint(
    uri: str, fn: Callable[..., Any], options: dict[str, Any], text: str
) -> None:
    with pytest.raises(DeclarationError, match=text):
        Server("x").add_resource(uri, fn, **options)


def test_names_and_uris_are_taken_once() -> None:
    server = Server("x")
    server.add_tool(ok)
    server.add_prompt(ok)
    server.add_resource("n://", ok)
    server.add_resource("n://{x}", one)
    for add, kind in (
        (lambda: server.add_tool(ok), "tool 'ok'"),
        (lambda: server.add_prompt(ok), "prompt 'ok'"),
        (lambda: server.add_resource("n://", ok), "resource 'n://'"),
        (lambda: server.add_resource("n://{x}", one), "template 'n://{x}'"),
    ):
        with pytest.raises(DeclarationError, match=f"there is a {kind} already; give one of the two another name"):
            add()
    with pytest.raises(DeclarationError, match="there is no tool 'none' to remove"):
        server.remove_tool("none")
    server.remove_tool("ok")
    server.add_tool(ok)


def test_completion_is_declared_for_arguments_that_exist() -> None:
    server = Server("x")
    plain = server.add_resource("n://", ok)
    with pytest.raises(DeclarationError, match="<resource ok> has no arguments to complete"):
        plain.complete("x")
    prompt = server.add_prompt(one)
    with pytest.raises(DeclarationError, match="<prompt one> has no argument 'y'; it has x"):
        prompt.complete("y")
    with pytest.raises(DeclarationError, match="takes `prefix: str`"):
        prompt.complete("x")(ok)
    with pytest.raises(DeclarationError, match="takes `prefix: str`"):
        prompt.complete("x")(two)


async def test_a_declared_prompt_or_resource_can_still_be_called() -> None:
    server = Server("x")

    @server.prompt
    async def greet(name: str) -> str:
        return f"Hello {name}"

    @server.resource("n://{name}")
    def note(name: str) -> str:
        return f"Note {name}"

    assert await greet("Ada") == "Hello Ada"
    assert note(name="Ada") == "Note Ada"


def test_there_is_one_session_function_and_one_for_roots() -> None:
    server = Server("x")

    @server.session
    async def first(session: Any) -> AsyncIterator[None]:
        yield

    @server.on_roots_changed
    async def changed(ctx: Context) -> None: ...

    with pytest.raises(DeclarationError, match="there is a session function already"):
        server.session(first)
    with pytest.raises(DeclarationError, match="there is a function for changed roots already"):
        server.on_roots_changed(changed)


def test_functions_of_the_wrong_kind_are_refused() -> None:
    server = Server("x")

    async def returns(session: Any) -> None: ...

    def plain(session: Any) -> Iterator[None]:
        yield

    for fn in (returns, plain):
        with pytest.raises(DeclarationError, match="a session function is async and yields once"):
            server.session(fn)
    with pytest.raises(DeclarationError, match="must be async: async def roots_changed"):
        server.on_roots_changed(lambda ctx: None)
    with pytest.raises(DeclarationError, match="the handler of 'x/y' must be async"):
        server.route("x/y", lambda ctx, params: {})


def test_a_method_is_routed_once() -> None:
    server = Server("x")

    async def handler(ctx: Any, params: Any) -> Any: ...

    server.route("tools/list", handler)
    with pytest.raises(DeclarationError, match="there is a route for 'tools/list' already"):
        server.route("tools/list", handler)


@pytest.mark.parametrize("page_size", [0, -1, {"tools": 0}])
def test_a_page_size_below_one_is_refused(page_size: Any) -> None:
    with pytest.raises(DeclarationError, match="page_size is a whole number of at least 1"):
        Server("x", page_size=page_size)


async def test_annotations_as_text_are_found_where_the_function_is_declared() -> None:
    """This file begins with `from __future__ import annotations`: every annotation here is a string."""

    @dataclass
    class Local:
        x: int

    def declare(server: Server) -> None:
        @dataclass
        class Inner:
            y: int

        @server.tool
        async def bare(inner: Inner) -> Inner:
            return inner

        @server.tool(name="optioned")
        async def optioned(inner: Inner, ctx: Context) -> int:
            return inner.y

        async def added(inner: Inner) -> int:
            return inner.y

        async def by_hand(arguments: dict[str, Any], ctx: Context) -> Inner:
            return Inner(arguments["y"])

        async def prompted(inner: Inner) -> str:
            return str(inner.y)

        server.add_tool(added)
        server.add_tool(by_hand, input_schema={"type": "object"})
        server.add_prompt(prompted)
        server.add_resource("n://{inner}", prompted)

    server = Server("local")

    @server.tool
    async def outer(local: Local) -> int:
        return local.x

    declare(server)
    async with talking(server) as talk:
        assert await talk.text("outer", local={"x": 1}) == "1"
        assert (await talk.call("bare", {"inner": {"y": 2}}))["structuredContent"] == {"y": 2}
        assert await talk.text("optioned", inner={"y": 3}) == "3"
        assert await talk.text("added", inner={"y": 4}) == "4"
        assert (await talk.call("by_hand", {"y": 5}))["structuredContent"] == {"y": 5}
        got = await talk.request("prompts/get", name="prompted", arguments={"inner": '{"y": 6}'})
        assert got["messages"][0]["content"]["text"] == "6"


@pytest.mark.parametrize("date", list(ERAS))
async def test_extensions_are_declared_at_the_dates_that_have_them(date: str) -> None:
    """2026-07-28 has `extensions` among the capabilities of both sides; the schemas before it do not."""
    server = Server("s")

    @server.tool(task=True)
    async def slow() -> str:
        return "done"

    async with connect(server, protocol=date) as client:
        declared = client.capabilities.extensions
    assert declared == ({"io.modelcontextprotocol/tasks": {}} if date >= "2026-07-28" else None)
