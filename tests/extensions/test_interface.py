"""The interface of extensions, seen by the author of one; and that nothing is imported before it is used."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from mcptrio import Context, DeclarationError, Server
from mcptrio._actors.router import Route
from mcptrio.extensions import Extension, Heard, Notify, Proceed
from mcptrio.extensions.tasks import Tasks

from .kit import calling, open_runtime, settled, visit


class Shouting(Extension):
    """Results in capitals, a method, a notification."""

    identifier: ClassVar[str] = "org.example/shouting"
    tool_options: ClassVar[frozenset[str]] = frozenset({"shout"})

    def __init__(self) -> None:
        self.notifiers: list[Notify] = []
        self.closed = 0

    def settings(self) -> Mapping[str, Any]:
        return {"volume": 11}

    def routes(self) -> Iterable[Route]:
        return (Route("shouting/echo", None, self.echo),)

    async def echo(self, ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
        return {"said": params["say"].upper()}

    def tool(self, entry: Any, option: str, value: Any) -> Any:
        return replace(entry, around=self._shout) if value else entry

    async def _shout(self, ctx: Context, proceed: Proceed) -> Any:
        result = await proceed(ctx)
        return {**result, "content": [{"type": "text", "text": block["text"].upper()} for block in result["content"]]}

    async def listen(self, ctx: Context, wanted: Mapping[str, Any]) -> Heard | None:
        if "shouts" not in wanted:
            return None

        def begin(notify: Notify) -> Callable[[], None]:
            self.notifiers.append(notify)
            return self._close

        return Heard(honoured={"shouts": True}, begin=begin)

    def _close(self) -> None:
        self.closed += 1


def loud(extension: Shouting) -> Server:
    server = Server("loud")
    server.add_extension(extension)

    @server.tool(shout=True)  # type: ignore[call-overload]
    async def hello() -> str:
        return "hello"

    return server


async def test_an_extension_adds_methods_options_and_what_is_declared() -> None:
    async with calling(loud(Shouting())) as caller:
        capabilities = (await caller.ask("server/discover"))["capabilities"]
        assert capabilities["extensions"] == {"org.example/shouting": {"volume": 11}}
        assert (await caller.ask("shouting/echo", say="hey"))["said"] == "HEY"
        assert (await caller.call("hello"))["content"][0]["text"] == "HELLO"


async def test_an_extension_speaks_on_listen_streams() -> None:
    extension = Shouting()
    async with open_runtime(loud(extension)) as runtime, visit(runtime) as caller:
        request = await caller.begin("subscriptions/listen", notifications={"shouts": True})
        await settled()
        (notify,) = extension.notifiers
        notify("notifications/shouts", {"loud": True})
        await settled()
        assert caller.talk.notified[0][1]["notifications"] == {"shouts": True}
        (shout,) = caller.talk.heard("notifications/shouts")
        assert shout["loud"] is True
        assert shout["_meta"] == {"io.modelcontextprotocol/subscriptionId": request}
        await caller.talk.notify("notifications/cancelled", requestId=request)
        await settled()
        assert extension.closed == 1


async def test_two_extensions_do_not_share_a_name_an_option_or_a_method() -> None:
    server = loud(Shouting())
    with pytest.raises(DeclarationError, match="already"):
        server.add_extension(Shouting())

    class Other(Shouting):
        identifier: ClassVar[str] = "org.example/other"

    with pytest.raises(DeclarationError, match="shout="):
        server.add_extension(Other())


async def test_an_unknown_option_of_an_extension_is_refused() -> None:
    server = Server("typo")
    with pytest.raises(DeclarationError, match="no tool option 'tusk'"):

        @server.tool(tusk=True)  # type: ignore[call-overload]
        async def wrong() -> str:
            return ""


async def test_a_tool_that_is_refused_leaves_its_name_free() -> None:
    server = Server("again")
    with pytest.raises(DeclarationError):

        @server.tool(name="x", task="wrong")  # type: ignore[arg-type]
        async def wrong() -> str:
            return ""

    @server.tool(name="x", task=True)
    async def right() -> str:
        return ""

    assert server.capabilities().extensions == {Tasks.identifier: {}}


def test_importing_mcptrio_and_a_plain_server_imports_no_extension() -> None:
    code = (
        "import sys, mcptrio\n"
        "server = mcptrio.Server('x')\n"
        "@server.tool\n"
        "def f() -> str: return ''\n"
        "print([m for m in sys.modules if m.startswith('mcptrio.extensions') or m == 'yaml'])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    assert found.strip() == "[]"
