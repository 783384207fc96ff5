"""Every error that the troubleshooting page quotes is provoked here, and says what the page says."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import socket
import ssl
import threading
import warnings
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import trio
import trustme

from mcptrio import Context, HttpConfig, Server, connect
from mcptrio._actors.outbox import Outbox
from mcptrio._actors.unread import OF_ONE_OWNER
from mcptrio.cli.load import LoadError, load_server
from mcptrio.errors import CapabilityMissing, ConnectionLost, DeclarationError
from mcptrio.transports.http_server.endpoint.message import Plain
from tests.transports.app_for_tests import exchange, head, initialize, open_endpoint, request

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "troubleshooting.md"
NO_ERRORS = {"ctx.state", "Origin"}
"""Words in code type that are no quotations."""


def quotations() -> list[str]:
    """Return the texts in code type of the first column of each table."""
    cells = [line.split(" | ")[0] for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    found = [text for cell in cells for text in re.findall(r"`([^`]+)`", cell)]
    return [text for text in found if text not in NO_ERRORS]


Provoke = Callable[[pytest.LogCaptureFixture], Awaitable[str]]


async def no_server_in_a_file(caplog: pytest.LogCaptureFixture) -> str:
    try:
        load_server(__file__)
    except LoadError as error:
        return str(error)
    return ""


async def a_forgotten_import(caplog: pytest.LogCaptureFixture) -> str:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "forgetful.py"
        file.write_text("MINE = Context[dict, dict]\n")
        try:
            load_server(str(file))
        except LoadError as error:
            return str(error)
    return ""


async def a_port_in_use(caplog: pytest.LogCaptureFixture) -> str:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        try:
            await Server("x").serve_http(port=busy.getsockname()[1])
        except OSError as error:
            return str(error)
    return ""


async def asyncio_without_trio(caplog: pytest.LogCaptureFixture) -> str:
    def run() -> str:
        try:
            asyncio.run(Server("x").serve_http())
        except DeclarationError as error:
            return str(error)
        return ""

    return await trio.to_thread.run_sync(run)


async def scopes_without_authentication(caplog: pytest.LogCaptureFixture) -> str:
    server = Server("x")
    server.tool(scopes=["read"])(make_tool("greet"))
    try:
        await server.serve_http(port=0)
    except DeclarationError as error:
        return str(error)
    return ""


def make_tool(name: str) -> Callable[[], str]:
    def tool() -> str:
        raise ValueError(name)

    return tool


async def call(tool: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> str:
    """Call a tool over HTTP; return its result, the log and the warnings."""
    server = Server("x")
    server.tool(tool)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with trio.open_nursery() as nursery:
            addresses = await nursery.start(partial(server.serve_http, port=0))
            async with connect(f"{addresses[0].url}/mcp") as client:
                result = await client.call_tool(tool.__name__)
            nursery.cancel_scope.cancel()
        gc.collect()
    logged = [f"{record.getMessage()} {record.exc_info and record.exc_info[1]}" for record in caplog.records]
    return "\n".join([result.text, *logged, *(str(warning.message) for warning in caught)])


async def an_exception_of_a_tool(caplog: pytest.LogCaptureFixture) -> str:
    return await call(make_tool("unexpected"), caplog)


async def a_forgotten_await(caplog: pytest.LogCaptureFixture) -> str:
    async def report(ctx: Context) -> str:
        ctx.progress(1, 2)
        return "done"

    return await call(report, caplog)


async def an_asyncio_library(caplog: pytest.LogCaptureFixture) -> str:
    async def fetch() -> str:
        return str(await asyncio.sleep(1))

    return await call(fetch, caplog)


async def a_blocked_loop(caplog: pytest.LogCaptureFixture) -> str:
    logged = threading.Event()
    listener = logging.Handler()
    listener.emit = lambda record: logged.set()  # type: ignore[method-assign]

    async def block() -> str:
        logged.wait(10)  # ends when the watchdog has said so
        return "done"

    watchdog = logging.getLogger("mcptrio.watchdog")
    watchdog.addHandler(listener)
    try:
        return await call(block, caplog)
    finally:
        watchdog.removeHandler(listener)


async def a_client_that_cannot_be_asked(caplog: pytest.LogCaptureFixture) -> str:
    async def ask(ctx: Context) -> str:
        try:
            await ctx.elicit("Sure?", {"type": "object", "properties": {"ok": {"type": "boolean"}}})
        except CapabilityMissing as error:
            return type(error).__name__
        return ""

    return await call(ask, caplog)


async def another_path(caplog: pytest.LogCaptureFixture) -> str:
    return await get("/nothing")


async def a_browser(caplog: pytest.LogCaptureFixture) -> str:
    return await get("/mcp", accept="text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")


async def get(path: str, **headers: str) -> str:
    async with open_endpoint(HttpConfig()) as endpoint:
        refusal = endpoint.refuse_early(head("GET", path, **headers))
    return "" if refusal is None else refusal.body.decode()


async def answers_that_are_not_read(caplog: pytest.LogCaptureFixture) -> str:
    async with open_endpoint(HttpConfig()) as endpoint:
        opening = await exchange(endpoint, head(), initialize())
        session = dict(opening.headers)[b"mcp-session-id"].decode()
        other = Outbox(unread=endpoint.admission.unread, owner=head().owner)
        other.put(b"x" * OF_ONE_OWNER * endpoint.config.max_outbox_memory)
        call = request(1, "echo", say="x", times=100_000)
        reply = await exchange(endpoint, head(mcp_session_id=session), call)
        assert isinstance(reply, Plain)
        return f"{reply.status} {reply.body.decode()}"


async def an_unknown_authority(caplog: pytest.LogCaptureFixture) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)

    async def accept(stream: trio.SSLStream[trio.SocketStream]) -> None:
        with suppress(trio.BrokenResourceError):
            await stream.do_handshake()

    text = ""
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_ssl_over_tcp, accept, 0, context, host="127.0.0.1"))
        port = listeners[0].transport_listener.socket.getsockname()[1]
        try:
            async with connect(f"https://127.0.0.1:{port}/mcp"):
                pass
        except ConnectionLost as error:
            text = str(error)
        nursery.cancel_scope.cancel()
    return text


PROVOKED: dict[str, Provoke] = {
    "no Server found": no_server_in_a_file,
    "NameError: name 'Context' is not defined; is … missing?": a_forgotten_import,
    "Address already in use": a_port_in_use,
    "serve_http() needs Trio": asyncio_without_trio,
    "declares scopes …, but has no authentication": scopes_without_authentication,
    "The tool failed. The server log has the details.": an_exception_of_a_tool,
    "coroutine … was never awaited": a_forgotten_await,
    "it awaited an asyncio library": an_asyncio_library,
    "no running event loop": an_asyncio_library,
    "the event loop is blocked by …": a_blocked_loop,
    "CapabilityMissing": a_client_that_cannot_be_asked,
    "this is an MCP endpoint, not a web page": a_browser,
    "nothing is served here": another_path,
    "the call has run, but its answer was dropped, because too many answers wait": answers_that_are_not_read,
    "its certificate is not trusted": an_unknown_authority,
}


def test_every_quoted_error_is_provoked() -> None:
    assert sorted(quotations()) == sorted(PROVOKED)


@pytest.mark.parametrize("quotation", PROVOKED)
async def test_a_quoted_error_is_what_a_user_sees(quotation: str, caplog: pytest.LogCaptureFixture) -> None:
    seen = await PROVOKED[quotation](caplog)
    assert re.search(".+".join(map(re.escape, quotation.split("…"))), seen), seen
