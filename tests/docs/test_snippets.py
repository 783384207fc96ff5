"""Every piece of code in the documentation does what its page says."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pytest
import trio
from trio.testing import MockClock

from mcptrio import Context, MCPTrioError, Server, connect, jsonrpc
from mcptrio._eras.choose import ERAS
from mcptrio._eras.stateless import CAPABILITIES, CLIENT_INFO, VERSION
from mcptrio.stores.sqlite import SqliteStore
from mcptrio.transports.http_server.config import HttpConfig
from mcptrio.transports.http_server.endpoint.endpoint import Endpoint
from mcptrio.transports.memory.server import open_memory_link
from tests.e2e.oauth_mock import Mock
from tests.e2e.raw_peer import serving
from tests.e2e.test_oauth_client import Person
from tests.redis_server import RedisServer
from tests.server.talk import EVERYTHING, Talk, open_server, refusal, talking
from tests.transports.app_for_tests import Client, request, result_of

SNIPPETS = Path(__file__).resolve().parents[2] / "docs" / "snippets"
STATELESS = next(date for date, era in ERAS.items() if not era.stateful)
Json = dict[str, Any]


@pytest.fixture
def load() -> Iterator[Callable[[str], ModuleType]]:
    """Import a snippet again for each test: no test sees the changes of another."""
    names: list[str] = []

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"docs_snippet_{name}", SNIPPETS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        names.append(spec.name)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in names:
        sys.modules.pop(name, None)


Load = Callable[[str], ModuleType]


def test_every_snippet_is_run_by_a_test_of_this_file() -> None:
    source = Path(__file__).read_text()
    unused = [f.stem for f in SNIPPETS.glob("*.py") if f'"{f.stem}"' not in source and f'"{f.name}"' not in source]
    assert unused == []


async def test_a_broadcast_changes_the_list_of_tools(load: Load) -> None:
    async with connect(load("broadcast").server) as client:
        for _ in range(2):
            await client.call_tool("publish", {"names": ["daily", "weekly"]})
        with trio.fail_after(30):
            while "weekly" not in {tool.name for tool in await client.list_tools()}:
                pass


# -- the tutorial


async def test_the_first_server_is_fifteen_lines_and_answers(load: Load) -> None:
    assert len((SNIPPETS / "first.py").read_text().splitlines()) <= 15
    async with talking(load("first").server) as talk:
        result = await talk.call("book", {"title": "Emma"})
        assert result["structuredContent"] == {"title": "Emma", "author": "Jane Austen", "year": 1815}
        assert "Ulysses" in await talk.fault("book", title="Faust")
        assert talk.opening["instructions"] == "Look books up by their title."


def test_the_first_client_starts_the_first_server(tmp_path: Path) -> None:
    """As the README says: both files in one folder, `mcptrio` on the path."""
    (tmp_path / "server.py").write_text((SNIPPETS / "first.py").read_text())
    (tmp_path / "client.py").write_text((SNIPPETS / "first_client.py").read_text())
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    command = [sys.executable, "client.py"]
    shown = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=60, check=False
    )
    assert shown.stdout.splitlines() == [
        "book - Look up one book by its title.",
        "{'title': 'Emma', 'author': 'Jane Austen', 'year': 1815}",
    ], shown.stderr


async def test_the_server_of_the_front_page_is_twelve_lines_and_answers(load: Load) -> None:
    assert len((SNIPPETS / "hello.py").read_text().splitlines()) <= 12
    async with talking(load("hello").server) as talk:
        result = await talk.call("forecast", {"city": "Oslo", "days": 2})
        assert result["structuredContent"] == {"result": ["Oslo, day 1: sunny", "Oslo, day 2: sunny"]}
        assert "arguments.days" in await talk.fault("forecast", city="Oslo", days=4)


async def test_the_server_of_the_pages_for_newcomers_from_other_libraries(load: Load) -> None:
    seen: list[Any] = []
    async with connect(load("migrated").server, log=seen.append) as client:
        result = await client.call_tool("stock", {"item": "apples"}, on_progress=lambda *update: seen.append(update))
        assert (result.text, bool(result.is_error), len(seen)) == ("3", False, 2)
        assert "There is no 'pears'" in (await client.call_tool("stock", {"item": "pears"})).text
        assert (await client.read_resource("shop://hours")).contents[0].text == "9 to 17"
        prompt = await client.get_prompt("complain", {"item": "apples"})
        assert "complaint about apples" in prompt.messages[0].content.text


async def test_typed_arguments_and_results(load: Load) -> None:
    async with talking(load("typed").server) as talk:
        tools = {tool["name"]: tool for tool in (await talk.request("tools/list"))["tools"]}
        properties = tools["quote"]["inputSchema"]["properties"]
        assert properties["items"]["description"] == "What to buy; `sku` is mug or shirt."
        assert tools["quote"]["outputSchema"]["properties"]["total"]["type"] == "number"
        result = await talk.call("quote", {"items": [{"sku": "shirt"}], "currency": "USD"})
        assert result["structuredContent"] == {"total": 22.0, "currency": "USD", "lines": ["1 x shirt"]}
        fault = await talk.fault("quote", items=[{"sku": "mug", "quantity": 0}, {"quantity": "x"}], currency="GBP")
        assert len(fault.splitlines()) == 4, fault
        shown = (SNIPPETS.parent / "tutorial" / "typed.md").read_text()
        assert await talk.fault("quote", items=[{"sku": "mug", "quantity": 0}], currency="GBP") in shown
        blocks = (await talk.call("picture", {"sku": "mug"}))["content"]
        assert [block["type"] for block in blocks] == ["text", "image", "resource_link"]
        assert blocks[1]["mimeType"] == "image/png"
        assert (await talk.call("search", {"q": "sh"}))["structuredContent"] == {"result": ["shirt"]}
        assert "arguments.q" in await talk.fault("search", q="s")


async def test_asking_the_person_and_the_model(load: Load) -> None:
    script: dict[str, Callable[[Json], Any]] = {
        "elicitation/create": lambda params: (
            {"action": "accept"} if "url" in params else {"action": "accept", "content": {"nights": 2}}
        ),
        "sampling/createMessage": lambda params: {
            "role": "assistant",
            "model": "m",
            "content": {"type": "text", "text": f"told: {params['messages'][0]['content']['text']}"},
        },
        "roots/list": lambda params: {"roots": [{"uri": "file:///work"}]},
    }
    server = load("asking").server
    async with talking(server, capabilities=EVERYTHING, script=script) as talk:
        assert await talk.text("book_room", city="Oslo") == "2 nights in Oslo, board: breakfast."
        (_, asked) = talk.asked[0]
        assert asked["requestedSchema"]["properties"]["nights"]["maximum"] == 30
        assert await talk.text("describe", city="Oslo") == "told: Describe Oslo in one sentence."
        assert "went" in await talk.text("pay", amount=3)
        assert (await talk.call("workspace", {}))["structuredContent"] == {"result": ["file:///work"]}


async def test_a_client_that_cannot_ask_gets_an_answer_too(load: Load) -> None:
    async with talking(load("asking").server) as talk:
        assert await talk.text("describe", city="Oslo") == "Oslo is a city."
        assert "elicitation" in await talk.fault("book_room", city="Oslo")


async def test_resources_templates_completion_and_subscriptions(load: Load) -> None:
    async with talking(load("library").server) as talk:
        (contents,) = (await talk.request("resources/read", uri="library://books/emma"))["contents"]
        assert msgspec.json.decode(contents["text"])["author"] == "Jane Austen"
        ref = {"type": "ref/resource", "uri": "library://books/{key}"}
        completion = await talk.request("completion/complete", ref=ref, argument={"name": "key", "value": "u"})
        assert completion["completion"]["values"] == ["ulysses"]
        await talk.request("resources/subscribe", uri="library://books/emma")
        assert await talk.text("lend", key="emma", to="Ada") == "Emma is lent to Ada."
        await talk.settled()
        assert talk.heard("notifications/resources/updated") == [{"uri": "library://books/emma"}]
        prompt = await talk.request("prompts/get", name="review", arguments={"title": "Emma", "tone": "harsh"})
        assert "harsh review of 'Emma'" in prompt["messages"][0]["content"]["text"]
        ref = {"type": "ref/prompt", "name": "review"}
        completion = await talk.request("completion/complete", ref=ref, argument={"name": "tone", "value": "h"})
        assert completion["completion"]["values"] == ["harsh"], "a Literal completes itself"
        error = await refusal(talk, "resources/read", uri="library://books/faust")
        assert error.message == "resource not found: 'library://books/faust'"


async def test_state_of_a_session_and_of_the_process(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    async with open_server(load("state").server) as join:
        async with join() as ada, join() as grace:
            await ada.call("add", {"item": "tea"})
            assert (await ada.call("add", {"item": "milk"}))["structuredContent"] == {"result": 2}
            assert (await grace.call("add", {"item": "salt"}))["structuredContent"] == {"result": 1}
            await ada.call("order")
            assert (await grace.text("order")).startswith("3 things")
    assert "with 0 items" in capsys.readouterr().out


async def test_a_movable_session_goes_on_after_a_restart(load: Load, tmp_path: Path) -> None:
    async def add(endpoint: Endpoint, client: Client, item: str) -> Any:
        client.endpoint = endpoint
        reply = await client.post(request(1, "tools/call", name="add", arguments={"item": item}))
        return result_of(reply)["structuredContent"]["result"]

    async def serve(test: Callable[[Endpoint], Awaitable[None]]) -> None:
        store = SqliteStore(tmp_path / "sessions.db")
        async with load("movable").server._app.make_runtime(store).open() as runtime:
            await test(Endpoint(runtime, HttpConfig(stream_after=60)))

    clients: list[Client] = []

    async def first(endpoint: Endpoint) -> None:
        clients.append(await Client.open(endpoint))
        assert await add(endpoint, clients[0], "tea") == 1

    async def second(endpoint: Endpoint) -> None:
        assert await add(endpoint, clients[0], "milk") == 2

    await serve(first)
    await serve(second)


def test_the_settings_of_the_deployed_server_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(Server, "run", lambda server, transport, **settings: given.update(settings))
    runpy.run_path(str(SNIPPETS / "deploy.py"), run_name="__main__")
    assert given.pop("store").startswith("sqlite:///")
    assert HttpConfig(**given).allowed_hosts == ("orders.example.org",)


def test_the_tests_that_the_tutorial_shows_pass(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "trio_mode=true"]
    where = ["-c", str(tmp_path / "pytest.ini"), "--rootdir", str(SNIPPETS), str(SNIPPETS / "test_shop.py")]
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run([*command, *where], cwd=SNIPPETS, capture_output=True, text=True, timeout=120, check=False)
    assert "5 passed" in done.stdout, done.stdout + done.stderr


# -- the how-to guides


async def test_lists_that_change_and_differ(load: Load) -> None:
    async def names(talk: Talk) -> list[str]:
        return [tool["name"] for tool in (await talk.request("tools/list"))["tools"]]

    async with talking(load("dynamic").server) as talk:
        assert await names(talk) == ["enable", "disable"]
        assert (await refusal(talk, "tools/call", name="self_test", arguments={})).code == -32602
        await talk.text("enable", plugin="shout")
        await talk.settled()
        assert talk.heard("notifications/tools/list_changed") == [{}]
        assert await talk.text("shout", text="hey") == "HEY"
        await talk.text("disable", plugin="shout")
        assert "shout" not in await names(talk)
        assert (await talk.request("acme/version"))["version"] == "7"
    async with open_server(load("dynamic").server) as join, join(opened=False) as talk:
        info = {"name": "robot", "version": "1"}
        date = next(date for date, era in reversed(ERAS.items()) if era.stateful)
        await talk.request("initialize", protocolVersion=date, capabilities={}, clientInfo=info)
        await talk.notify("notifications/initialized")
        assert "self_test" in await names(talk)
        assert await talk.text("self_test") == "all is well"


async def test_each_kind_of_failure_has_its_answer(load: Load) -> None:
    async with talking(load("failing").server) as talk:
        assert "absolute value" in await talk.fault("wrong_input", number=-1)
        assert "1234" not in await talk.fault("broken")
        error = await refusal(talk, "tools/call", name="not_allowed", arguments={})
        assert (error.code, error.data) == (-32001, {"account": "demo"})


async def test_long_calls_report_progress_and_have_their_own_limits(load: Load, autojump_clock: MockClock) -> None:
    async with talking(load("long_calls").server) as talk:
        result = await talk.call("index", {"pages": 500}, _meta={"progressToken": 7})
        assert result["content"][0]["text"] == "500 pages", "it took 250 s and has a limit of 120 s without progress"
        assert talk.heard("notifications/progress")[-1]["progress"] == 500
        assert (await talk.call("double", {"number": 4}))["structuredContent"] == {"result": 8}
        assert await talk.text("overnight") == "good morning"
        began = trio.current_time()
        ids = [await talk.begin("tools/call", name="one_by_one", arguments={"seconds": 3}) for _ in range(2)]
        for number in ids:
            await talk._waiting[number][0].wait()
        assert trio.current_time() - began >= 6


async def test_hosts_and_models(load: Load) -> None:
    async with talking(load("hosts").server) as talk:
        assert (
            await talk.text("order", lines='[{"sku": "a", "qty": "2"}]', express="true", size=None)
            == "2 things, express"
        )
        assert await talk.fault("order", lines=[{"sku": "a", "qty": "x"}]) == (
            'arguments.lines[0].qty: expected integer, got "x"'
        )
        assert await talk.fault("refund", order_id="7") == 'arguments.order_id: expected integer, got "7"'
        assert await talk.call("totals") == {"content": [{"type": "text", "text": '{"s":3,"m":5}'}]}
        preview, link = (await talk.call("log", {"lines": 10_000}))["content"]
        assert len(preview["text"]) == 50_000
        (whole,) = (await talk.request("resources/read", uri=link["uri"]))["contents"]
        assert whole["text"].endswith("line 9999")


async def test_plain_functions_run_in_threads(load: Load) -> None:
    async with talking(load("long_calls").server) as talk:
        assert (await talk.call("checksum", {"text": "ab"}))["structuredContent"] == {"result": 195}


async def test_a_cancelled_call_cleans_up(load: Load, autojump_clock: MockClock) -> None:
    async with talking(load("long_calls").server) as talk:
        number = await talk.begin("tools/call", name="copy", arguments={})
        await talk.settled()
        await talk.notify("notifications/cancelled", requestId=number)
        await talk.settled()
        assert talk._waiting[number][1] == [], "a cancelled call is not answered"


async def test_events_are_heard(load: Load) -> None:
    module = load("events")
    async with talking(module.server) as talk:
        assert await talk.text("greet", name="Ada") == "Hello, Ada."
        assert talk.heard("notifications/message") == [{"level": "info", "data": {"greeted": "Ada"}}]
        await talk.settled()
        assert module.outcomes["tools/call ok"] == 1


@pytest.fixture
def client_module(load: Load, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The snippets of clients, with the servers that they import next to them."""
    monkeypatch.syspath_prepend(str(SNIPPETS))
    yield load("client")
    for name in ("asking", "library", "typed"):
        sys.modules.pop(name, None)


async def test_a_client_looks_around_answers_and_hears_of_changes(client_module: ModuleType) -> None:
    assert await client_module.look_around() == ["lend", "library://books/emma", "ulysses"]
    assert await client_module.book() == "3 nights in Oslo, board: full."
    assert await client_module.follow() == "library://books/emma"
    quote = await client_module.price()
    assert (type(quote).__name__, quote.total, quote.currency) == ("Quote", 18.0, "EUR")
    assert await client_module.long_lived(client_module.library) == 1


async def test_a_client_drives_rounds_by_hand(client_module: ModuleType) -> None:
    assert await client_module.book_by_hand() == "1 nights in Oslo, board: breakfast."


async def test_several_servers_are_one(client_module: ModuleType) -> None:
    found = await client_module.several()
    assert found[-2:] == ["3 nights in Oslo, board: full.", "gone"]
    assert {"books_lend", "travel_book_room"} <= set(found)


async def test_servers_of_a_configuration_are_connected_to(client_module: ModuleType, tmp_path: Path) -> None:
    run = {"command": sys.executable, "args": ["-m", "mcptrio", "run", str(SNIPPETS / "first.py")]}
    servers = {"library": run, "off": {"command": "x", "disabled": True}, "gone": {"command": "no-such-program"}}
    file = tmp_path / "mcp.json"
    file.write_bytes(msgspec.json.encode({"mcpServers": servers}))
    with trio.fail_after(60):
        assert await client_module.from_configuration(file) == {"library": STATELESS}
        async with connect(f"{file}:library") as client:
            assert client.protocol_version == STATELESS


async def test_headers_of_one_call(client_module: ModuleType) -> None:
    server = Server("tenants")

    @server.tool
    async def whoami(ctx: Context) -> str:
        assert ctx.http is not None
        return f"{ctx.http.headers['x-tenant']} of {ctx.http.headers['user-agent']}"

    async with trio.open_nursery() as nursery:
        (bound,) = await nursery.start(partial(server.serve_http, port=0))
        assert await client_module.for_a_tenant(f"{bound.url}/mcp", "acme") == "acme of shop/1.0"
        nursery.cancel_scope.cancel()


# -- signing in


async def test_a_person_signs_in_once_and_tokens_are_kept(load: Load, tmp_path: Path) -> None:
    module, mock, person = load("oauth"), Mock(), Person()
    async with serving(mock) as served, trio.open_nursery() as person.nursery:
        mock.base = served.address.url
        for _ in range(2):
            assert await module.sign_in(mock.url, tmp_path / "tokens", open_browser=person.open) == ["together"]
        assert (mock.count("authorize"), len(person.pages)) == (1, 1)
    assert all(file.stat().st_mode & 0o077 == 0 for file in (tmp_path / "tokens").iterdir())


def test_ways_to_sign_in_without_a_person_are_declared(load: Load, tmp_path: Path) -> None:
    module = load("oauth")
    ways = [
        module.as_a_program("very secret"),
        module.with_a_key("very secret"),
        module.as_a_workload(tmp_path / "token"),
        module.as_an_employee("very secret", "very secret"),
    ]
    assert all("no server yet" in repr(way) for way in ways)
    assert all("very secret" not in repr(way) for way in ways)


# -- extensions


@pytest.fixture
def surveyor() -> Server:
    spec = importlib.util.spec_from_file_location("example_tasks", SNIPPETS.parents[1] / "examples" / "tasks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["example_tasks"] = module
    try:
        spec.loader.exec_module(module)
        return module.server  # type: ignore[no-any-return]
    finally:
        del sys.modules["example_tasks"]


async def test_calls_that_became_tasks_are_waited_for(load: Load, surveyor: Server, autojump_clock: MockClock) -> None:
    assert await load("tasks").wait(surveyor) == "20: Ely has 20 people, on 2 pages."


async def test_the_handle_of_a_task_is_good_for_another_connection(
    load: Load, surveyor: Server, autojump_clock: MockClock
) -> None:
    module = load("tasks")
    async with surveyor._app.make_runtime().open() as runtime:
        process = SimpleNamespace(open_memory_link=partial(open_memory_link, runtime))
        handle = await module.begin(process)
        *seen, people = await module.finish(process, handle)
        assert (seen[0], seen[-1], people) == ("working", "completed", "20")


async def test_skills_are_served_and_loaded(load: Load, tmp_path: Path) -> None:
    module = load("skills")
    assert set(await module.load(module.server)) == {"git-workflow", "monthly"}
    assert "named after it" in (await module.load(module.server))["git-workflow"]
    assert await module.template(module.server) == "# Report of MONTH\n"
    page = (SNIPPETS.parent / "howto" / "skills.md").read_text()
    (tmp_path / "pdf-forms").mkdir()
    (tmp_path / "pdf-forms" / "SKILL.md").write_text(page.partition("```yaml\n")[2].partition("```")[0])
    assert set(await module.load(module.make_server(tmp_path))) == {"pdf-forms"}


async def test_a_tool_has_a_page(load: Load) -> None:
    module = load("apps")
    shown = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
    async with connect(module.server) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert tools["temperature"].meta == {"ui": {"resourceUri": "ui://thermometer/page"}}
        (contents,) = (await client.read_resource("ui://thermometer/page")).contents
        assert contents.text == module.PAGE
        assert contents.meta["ui"]["csp"]["connectDomains"] == ["https://api.example.org"]
        assert "warm enough" in (await client.call_tool("average")).content[0].text
    async with connect(module.server, **shown) as client:
        assert (await client.call_tool("average")).content[0].text == "21.5"


# -- asking where questions travel in results


@asynccontextmanager
async def stateless(server: Server) -> Any:
    """Asks at the newest date; answers nothing by itself."""
    meta = {VERSION: STATELESS, CAPABILITIES: EVERYTHING, CLIENT_INFO: {"name": "test", "version": "1"}}
    async with open_server(server) as join, join(opened=False) as talk:

        async def ask(name: str, arguments: Json, **more: Any) -> Json:
            return await talk.request("tools/call", name=name, arguments=arguments, _meta=meta, **more)

        yield ask


def said(**content: Any) -> Json:
    return {"action": "accept", "content": content}


async def test_questions_asked_together_leave_together(load: Load, autojump_clock: MockClock) -> None:
    async with stateless(load("rounds").server) as ask:
        asked = await ask("pair", {})
        assert asked["resultType"] == "input_required"
        assert set(asked["inputRequests"]) == {"first", "second"}
        answers = {"first": said(name="Ada"), "second": said(name="Grace")}
        done = await ask("pair", {}, inputResponses=answers, requestState=asked["requestState"])
        assert done["content"][0]["text"] == "Ada plays Grace."


async def test_a_function_of_once_runs_once_over_two_rounds(load: Load, autojump_clock: MockClock) -> None:
    module = load("rounds")
    async with stateless(module.server) as ask:
        first = await ask("refund", {"order_id": "7"})
        answer = {"refund": said(agreed=True)}
        second = await ask("refund", {"order_id": "7"}, inputResponses=answer, requestState=first["requestState"])
        assert set(second["inputRequests"]) == {"mail"}
        answer = {"mail": said(agreed=False)}
        done = await ask("refund", {"order_id": "7"}, inputResponses=answer, requestState=second["requestState"])
        assert done["content"][0]["text"] == "receipt 1, not mailed"
        assert module.paid == ["7"]


async def test_the_same_code_asks_at_the_dates_with_sessions(load: Load) -> None:
    script: dict[str, Callable[[Json], Any]] = {
        "elicitation/create": lambda params: said(
            **({"name": "Ada"} if "name" in params["requestedSchema"]["properties"] else {"agreed": True})
        )
    }
    module = load("rounds")
    async with talking(module.server, capabilities=EVERYTHING, script=script) as talk:
        assert await talk.text("pair") == "Ada plays Ada."
        assert await talk.text("refund", order_id="9") == "receipt 1, mailed"
        assert module.paid == ["9"]


async def test_a_tool_awaits_asyncio(load: Load) -> None:
    async with connect(load("asyncio_tools").server, elicit=lambda params: {"size": "A4"}) as client:
        assert (await client.call_tool("print_pages", {"pages": 2})).text == "2 pages on A4"


def test_programs_without_trio_connect_to_servers(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    server, snippet = load("asyncio_tools").server, load("asyncio_client")
    assert asyncio.run(snippet.print_in_asyncio(server)) == "2 pages on A4"
    monkeypatch.setattr("builtins.input", lambda prompt: "A5")
    assert snippet.print_plainly(server) == "2 pages on A5"


def test_small_auth_declares_what_can_be_served(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    snippet = load("small_auth")
    served: list[Json] = []
    monkeypatch.setattr(snippet.server, "run", lambda transport, **settings: served.append(settings))
    snippet.serve_with_tokens("a" * 32, "b" * 32)
    snippet.serve_with_certificates()
    assert served[0]["auth"].find("a" * 32).scopes == {"orders:read"}
    assert served[0]["auth"].find("b" * 32).scopes == frozenset()
    assert snippet.server.asgi(auth=served[0]["auth"])
    assert served[1]["auth"].principals["ada"].subject == "ada"
    HttpConfig(**{name: value for name, value in served[1].items() if name != "auth"})


async def test_a_token_is_sent_and_tested(load: Load) -> None:
    assert await load("small_auth").serve_for_a_test("a" * 32) == "Hello ada"


async def test_a_function_authenticates(load: Load) -> None:
    snippet = load("small_auth")
    async with trio.open_nursery() as nursery:
        addresses = await nursery.start(partial(snippet.server.serve_http, port=0, auth=snippet.verify))
        assert await snippet.call_with_token(f"{addresses[0].url}/mcp", "a" * 32) == "Hello ada"
        with pytest.raises(MCPTrioError, match="401"):
            await snippet.call_with_token(f"{addresses[0].url}/mcp", "b" * 32)
        nursery.cancel_scope.cancel()


class ItemService(BaseHTTPRequestHandler):
    """The web service behind docs/snippets/web_service.py: items 1 and 2, a broken one, and no others."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        key = self.path.removeprefix("/items/")
        self.send_response({"1": 200, "2": 200, "broken": 500}.get(key, 404))
        self.end_headers()
        self.wfile.write(msgspec.json.encode({"id": key, "title": f"Item {key}"}))

    def log_message(self, format: str, *args: Any) -> None:
        pass


async def test_a_web_service_is_called_with_progress_and_readable_errors(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), ItemService) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        try:
            monkeypatch.setenv("ITEMS_API", f"http://127.0.0.1:{service.server_port}")
            async with connect(load("web_service").server) as client:
                seen: list[Any] = []
                result = await client.call_tool("report", {"item_ids": ["1", "2"]}, on_progress=seen.append)
                assert not result.is_error, result.text
                assert [item["title"] for item in result.structured_content["result"]] == ["Item 1", "Item 2"]
                assert [(step.progress, step.message) for step in seen] == [(1, "item 1"), (2, "item 2")]
                for key, text in [("3", "no item '3'"), ("broken", "answered 500"), ("../admin", "no item '../admin'")]:
                    failed = await client.call_tool("item", {"item_id": key})
                    assert failed.is_error
                    assert text in failed.text
            assert "/items/..%2Fadmin" in ItemService.asked
        finally:
            service.shutdown()
    async with connect(load("web_service").server) as client:
        gone = await client.call_tool("item", {"item_id": "1"})
        assert "cannot be reached" in gone.text


async def test_a_traced_server_is_an_ordinary_one_without_the_sdk(load: Load) -> None:
    async with connect(load("traced").server) as client:
        assert (await client.call_tool("price", {"item": "tea"})).text == "4.5"


async def test_the_server_of_the_page_about_browsers_works(load: Load) -> None:
    async with connect(load("pages").server) as client:
        assert (await client.call_tool("add", {"a": 2, "b": 3})).text == "5"


async def test_messages_are_what_a_server_reads_and_writes(load: Load) -> None:
    snippet = load("messages")
    server = Server("greeter")

    @server.tool
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    async with talking(server) as talk:
        request = jsonrpc.decode(snippet.request_line())
        assert isinstance(request, jsonrpc.Request)
        result = await talk.request(request.method, **request.params)
        assert snippet.text_of(jsonrpc.encode(jsonrpc.Response(1, result))) == "Hello, Ada!"
    assert snippet.text_of(jsonrpc.encode(jsonrpc.Error(1, -32602, "unknown tool"))) == "error -32602: unknown tool"


async def test_a_program_joins_the_cluster_of_its_store(
    load: Load, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    snippet = load("cluster")
    url = redis_server.url
    serve, make = snippet.server.serve_http, snippet.RedisStore.from_url

    async def serve_here(**settings: Any) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(serve, **{**settings, "port": 0}))
            name = f"mcptrio:{{{url.partition('name=')[2]}}}:workers"
            assert redis_server.command("HLEN", name) == 1
            nursery.cancel_scope.cancel()

    monkeypatch.setattr(snippet.RedisStore, "from_url", lambda _: make(url))
    monkeypatch.setattr(snippet.server, "serve_http", serve_here)
    with trio.fail_after(20):
        await snippet.main()
