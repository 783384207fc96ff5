"""Names of FastMCP and of the official SDK: the error says what to write instead."""

from __future__ import annotations

import re
from typing import Any

import pytest

import mcptrio
from mcptrio import Client, Context, DeclarationError, Server, connect
from mcptrio._hints import HINTS
from mcptrio.cli.run import main

SERVER = Server("shop")


@pytest.mark.defect("U6")
@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        ("from mcptrio import FastMCP", "cannot import name 'FastMCP' from 'mcptrio': the class is `mcptrio.Server`"),
        ("from mcptrio import ClientSession", "connect to a server with `async with mcptrio.connect"),
        ("from mcptrio import McpError", "the class is `mcptrio.MCPError`"),
        ("from mcptrio import TextContent", "use `from mcptrio.types import TextContent`"),
        ("from mcptrio import Principal", "use `from mcptrio.auth.server import Principal`"),
        ("from mcptrio import INVALID_PARAMS", "use `from mcptrio.errors import INVALID_PARAMS`"),
        ("from mcptrio import SqliteStore", "use `from mcptrio.stores.sqlite import SqliteStore`"),
        ("from mcptrio.server import Server", "use `from mcptrio import Server`"),
        ("from mcptrio.server import FastMCP", "the class is `mcptrio.Server`"),
    ],
)
def test_an_import_of_another_package_is_explained(statement: str, hint: str) -> None:
    with pytest.raises(ImportError, match=re.escape(hint)):
        exec(statement)


@pytest.mark.parametrize("module", ["mcptrio", "mcptrio.server"])
def test_an_unknown_name_is_simply_missing(module: str) -> None:
    with pytest.raises(ImportError, match="cannot import name 'Toolbox' from"):
        exec(f"from {module} import Toolbox")
    assert not hasattr(mcptrio, "Toolbox")
    assert not hasattr(mcptrio, "toolbox")


@pytest.mark.defect("U6")
@pytest.mark.parametrize(
    ("thing", "name", "hint"),
    [
        (SERVER, "mount", 'use `server.include(other, prefix="other_")`'),
        (SERVER, "add_middleware", "use `server.use(middleware)`"),
        (SERVER, "streamable_http_app", "use `server.asgi()`"),
        (SERVER, "call_tool", "then `client.call_tool(...)`"),
        (SERVER, "call_tool", "to answer such requests yourself, use `@server.route(method)`"),
        (SERVER, "session_manager", "the application of `server.asgi()` runs in its own lifespan"),
        (SERVER, "name", "use `server.info.name`"),
        (connect(SERVER), "send_ping", "use `await client.ping()`"),
        (Context(None, None), "session_id", "use `ctx.session.id`"),
        (Context(None, None), "critical", 'use `await ctx.log("critical", ...)`'),
    ],
)
def test_an_attribute_of_another_package_is_explained(thing: Any, name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(f"{type(thing).__name__!r} object has no attribute {name!r}: ")):
        getattr(thing, name)
    with pytest.raises(AttributeError, match=re.escape(hint)):
        getattr(thing, name)
    assert not hasattr(thing, name)


def test_an_unknown_attribute_is_left_to_python_to_explain() -> None:
    with pytest.raises(AttributeError, match=r"^'Server' object has no attribute 'tol'$") as caught:
        SERVER.tol  # type: ignore[attr-defined]  # noqa: B018
    assert caught.value.name == "tol"
    assert caught.value.obj is SERVER, "Python suggests the names of this object"


def test_a_property_that_fails_raises_its_own_error() -> None:
    """It fails on a context without a session, which only this test makes."""
    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'start'"):
        Context(None, None).request_id  # noqa: B018


def test_progress_has_both_names() -> None:
    assert Context.report_progress is Context.progress


def test_the_transport_of_the_official_sdk_is_called_http_here(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(
        DeclarationError, match=r"unknown transport 'streamable-http': use stdio, http or sse \(it is http\)"
    ):
        SERVER.run("streamable-http")  # type: ignore[arg-type]
    with pytest.raises(SystemExit):
        main(["server.py", "--transport", "streamable-http"])
    assert "unknown transport 'streamable-http': use stdio, http or sse (it is http)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("sampling_handler", "a client has no setting 'sampling_handler'; it is sample="),
        ("logging_callback", "a client has no setting 'logging_callback'; it is log="),
        ("tiemout", "a client has no setting 'tiemout'; did you mean timeout?"),
    ],
)
def test_a_client_option_of_another_package_is_explained(option: str, hint: str) -> None:
    options: Any = {option: print}
    with pytest.raises(DeclarationError, match=re.escape(hint)):
        connect(SERVER, **options)


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        (
            "annotations",
            "they are options of their own: read_only, destructive, idempotent, open_world, title. There are",
        ),
        ("read_onyl", "did you mean read_only? There are"),
        ("colour", "there is no tool option 'colour'; there are"),
    ],
)
def test_a_tool_option_of_another_package_is_explained(option: str, hint: str) -> None:
    options: Any = {option: True}
    with pytest.raises(DeclarationError, match=re.escape(hint)):
        Server("shop").tool(**options)(print_it)


def print_it(text: str) -> None: ...


def test_a_http_setting_of_another_package_is_explained() -> None:
    for option, hint in [("json_response", "json_only"), ("event_store", "store")]:
        options: Any = {option: True}
        with pytest.raises(DeclarationError, match=f"unknown HTTP setting {option}; it is {hint}="):
            SERVER.asgi(**options)


def test_the_decorators_are_written_with_and_without_parentheses() -> None:
    server = Server("shop")
    server.tool()(print_it)
    server.prompt()(complaint)
    assert set(server._app.tools.registry.entries) == {"print_it"}
    with pytest.raises(DeclarationError, match=re.escape("a name is an option: @server.tool(name='refund')")):
        server.tool("refund")  # type: ignore[call-overload]
    with pytest.raises(DeclarationError, match=re.escape("a name is an option: @server.prompt(name='refund')")):
        server.prompt("refund")  # type: ignore[call-overload]


def complaint() -> str:
    return "It broke."


WHERE = {"server": Server, "ctx": Context, "client": Client, "mcptrio": mcptrio}
KINDS = {"server": Server, "context": Context, "client": Client, "module": mcptrio}


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in HINTS.items() for name in names])
def test_a_hint_is_for_a_missing_name_and_names_existing_ones(kind: str, name: str) -> None:
    if kind in KINDS:
        assert name not in dir(KINDS[kind])
    if kind == "module":
        with pytest.raises(ImportError, match=f"cannot import name '{name}' from 'mcptrio': "):
            getattr(mcptrio, name)
    for owner, member in re.findall(
        r"\b(server|ctx|client|mcptrio)\.(\w+|\{name\})", HINTS[kind][name].replace("server.py", "")
    ):
        member = member.replace("{name}", name)
        assert member in {*dir(WHERE[owner]), "auth", "extensions", "stores", "types"}, f"there is no {owner}.{member}"


def test_a_client_in_a_plain_with_statement_names_the_two_that_work() -> None:
    client: Any = connect(SERVER)
    with pytest.raises(TypeError, match=r"`async with`.*mcptrio\.blocking\.connect"), client:
        pass
