"""The forms of a result: text, structured content, or a preview with a link to the whole."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from mcptrio import Image, Server, ToolError
from mcptrio._actors.handlers import Handlers
from mcptrio._peer.era import Era
from mcptrio.auth.server import Principal
from mcptrio.errors import INTERNAL_ERROR
from mcptrio.extensions.tasks import Tasks
from mcptrio.server.features import tools
from mcptrio.server.features.large_results import KEPT_FOR
from mcptrio.stores import MemoryStore, StoreLimits
from mcptrio.stores.sqlite import SqliteStore
from mcptrio.types import CallToolResult, TextContent, Tool
from tests.extensions.kit import WITH_TASKS
from tests.server.talk import NEWEST, Talk, eras_where, every_era, open_server, refusal, talking
from tests.stateless.kit import Poster, meta, posting

LIMIT = 1000


@dataclass
class Sum:
    total: int


def summing(**defaults: Any) -> Server:
    server = Server("sums", **defaults)

    @server.tool
    async def add(a: int, b: int) -> Sum:
        return Sum(a + b)

    @server.tool
    async def count() -> int:
        return 3

    @server.tool(output_schema={"type": "object", "properties": {"n": {"type": "integer"}}})
    async def by_hand() -> dict[str, int]:
        return {"n": 3}

    return server


# -- result=

TEXT, STRUCTURED = [{"type": "text", "text": '{"total":3}'}], {"total": 3}
HAS_STRUCTURE = eras_where(lambda era: "outputSchema" in era.shapes["tool"])


@HAS_STRUCTURE
@pytest.mark.parametrize(
    ("form", "result"),
    [
        ("both", {"content": TEXT, "structuredContent": STRUCTURED}),
        ("structured", {"content": [], "structuredContent": STRUCTURED}),
        ("text", {"content": TEXT}),
    ],
)
async def test_a_typed_result_is_sent_in_the_form_of_the_server(era: Era, form: Any, result: Any) -> None:
    async with talking(summing(result=form), era) as talk:
        assert await talk.call("add", {"a": 1, "b": 2}) == result
        listed = (await talk.request("tools/list"))["tools"]
    assert ["outputSchema" in tool for tool in listed] == [form != "text"] * 3


async def test_a_tool_may_have_another_form_than_its_server() -> None:
    server = summing(result="text")

    @server.tool(result="structured")
    async def other() -> Sum:
        return Sum(3)

    async with talking(server) as talk:
        assert await talk.call("other") == {"content": [], "structuredContent": STRUCTURED}


async def test_a_result_with_a_schema_written_by_hand_has_the_same_forms() -> None:
    for form, keys in (("both", {"content", "structuredContent"}), ("text", {"content"})):
        async with talking(summing(result=form)) as talk:
            assert (await talk.call("by_hand")).keys() == keys


@eras_where(lambda era: "outputSchema" not in era.shapes["tool"])
async def test_a_revision_without_structured_content_gets_text(era: Era) -> None:
    async with talking(summing(result="structured"), era) as talk:
        assert (await talk.call("add", {"a": 1, "b": 2}))["content"] == TEXT


async def test_a_wrapped_result_tells_fastmcp_clients_to_unwrap_it() -> None:
    async with talking(summing()) as talk:
        add, count, by_hand = (await talk.request("tools/list"))["tools"]
    assert count["outputSchema"]["x-fastmcp-wrap-result"] is True
    assert "x-fastmcp-wrap-result" not in {**add["outputSchema"], **by_hand["outputSchema"]}


# -- max_result_bytes=


def large(**defaults: Any) -> Server:
    server = Server("large", **{"max_result_bytes": LIMIT, **defaults})

    @server.tool
    async def text(n: int) -> str:
        return "ä" * n

    @server.tool
    async def numbers(n: int) -> list[int]:
        return list(range(n))

    @server.tool
    async def mixed() -> list[Any]:
        return ["first", Image(data=b"x" * 5000, mime_type="image/png"), "last"]

    @server.tool
    async def fails() -> str:
        raise ToolError("x" * 5000)

    return server


def linked(result: dict[str, Any]) -> str:
    """The URI of the whole result."""
    link = result["content"][-1]
    assert link["type"] == "resource_link"
    assert link["uri"].startswith("result://")
    return str(link["uri"])


async def whole(talk: Talk, uri: str) -> list[dict[str, Any]]:
    contents: list[dict[str, Any]] = (await talk.request("resources/read", uri=uri))["contents"]
    return contents


async def test_a_small_result_is_sent_as_it_is() -> None:
    async with talking(large()) as talk:
        assert await talk.text("text", n=100) == "ä" * 100
        assert (await talk.call("numbers", {"n": 3}))["structuredContent"] == {"result": [0, 1, 2]}


async def test_a_large_result_is_a_preview_and_a_link_to_the_whole() -> None:
    async with talking(large()) as talk:
        result = await talk.call("text", {"n": 3001})
        preview, link = result["content"]
        assert len(preview["text"].encode()) == LIMIT
        assert set(preview["text"]) == {"ä"}
        assert (link["mimeType"], link["name"]) == ("text/plain", "whole result")
        assert await whole(talk, linked(result)) == [
            {"uri": linked(result), "text": "ä" * 3001, "mimeType": "text/plain"}
        ]


async def test_a_large_typed_result_has_no_structure_and_its_tool_no_output_schema() -> None:
    async with talking(large()) as talk:
        assert all("outputSchema" not in tool for tool in (await talk.request("tools/list"))["tools"])
        result = await talk.call("numbers", {"n": 5000})
        assert result.keys() == {"content"}
        (contents,) = await whole(talk, linked(result))
    assert contents["mimeType"] == "application/json"
    assert msgspec.json.decode(contents["text"]) == list(range(5000))


async def test_a_large_structured_result_without_text_is_kept_too() -> None:
    async with talking(large(result="structured")) as talk:
        result = await talk.call("numbers", {"n": 5000})
        assert len(result["content"][0]["text"]) == LIMIT
        (contents,) = await whole(talk, linked(result))
    assert msgspec.json.decode(contents["text"]) == {"result": list(range(5000))}


async def test_blocks_that_fit_are_part_of_the_preview_and_every_block_of_the_whole() -> None:
    async with talking(large()) as talk:
        result = await talk.call("mixed")
        assert [block["type"] for block in result["content"]] == ["text", "resource_link"]
        contents = await whole(talk, linked(result))
    assert [one.get("text", "blob") for one in contents] == ["first", "blob", "last"]
    assert contents[1]["mimeType"] == "image/png"


@every_era
async def test_the_link_exists_at_every_revision(era: Era) -> None:
    async with talking(large(), era) as talk:
        assert "resources" in talk.opening["capabilities"]
        last = (await talk.call("text", {"n": 3000}))["content"][-1]
        uri = last.get("uri") or last["text"].rpartition(" ")[2]
        assert (await whole(talk, uri))[0]["text"] == "ä" * 3000


async def test_an_error_is_sent_whole() -> None:
    async with talking(large()) as talk:
        assert await talk.fault("fails") == "x" * 5000


async def test_max_reply_stays_the_hard_limit() -> None:
    async with talking(large(max_reply=10_000)) as talk:
        refused = await refusal(talk, "tools/call", name="text", arguments={"n": 20_000})
    assert refused.code == INTERNAL_ERROR
    assert "larger than 10000 bytes" in refused.message


async def test_neg_another_session_does_not_find_the_result() -> None:
    async with open_server(large()) as join, join() as one, join() as other:
        uri = linked(await one.call("text", {"n": 3000}))
        near = uri[:-1] + ("y" if uri.endswith("x") else "x")
        for session, wrong in ((other, uri), (one, near), (one, "result://"), (one, uri + "x")):
            refused = await refusal(session, "resources/read", uri=wrong)
            assert refused.code == NEWEST.resource_not_found
            assert "resource not found" in refused.message
        assert (await whole(one, uri))[0]["text"] == "ä" * 3000


async def test_a_result_is_not_found_after_its_time(autojump_clock: MockClock) -> None:
    async with talking(large()) as talk:
        uri = linked(await talk.call("text", {"n": 3000}))
        await trio.sleep(KEPT_FOR - 1)
        assert await whole(talk, uri)
        await trio.sleep(2)
        assert "resource not found" in (await refusal(talk, "resources/read", uri=uri)).message


async def test_neg_another_principal_does_not_find_the_result() -> None:
    async with posting(large()) as anybody:
        ada, eve = (Poster(anybody.endpoint, principal=Principal(subject=name)) for name in ("ada", "eve"))
        for owner, others in ((ada, (eve, anybody)), (anybody, (ada,))):
            uri = linked((await owner.call("text", {"n": 3000})).result)
            reply = await owner.post("resources/read", {"uri": uri})
            assert reply.result["contents"][0]["text"] == "ä" * 3000
            assert {"ttlMs": 0, "cacheScope": "private"}.items() <= reply.result.items()
            for other in others:
                assert "resource not found" in (await other.post("resources/read", {"uri": uri})).error["message"]


async def test_one_owner_cannot_push_the_results_of_others_out() -> None:
    store = MemoryStore(StoreLimits(result_bytes=30_000))
    async with posting(large(), store=store) as anybody:
        ada, eve = (Poster(anybody.endpoint, principal=Principal(subject=name)) for name in ("ada", "eve"))
        kept = linked((await ada.call("text", {"n": 3000})).result)
        uris = [linked((await eve.call("text", {"n": 3000})).result) for _ in range(10)]
        assert "result" in (await ada.post("resources/read", {"uri": kept})).last
        found = ["result" in (await eve.post("resources/read", {"uri": uri})).last for uri in uris]
    assert found == [False] * 7 + [True] * 3


async def test_a_result_outlives_a_restart_with_a_durable_store(tmp_path: Path) -> None:
    async with posting(large(), store=SqliteStore(tmp_path / "s.db")) as one:
        uri = linked((await one.call("text", {"n": 3000})).result)
    async with posting(large(), store=SqliteStore(tmp_path / "s.db")) as other:
        assert (await other.post("resources/read", {"uri": uri})).result["contents"][0]["text"] == "ä" * 3000


@pytest.mark.parametrize("option", [{"result": "text"}, {"max_result_bytes": 10}])
async def test_a_tool_given_as_a_value_lists_no_schema_that_its_results_violate(option: dict[str, Any]) -> None:
    server = Server("values")
    schema = {"type": "object"}
    server.add_tool(Tool(name="t", input_schema=schema, output_schema=schema), lambda arguments: {}, **option)
    async with talking(server) as talk:
        (tool,) = (await talk.request("tools/list"))["tools"]
    assert tool == {"name": "t", "inputSchema": schema}


async def test_the_result_of_a_task_is_kept_for_the_caller_of_the_task(autojump_clock: MockClock) -> None:
    server = Server("tasks", max_result_bytes=LIMIT)
    server.add_extension(Tasks(poll=0.01))

    @server.tool(task=True)
    async def slow() -> str:
        return "x" * 5000

    async with posting(server) as anybody:
        ada, eve = (Poster(anybody.endpoint, principal=Principal(subject=name)) for name in ("ada", "eve"))
        known = {"_meta": meta(WITH_TASKS)}
        created = (await ada.post("tools/call", {"name": "slow", "arguments": {}, **known})).result
        with trio.fail_after(10):
            while (seen := (await ada.post("tasks/get", {"taskId": created["taskId"], **known})).result)["status"] != (
                "completed"
            ):
                await trio.sleep(0.01)
        uri = linked(seen["result"])
        assert (await ada.post("resources/read", {"uri": uri})).result["contents"][0]["text"] == "x" * 5000
        assert "resource not found" in (await eve.post("resources/read", {"uri": uri})).error["message"]


async def test_a_declared_resource_of_the_same_scheme_is_still_read() -> None:
    server = large()

    @server.resource("result://{id}")
    async def mine(id: str) -> str:
        return f"mine {id}"

    async with talking(server) as talk:
        uri = linked(await talk.call("text", {"n": 3000}))
        assert (await whole(talk, "result://x"))[0]["text"] == "mine x"
        assert (await whole(talk, uri))[0]["text"] == "ä" * 3000


# -- large typed results, which are converted and encoded in two steps


def rows(count: int = 3000) -> list[dict[str, Any]]:
    return [{"number": number, "note": None, "name": "some text"} for number in range(count)]


@pytest.mark.parametrize("kind", [list[dict[str, Any]], CallToolResult])
async def test_a_large_result_is_the_value_at_the_moment_of_the_return(kind: Any) -> None:
    server = Server("shared")

    async def give() -> Any:
        shared = rows()
        trio.lowlevel.spawn_system_task(change, shared)  # runs as soon as this task waits
        if kind is CallToolResult:
            text = TextContent(text="x" * 100_000)
            return CallToolResult(content=[text], structured_content={"result": shared})
        return shared

    async def change(shared: list[Any]) -> None:
        shared.clear()

    give.__annotations__["return"] = kind
    server.add_tool(give)
    async with talking(server) as talk:
        for _ in range(10):  # the order of two tasks that are ready is random
            assert (await talk.call("give"))["structuredContent"] == {"result": rows()}


@pytest.mark.defect("S2")
@pytest.mark.parametrize(("count", "waits"), [(10, False), (3000, True)])
async def test_a_large_result_is_converted_and_encoded_in_two_turns(
    count: int, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, ran, at_end = Server("two steps"), [], []
    converted, ended = tools.result_of, Handlers._ended

    async def other() -> None:
        ran.append(True)

    def convert(*args: Any) -> Any:
        result = converted(*args)
        trio.lowlevel.spawn_system_task(other)
        return result

    def end(*args: Any) -> None:
        at_end.append(bool(ran))
        ended(*args)

    @server.tool
    async def give() -> list[dict[str, Any]]:
        return rows(count)

    async with talking(server) as talk:
        monkeypatch.setattr(tools, "result_of", convert)
        monkeypatch.setattr(Handlers, "_ended", end)
        for _ in range(10):  # the order of two tasks that are ready is random
            ran.clear()
            await talk.call("give")
    assert any(at_end) == waits


async def test_a_result_whose_conversion_passes_the_deadline_is_sent(autojump_clock: MockClock) -> None:
    class Slow(dict[str, Any]):
        def items(self) -> Any:
            autojump_clock.jump(2)
            return super().items()

    server = Server("slow")

    @server.tool(timeout=1)
    async def give() -> dict[str, Any]:
        return Slow(result=rows())

    async with talking(server) as talk:
        assert (await talk.call("give"))["structuredContent"] == {"result": rows()}


async def test_a_large_result_with_a_value_that_has_no_json_form_fails(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("values")

    @server.tool
    async def give(odd: int) -> list[dict[str, Any]]:
        return [*rows(), {"odd": [nan, object(), "\ud800"][odd]}]

    async with talking(server) as talk:
        texts = [await talk.fault("give", odd=odd) for odd in range(3)]
    assert [text.startswith("The tool failed.") for text in texts] == [True, True, False]
    assert "lone surrogate" in texts[2]
    assert "nan has no JSON form" in caplog.text
    assert "a value of type object has no JSON form" in caplog.text
