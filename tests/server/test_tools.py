"""Tools: how arguments are bound, what results look like at each date, and what becomes of exceptions."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any, TypedDict

import pytest
import trio
from trio.testing import MockClock

from mcptrio import Audio, Context, Image, MCPError, ResourceLink, Server, ToolError, UrlElicitationRequired
from mcptrio._peer.era import Era
from mcptrio.errors import INTERNAL_ERROR, INVALID_PARAMS, DeclarationError, MCPTrioError, Overloaded
from mcptrio.types import CallToolResult, EmbeddedResource, TextContent, TextResourceContents
from tests.server.talk import NEWEST, eras_where, every_era, open_server, refusal, talking

CANARY = "canary-7f3a"


@dataclass
class Line:
    sku: str
    qty: int


@dataclass
class Order:
    id: str
    lines: list[Line] = field(default_factory=list)


def shop() -> Server:
    server = Server("shop")

    @server.tool(title="Place", destructive=True, meta={"x": 1})
    async def place(customer: str, lines: list[Line], gift: bool = False) -> Order:
        """Place an order.

        Args:
            customer: Who pays.
        """
        return Order(customer, lines)

    @server.tool
    async def greet(name: str = "you") -> str:
        return f"Hello {name}"

    return server


# -- arguments


@every_era
async def test_every_fault_of_the_arguments_is_reported_at_once(era: Era) -> None:
    """A model corrects all of its mistakes in one go; it can read a result at every revision."""
    async with talking(shop(), era) as talk:
        arguments = {"lines": [{"sku": "a", "qty": 1}, {"sku": 2, "qty": "x"}], "colour": "red"}
        text = await talk.fault("place", **arguments)
    assert text.splitlines() == [
        "arguments.customer: required",
        "arguments.lines[1].sku: expected string, got 2",
        'arguments.lines[1].qty: expected integer, got "x"',
    ]


def counter(server: Server, **options: Any) -> Server:
    @server.tool(**options)
    async def count(n: int, step: int = 1) -> str:
        return f"{n} {step}"

    return server


LOOSE: dict[str, Any] = {"n": "5", "step": None, "more": 1}


async def test_arguments_are_read_leniently() -> None:
    async with talking(counter(Server("loose"))) as talk:
        assert await talk.text("count", **LOOSE) == "5 1"
        assert await talk.fault("count", n="x") == 'arguments.n: expected integer, got "x"'


@pytest.mark.parametrize(
    "server",
    [
        counter(Server("strict", arguments="strict")),
        counter(Server("strict"), arguments="strict"),
    ],
    ids=["server", "tool"],
)
async def test_strict_arguments_are_read_exactly(server: Server) -> None:
    async with talking(server) as talk:
        assert await talk.text("count", n=5) == "5 1"
        assert (await talk.fault("count", **LOOSE)).splitlines() == [
            'arguments.n: expected integer, got "5"',
            "arguments.step: expected integer, got null",
            'arguments: unexpected field "more"',
        ]


async def test_a_tool_can_be_lenient_on_a_strict_server() -> None:
    async with talking(counter(Server("strict", arguments="strict"), arguments="lenient")) as talk:
        assert await talk.text("count", **LOOSE) == "5 1"


@pytest.mark.parametrize("strict", [False, True])
async def test_a_schema_written_by_hand_is_read_leniently_too(strict: bool) -> None:
    server = Server("hand", arguments="strict" if strict else "lenient")
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}

    @server.tool(input_schema=schema)
    async def count(arguments: dict[str, Any]) -> str:
        return repr(arguments)

    async with talking(server) as talk:
        if strict:
            assert "arguments.n: expected integer" in await talk.fault("count", n="5")
        else:
            assert await talk.text("count", n="5") == "{'n': 5}"
        assert "unexpected field" in await talk.fault("count", n=5, more=1)  # its author said so


def test_a_server_refuses_unknown_and_invalid_defaults() -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'argument'; did you mean arguments\?"):
        Server("x", argument="strict")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'port'; pass it where the server is served"):
        Server("x", port=8000)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'qqqqq'$"):
        Server("x", qqqqq=1)  # type: ignore[call-arg]
    with pytest.raises(DeclarationError, match="arguments is 'lenient' or 'strict', not 'loose'"):
        Server("x", arguments="loose")  # type: ignore[arg-type]


async def test_a_call_without_arguments_uses_the_defaults() -> None:
    async with talking(shop()) as talk:
        assert (await talk.call("greet"))["content"] == [{"type": "text", "text": "Hello you"}]
        assert await talk.text("greet", name="Ada") == "Hello Ada"


@every_era
async def test_an_unknown_tool_is_an_invalid_parameter(era: Era) -> None:
    async with talking(shop(), era) as talk:
        error = await refusal(talk, "tools/call", name="sell")
        assert (error.code, error.message) == (INVALID_PARAMS, "unknown tool: 'sell'")


async def test_arguments_that_are_no_object_are_refused() -> None:
    async with talking(shop()) as talk:
        assert (await refusal(talk, "tools/call", name="greet", arguments=[1])).code == INVALID_PARAMS
        assert (await refusal(talk, "tools/call")).code == INVALID_PARAMS


async def test_a_schema_written_by_hand_is_listed_as_written_and_checked() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}, "required": ["n"]}
    server = Server("by hand")

    @server.tool(input_schema=schema)
    async def take(arguments: dict[str, Any], ctx: Context) -> str:
        return f"{arguments['n']} for {ctx.request_id}"

    async with talking(server) as talk:
        (tool,) = (await talk.request("tools/list"))["tools"]
        assert tool["inputSchema"] == schema
        assert await talk.text("take", n=3) == "3 for 3"
        assert "arguments.n" in await talk.fault("take", n=2)


# -- the list


@every_era
async def test_a_tool_is_listed_with_what_the_date_knows(era: Era) -> None:
    async with talking(shop(), era) as talk:
        place, greet = (await talk.request("tools/list"))["tools"]
    assert set(place) <= era.shapes["tool"]
    assert [place["name"], greet["name"]] == ["place", "greet"]
    assert place["description"] == "Place an order."
    assert place["inputSchema"]["properties"]["customer"]["description"] == "Who pays."
    assert ("outputSchema" in place) == ("outputSchema" in era.shapes["tool"])
    assert "outputSchema" not in greet


async def test_pages_of_tools_join_up_and_other_cursors_are_refused() -> None:
    server = Server("many", page_size={"tools": 2})
    for number in range(5):
        server.add_tool(partial(_number, number), name=f"t{number}")
    async with talking(server) as talk:
        names, cursor = [], None
        for _ in range(3):
            page = await talk.request("tools/list", **({} if cursor is None else {"cursor": cursor}))
            names += [tool["name"] for tool in page["tools"]]
            cursor = page.get("nextCursor")
        assert names == ["t0", "t1", "t2", "t3", "t4"]
        assert cursor is None
        assert (await refusal(talk, "tools/list", cursor="2")).code == INVALID_PARAMS


async def _number(number: int) -> str:
    return str(number)


async def test_a_hidden_tool_is_neither_listed_nor_callable() -> None:
    server = Server("rooms")

    def staff_only(ctx: Context) -> bool:
        return bool(ctx.client_capabilities.sampling)

    @server.tool(visible=staff_only)
    async def vault() -> str:
        return "gold"

    async with open_server(server) as join, join() as guest, join(capabilities={"sampling": {}}) as staff:
        assert (await guest.request("tools/list"))["tools"] == []
        assert (await refusal(guest, "tools/call", name="vault")).message == "unknown tool: 'vault'"
        assert await staff.text("vault") == "gold"


# -- results


@every_era
async def test_a_typed_result_is_text_and_structured_at_every_revision(era: Era) -> None:
    async with talking(shop(), era) as talk:
        arguments = {"customer": "ada", "lines": [{"sku": "a", "qty": 1}]}
        result = await talk.call("place", arguments)
    wanted = {"id": "ada", "lines": [{"sku": "a", "qty": 1}]}
    assert [json.loads(block["text"]) for block in result["content"]] == [wanted]
    assert result["structuredContent"] == wanted


def gallery() -> Server:
    server = Server("gallery")

    @server.tool
    async def image() -> Image:
        return Image(b"\x89PNG\r\n\x1a\n")

    @server.tool
    async def audio() -> Audio:
        return Audio(b"OggS")

    @server.tool
    async def link() -> ResourceLink:
        return ResourceLink("notes://today", title="Today")

    @server.tool
    async def resource() -> EmbeddedResource:
        return EmbeddedResource(resource=TextResourceContents(uri="notes://today", text="Rain."))

    @server.tool
    async def mixed() -> list[str | Image]:
        return ["one", Image(b"GIF8")]

    @server.tool
    async def nothing() -> None:
        return None

    @server.tool
    async def whole() -> CallToolResult:
        return CallToolResult(content=[TextContent(text="as it is")], meta={"mark": 1}, is_error=True)

    @server.tool
    async def unannotated():  # type: ignore[no-untyped-def]
        return {"a": [1, 2]}

    return server


@every_era
async def test_content_that_a_date_lacks_becomes_the_nearest_thing_it_has(era: Era) -> None:
    """An old client never sees a content type that it cannot read."""
    async with talking(gallery(), era) as talk:
        for name in ("image", "audio", "link", "resource", "mixed"):
            for block in (await talk.call(name))["content"]:
                assert block["type"] in era.content, name
        (audio,) = (await talk.call("audio"))["content"]
        (link,) = (await talk.call("link"))["content"]
    if "audio" in era.content:
        assert audio == {"type": "audio", "data": "T2dnUw==", "mimeType": "audio/ogg"}
    else:
        assert (audio["resource"]["mimeType"], audio["resource"]["blob"]) == ("audio/ogg", "T2dnUw==")
    if "resource_link" in era.content:
        assert (link["uri"], link["name"]) == ("notes://today", "today")
    else:
        assert link == {"type": "text", "text": "Today: notes://today"}


async def test_other_return_values_become_content() -> None:
    async with talking(gallery()) as talk:
        assert (await talk.call("nothing")) == {"content": []}
        assert [block["type"] for block in (await talk.call("mixed"))["content"]] == ["text", "image"]
        assert await talk.text("unannotated") == '{"a":[1,2]}'
        whole = await talk.call("whole")
        assert whole == {"content": [{"type": "text", "text": "as it is"}], "isError": True, "_meta": {"mark": 1}}


class Forecast(TypedDict):
    city: str
    degrees: float


@pytest.mark.parametrize("returned", [{"city": 7, "degrees": 1.0}, {"city": "Oslo"}, None, [1]])
async def test_a_result_that_breaks_its_own_schema_is_not_sent(returned: Any) -> None:
    """server/tools: structured results MUST conform to the output schema; a client would refuse them."""
    server = Server("liar")

    @server.tool
    async def forecast() -> Forecast:
        return returned  # type: ignore[no-any-return]

    @server.tool(output_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["degrees"]})
    async def by_hand() -> Any:
        return returned

    async with talking(server) as talk:
        assert await talk.fault("forecast") == "The tool failed. The server log has the details."
        assert await talk.fault("by_hand") == "The tool failed. The server log has the details."


async def test_an_output_schema_written_by_hand_is_listed_and_kept() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    server = Server("by hand")

    @server.tool(output_schema=schema)
    async def number() -> Any:
        return {"n": 1}

    async with talking(server) as talk:
        (tool,) = (await talk.request("tools/list"))["tools"]
        assert tool["outputSchema"] == schema
        assert await talk.call("number") == {
            "content": [{"type": "text", "text": '{"n":1}'}],
            "structuredContent": {"n": 1},
        }


# -- failing


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError(CANARY)


class OwnException(MCPTrioError):
    pass


EXCEPTIONS: list[BaseException] = [
    ValueError(CANARY),
    KeyError(CANARY),
    RuntimeError(CANARY),
    StopIteration(CANARY),
    TimeoutError(CANARY),
    RecursionError(CANARY),
    DeclarationError(CANARY),
    OwnException(CANARY),
    trio.TooSlowError(CANARY),
    ExceptionGroup(CANARY, [ValueError(CANARY)]),
    ExceptionGroup(CANARY, [ValueError(CANARY), ToolError(CANARY)]),
    ExceptionGroup(CANARY, [ExceptionGroup(CANARY, [OwnException(CANARY)])]),
    Unprintable(),
    SystemExit(CANARY),
    KeyboardInterrupt(CANARY),
    GeneratorExit(CANARY),
    BaseExceptionGroup(CANARY, [SystemExit(CANARY), ValueError(CANARY)]),
]


@pytest.mark.parametrize("error", EXCEPTIONS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("sync", [False, True], ids=["async", "in a thread"])
async def test_nothing_of_an_exception_reaches_the_client_and_the_session_goes_on(
    error: BaseException, sync: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("faulty")

    async def fail() -> str:
        raise error

    def fail_in_a_thread() -> str:
        raise error

    server.add_tool(fail_in_a_thread if sync else fail, name="fail")
    server.add_prompt(fail, name="fail")
    server.add_resource("fail://now", fail)
    server.add_tool(_fine, name="fine")
    async with talking(server) as talk:
        assert await talk.fault("fail") == "The tool failed. The server log has the details."
        for method, params in (("prompts/get", {"name": "fail"}), ("resources/read", {"uri": "fail://now"})):
            assert (await refusal(talk, method, **params)).code == INTERNAL_ERROR
        assert await talk.text("fine") == "fine"
    assert not any(CANARY.encode() in frame for frame in talk.raw)
    assert caplog.records, "the traceback must be in the log"


async def _fine() -> str:
    return "fine"


async def test_a_tool_error_is_read_by_the_model_also_out_of_a_nursery() -> None:
    server = Server("polite")

    @server.tool
    async def plain() -> str:
        raise ToolError("No stock.")

    @server.tool
    async def nested() -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(plain)
        raise AssertionError

    async with talking(server) as talk:
        assert await talk.fault("plain") == "No stock."
        assert await talk.fault("nested") == "No stock."


async def test_an_mcp_error_is_an_error_of_the_protocol_also_out_of_a_nursery() -> None:
    server = Server("strict")

    @server.tool
    async def plain() -> str:
        raise MCPError(-32050, "closed", {"until": 9})

    @server.tool
    async def nested() -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(plain)
        raise AssertionError

    @server.tool
    async def unsendable() -> str:
        raise MCPError(-32051, "closed", object())

    async with talking(server) as talk:
        for name in ("plain", "nested"):
            error = await refusal(talk, "tools/call", name=name)
            assert (error.code, error.message, error.data) == (-32050, "closed", {"until": 9})
        error = await refusal(talk, "tools/call", name="unsendable")
        assert (error.code, error.data) == (-32051, None)


async def test_an_overloaded_tool_says_when_to_come_back() -> None:
    server = Server("busy")

    @server.tool
    async def busy() -> str:
        raise Overloaded("no seats", retry_after=7)

    async with talking(server) as talk:
        error = await refusal(talk, "tools/call", name="busy")
        assert (error.code, error.data) == (INTERNAL_ERROR, {"retryAfter": 7})


async def test_a_result_that_has_no_json_form_fails_alone() -> None:
    server = Server("odd")

    @server.tool
    async def odd() -> Any:
        return {"x": object()}

    @server.tool
    async def infinite() -> float:
        return float("nan")

    async with talking(server) as talk:
        assert await talk.fault("odd") == "The tool failed. The server log has the details."
        assert await talk.fault("infinite") == "The tool failed. The server log has the details."


async def test_an_answer_beyond_the_bound_is_an_error() -> None:
    server = Server("large", max_reply=1000)

    @server.tool
    async def large() -> str:
        return "x" * 1000

    async with talking(server) as talk:
        error = await refusal(talk, "tools/call", name="large")
        assert (error.code, error.message) == (INTERNAL_ERROR, "the answer is larger than 1000 bytes")


# -- time, turns and threads


async def test_a_tool_has_its_own_time_limit(autojump_clock: MockClock) -> None:
    server = Server("slow")

    @server.tool(timeout=5)
    async def short() -> str:
        await trio.sleep(6)
        return "late"

    @server.tool(timeout=500)
    async def long() -> str:
        await trio.sleep(400)  # longer than the limit of the session
        return "in time"

    async with talking(server) as talk:
        began = trio.current_time()
        result = await talk.call("short")
        assert result["isError"]
        text = "The tool 'short' was stopped: it may take 5 s (`timeout=` of the tool)."
        assert result["content"][0]["text"] == text
        assert trio.current_time() - began == pytest.approx(5, abs=0.1)
        assert await talk.text("long") == "in time"


async def test_progress_restarts_the_time_limit(autojump_clock: MockClock) -> None:
    server = Server("slow")

    @server.tool(timeout=5)
    async def steps(ctx: Context) -> str:
        for step in range(4):
            await trio.sleep(4)
            await ctx.progress(step)
        return "done"

    async with talking(server) as talk:
        assert await talk.text("steps") == "done"


class Crowd:
    """Counts how many are inside at the same time."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0

    async def visit(self) -> str:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await trio.sleep(1)
        self.inside -= 1
        return "seen"


async def _call_many(talks: list[Any], name: str, times: int) -> None:
    async with trio.open_nursery() as nursery:
        for talk in talks:
            for _ in range(times):
                nursery.start_soon(talk.text, name)


async def test_a_serial_tool_takes_one_call_at_a_time_in_each_session(autojump_clock: MockClock) -> None:
    crowd = Crowd()
    server = Server("museum")
    server.add_tool(crowd.visit, serial=True)
    async with open_server(server) as join, join() as one, join() as other:
        await _call_many([one], "visit", 3)
        assert crowd.most == 1
        await _call_many([one, other], "visit", 3)
        assert crowd.most == 2


async def test_a_limited_tool_takes_so_many_calls_at_a_time_in_all_sessions(autojump_clock: MockClock) -> None:
    crowd = Crowd()
    server = Server("museum")
    server.add_tool(crowd.visit, limit=2)
    async with open_server(server) as join, join() as one, join() as other:
        await _call_many([one, other], "visit", 4)
    assert crowd.most == 2


async def test_calls_that_wait_for_their_turn_in_a_session_take_no_place_from_other_sessions(
    autojump_clock: MockClock,
) -> None:
    crowd = Crowd()
    server = Server("museum")
    server.add_tool(crowd.visit, serial=True, limit=2)
    async with open_server(server) as join, join() as crowded, join() as other, trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(crowded.text, "visit")
        await crowded.settled()
        began = trio.current_time()
        await other.text("visit")
        assert trio.current_time() - began == pytest.approx(1)


async def test_plain_functions_run_in_threads_and_inline_ones_do_not() -> None:
    server = Server("threads")

    @server.tool
    def elsewhere() -> bool:
        return threading.current_thread() is threading.main_thread()

    @server.tool(inline=True)
    def here() -> bool:
        return threading.current_thread() is threading.main_thread()

    async with talking(server) as talk:
        assert await talk.text("elsewhere") == "false"
        assert await talk.text("here") == "true"


async def test_a_cancelled_call_is_never_answered_and_its_tasks_are_gone(autojump_clock: MockClock) -> None:
    ended: list[str] = []
    server = Server("slow")

    @server.tool
    async def slow() -> str:
        async def part(name: str) -> None:
            try:
                await trio.sleep_forever()
            finally:
                ended.append(name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(part, "a")
            nursery.start_soon(part, "b")
        return "never"

    async with talking(server) as talk:
        request_id = await talk.begin("tools/call", name="slow")
        await talk.settled()
        await talk.notify("notifications/cancelled", requestId=request_id)
        await talk.settled()
        assert sorted(ended) == ["a", "b"]
        assert not any(f'"id":{request_id}'.encode() in frame for frame in talk.raw)


@every_era
async def test_a_tool_that_needs_a_capability_is_refused_without_it(era: Era) -> None:
    server = Server("needy")

    @server.tool(requires=["sampling"])
    async def think() -> str:
        return "thought"

    async with open_server(server) as join, join(era) as plain, join(era, {"sampling": {}}) as able:
        error = await refusal(plain, "tools/call", name="think")
        assert error.data == {"requiredCapabilities": {"sampling": {}}}
        assert await able.text("think") == "thought"


@eras_where(lambda era: era is NEWEST)
async def test_the_context_knows_its_request(era: Era) -> None:
    server = Server("knowing")

    @server.tool
    async def who(ctx: Context) -> dict[str, Any]:
        assert ctx.client_info is not None
        ctx.data["x"] = 1
        return {
            "id": ctx.request_id,
            "method": ctx.method,
            "date": ctx.protocol_version,
            "client": ctx.client_info.name,
            "meta": ctx.meta,
            "http": ctx.http,
            "principal": ctx.principal,
            "transport": ctx.session.transport,
            "data": ctx.data,
        }

    async with talking(server, era) as talk:
        found = (await talk.call("who", _meta={"mark": "m"}))["structuredContent"]
    assert found == {
        "id": 2,
        "method": "tools/call",
        "date": era.date,
        "client": "talk",
        "meta": {"mark": "m"},
        "http": None,
        "principal": None,
        "transport": "memory",
        "data": {"x": 1},
    }


async def test_once_runs_a_function_one_time_also_for_concurrent_tasks(autojump_clock: MockClock) -> None:
    done: list[str] = []
    server = Server("careful")

    async def refund(order: str) -> str:
        await trio.sleep(1)
        done.append(order)
        return f"refunded {order}"

    @server.tool
    async def careful(ctx: Context) -> list[str]:
        found: list[str] = []

        async def one() -> None:
            found.append(await ctx.once("refund", refund, "7"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(one)
            nursery.start_soon(one)
        return found

    async with talking(server) as talk:
        assert json.loads(await talk.text("careful")) == ["refunded 7", "refunded 7"]
        assert done == ["7"]
        await talk.text("careful")
        assert done == ["7", "7"], "another call is another matter"


@pytest.mark.defect("D20")
async def test_progress_takes_any_number() -> None:
    server = Server("working")

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(Decimal("1.5"), Fraction(7, 2))
        await ctx.progress(2, 4)
        with pytest.raises(TypeError, match="progress is a number, not str"):
            await ctx.progress("3")  # type: ignore[arg-type]  # the mistake
        return "done"

    async with talking(server) as talk:
        await talk.call("work", _meta={"progressToken": "t"})
        received = [(params["progress"], params["total"]) for params in talk.heard("notifications/progress")]
        assert received == [(1.5, 3.5), (2, 4)]


PIXEL = Image(b"x", mime_type="image/png")


async def bare_list() -> list:  # type: ignore[type-arg]
    return ["text", PIXEL]


async def any_list() -> list[Any]:
    return [PIXEL, {"a": 1}]


async def any_tuple() -> tuple[Any, ...]:
    return (PIXEL, 3)


async def plain_list() -> list[Any]:
    return [1, {"a": 2}]


@pytest.mark.defect("C32")
async def test_media_in_any_list_are_content_blocks() -> None:
    server = Server("gallery")
    for fn in (bare_list, any_list, any_tuple, plain_list):
        server.add_tool(fn)
    image = {"type": "image", "data": "eA==", "mimeType": "image/png"}
    async with talking(server) as talk:
        assert all("outputSchema" not in tool for tool in (await talk.request("tools/list"))["tools"])
        assert (await talk.call("bare_list"))["content"] == [{"type": "text", "text": "text"}, image]
        assert (await talk.call("any_list"))["content"] == [image, {"type": "text", "text": '{"a":1}'}]
        assert (await talk.call("any_tuple"))["content"] == [image, {"type": "text", "text": "3"}]
        assert (await talk.call("plain_list"))["content"] == [{"type": "text", "text": '[1,{"a":2}]'}]


@every_era
async def test_a_handler_can_demand_a_visit_to_a_page(era: Era) -> None:
    server = Server("connected")

    @server.tool
    async def fetch() -> str:
        raise UrlElicitationRequired("https://example.com/connect", "Connect your account")

    @server.resource("mail://all")
    async def mail() -> str:
        raise UrlElicitationRequired("https://example.com/connect", "Connect your account", elicitation_id="e1")

    async with talking(server, era) as talk:
        if era.features.elicitation_error:
            error = await refusal(talk, "tools/call", name="fetch")
            (page,) = error.data["elicitations"]
            assert (error.code, page["mode"], page["url"]) == (-32042, "url", "https://example.com/connect")
            assert len(page["elicitationId"]) > 10
        else:
            assert await talk.fault("fetch") == "Connect your account: https://example.com/connect"
        error = await refusal(talk, "resources/read", uri="mail://all")
        assert error.code == (-32042 if era.features.elicitation_error else INTERNAL_ERROR)
        assert error.data["elicitations"][0]["elicitationId"] == "e1"


async def test_elicitation_with_other_members_only_means_forms() -> None:
    server = Server("asking")

    @server.tool
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("Sure?", bool)).value)

    script = {"elicitation/create": lambda params: {"action": "accept", "content": {"value": True}}}
    async with talking(server, capabilities={"elicitation": {"applyDefaults": True}}, script=script) as talk:
        assert await talk.text("ask") == "True"
    async with talking(server, capabilities={"elicitation": {"url": {}}}, script=script) as talk:
        assert "elicitation" in await talk.fault("ask")


@pytest.mark.defect("C01")
@pytest.mark.parametrize("grouped", [False, True])
async def test_a_cancelled_of_another_task_fails_the_tool_like_any_exception(
    grouped: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("faulty")
    caught: list[trio.Cancelled] = []

    @server.tool
    async def fail() -> str:
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.lowlevel.checkpoint()
            except trio.Cancelled as error:
                caught.append(error)
                raise
        raise BaseExceptionGroup("of a nursery", [caught[0]]) if grouped else caught[0]

    server.add_tool(_fine, name="fine")
    async with talking(server) as talk:
        assert await talk.fault("fail") == "The tool failed. The server log has the details."
        assert await talk.text("fine") == "fine"
    assert "tool 'fail' failed: it raised a Cancelled that belongs to another task" in caplog.text
